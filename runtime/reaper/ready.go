package reaper

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"slices"
	"strconv"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/reaper/frame"
	"github.com/soukhq/souk/runtime/reaper/proc"
)

// readyContainer is a prepared container that waits for its start. Its life is neither reported nor recorded: if the
// reaper is killed, the next one removes the container.
type readyContainer struct {
	*life
	key   [sha256.Size]byte // of the start that it was made for
	init  bool              // it has an init
	ticks uint64            // start of its process
}

// keyOf identifies a start, to find out if a container was made for it.
func keyOf(attempt uint64, s *frame.Start, data []byte) (key [sha256.Size]byte, err error) {
	same := *s
	same.Fresh = false // about the machine, not the container
	raw, err := json.Marshal(&same)
	if err != nil {
		return key, fault.Wrap(err, fault.Internal, codeStart, "a start cannot be encoded as JSON")
	}
	h := sha256.New()
	for _, part := range [][]byte{strconv.AppendUint(nil, attempt, 10), raw, data} {
		_, _ = h.Write(part) // never fails
	}
	return [sha256.Size]byte(h.Sum(nil)), nil
}

// getReady makes the container for a later start of an attempt, so that the start only has to run its program. If
// q.Keep machines have one already, the oldest is removed.
func (c *containers) getReady(q frame.Request, data []byte) error {
	r := c.r
	if q.Attempt == 0 || q.Keep < 1 || q.Start == nil || q.Start.Container == nil {
		return fault.New(fault.Invalid, fault.CodeReady, "a container can be made ahead only of a start in a "+
			"container, with an attempt and the number to keep")
	}
	key, err := keyOf(q.Attempt, q.Start, data)
	if err != nil {
		return err
	}
	m, err := r.findMachine(q.Machine)
	if err != nil {
		return err
	}
	if err := r.lockMachine(m); err != nil {
		return err
	}
	defer m.op.Unlock()
	r.mu.Lock()
	late := q.Attempt <= m.seen || m.life != nil && !m.life.over
	r.mu.Unlock()
	if late {
		return nil // it runs or has run already
	}
	if got := c.takeReady(m.id); got != nil {
		if got.key == key && got.isWaiting() {
			c.keepReady(got)
			return nil
		}
		c.discardReady(got)
	}
	for _, old := range c.tooMany(q.Keep - 1) {
		c.discardReady(old)
	}
	got, err := c.makeReady(m, q.Attempt, q.Start, data)
	if err != nil {
		return err
	}
	got.key = key
	c.keepReady(got)
	return nil
}

func (c *containers) makeReady(m *machine, attempt uint64, s *frame.Start, data []byte) (*readyContainer, error) {
	l, err := c.planLife(m, attempt, s)
	if err != nil {
		return nil, err
	}
	ends, closeEnds, err := l.equipLife(c.r, s)
	if err != nil {
		return nil, err
	}
	defer closeEnds()
	err = c.withEngine(func(ctx context.Context) error {
		l.rec.PID, err = c.makeContainer(ctx, l, s, nil, data, ends, "")
		return err
	})
	if err != nil {
		l.unequipLife(c.r)
		return nil, err
	}
	got := &readyContainer{life: l, init: s.Container.Init != ""}
	if st, err := proc.Read(l.rec.PID); err == nil {
		got.ticks = st.Start
	}
	return got, nil
}

// isWaiting reports whether the container's process still exists.
func (a *readyContainer) isWaiting() bool { return proc.Running(a.rec.PID, a.ticks) }

// startReady starts a prepared container, and reports whether that worked: its process may have been killed meanwhile.
func (c *containers) startReady(a *readyContainer, tell func(runtime.Status)) bool {
	err := a.beginProgram(c.r, func() error {
		ctx, cancel := c.r.withPatience(enginePatience)
		defer cancel()
		c.addWorking(1)
		defer c.addWorking(-1)
		return c.startProgram(ctx, a.life, a.rec.PID, a.init, tell)
	})
	if err != nil {
		c.r.log.Info("a container that was ready did not start, and is made anew", "machine", a.m.id, "err", err)
	}
	return err == nil
}

// keepReady stores a prepared container.
func (c *containers) keepReady(a *readyContainer) {
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	c.ready = append(c.ready, a)
}

// takeReady takes the prepared container of a machine from the store, nil if there is none.
func (c *containers) takeReady(id string) *readyContainer {
	if c == nil {
		return nil
	}
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	i := slices.IndexFunc(c.ready, func(a *readyContainer) bool { return a.m.id == id })
	if i < 0 {
		return nil
	}
	a := c.ready[i]
	c.ready = slices.Delete(c.ready, i, i+1)
	return a
}

// tooMany takes all but the newest keep prepared containers from the store.
func (c *containers) tooMany(keep int) []*readyContainer {
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	n := max(0, len(c.ready)-keep)
	old := slices.Clone(c.ready[:n])
	c.ready = slices.Delete(c.ready, 0, n)
	return old
}

// discardReady removes a prepared container that is no longer in the store. a may be nil.
func (c *containers) discardReady(a *readyContainer) {
	if a == nil {
		return
	}
	c.removeContainerOf(a.life)
	a.unequipLife(c.r)
}

// discardAll removes all prepared containers. The returned channel is closed when that is done.
func (c *containers) discardAll() <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, a := range c.tooMany(0) {
			c.discardReady(a)
		}
	}()
	return done
}
