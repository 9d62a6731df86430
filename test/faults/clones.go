package faults

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/soukhq/souk/cli/check/history"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
)

// twinTime bounds how long two members with one id may take to find each other, and each step until only one is left.
const twinTime = 30 * time.Second

// Bounds of the pause for copying a disk, and of the tries.
const (
	pauseMost = 3 * time.Second
	pauses    = 10
)

// Texts of /readyz for a member with a twin, and for one that must not live.
const (
	saysTwo  = "another worker with the id"
	saysGone = "belongs to another host"
)

// clone brings a copy of a member's disk up on another host, while the member goes on. Both must report the twin, and
// start nothing, until the run decides which of them lives: the member, or after the death of its host the copy. The
// other is ended.
func (r *run) clone(ctx context.Context) error {
	m, copyLives := r.ms[r.rng.IntN(len(r.ms))], r.rng.IntN(3) == 0
	twin := &member{id: m.id, exe: m.exe, dir: m.dir + "-copy", host: r.extra, o: m.o, boot: m.dir + "-copy.boot"}
	var err error
	if twin.log, err = os.Create(twin.dir + ".log"); err != nil {
		return err
	}
	r.ended = append(r.ended, twin)
	copied, err := m.snapshot(ctx, twin.dir)
	if err != nil {
		return err
	}
	r.say("the disk of %s is copied", m.id)
	if err := wait(ctx, time.Duration(r.rng.Int64N(int64(r.o.For)))); err != nil {
		return err
	}
	twin.connect()
	if err := twin.start(); err != nil {
		return err
	}
	r.say("a copy of %s is brought up", m.id)
	stop := r.askTwin(ctx, twin)
	defer stop()
	for _, x := range []*member{twin, m} {
		if err := x.says(ctx, saysTwo); err != nil {
			return err
		}
	}
	r.say("both say that they are two")
	if err := wait(ctx, r.o.For); err != nil {
		return err
	}
	if copyLives {
		return r.copyLives(ctx, m, twin, copied, stop)
	}
	return r.originalLives(ctx, m, twin, stop)
}

// snapshot copies the member's disk at one moment, while its processes are paused like a virtual machine. If the pause
// gets too long for lack of CPU it is ended and tried again: long pauses are tested by other faults.
func (m *member) snapshot(ctx context.Context, to string) (at time.Time, err error) {
	for range pauses {
		at = time.Now()
		if err = m.pausedCopy(ctx, to); err == nil {
			return at, nil
		}
		if gone := errors.Join(os.RemoveAll(to), wait(ctx, time.Second)); gone != nil {
			return at, gone
		}
	}
	return at, fault.Wrap(err, fault.Internal, fault.CodeCopy, "the disk of %s cannot be copied in %v", m.id, pauseMost)
}

func (m *member) pausedCopy(ctx context.Context, to string) error {
	ctx, cancel := context.WithTimeout(ctx, pauseMost)
	defer cancel()
	for _, kind := range []string{"agent", "reaper"} {
		m.signal(kind, syscall.SIGSTOP)
		defer m.signal(kind, syscall.SIGCONT)
	}
	return exec.CommandContext(ctx, "cp", "-a", "--", m.dir, to).Run()
}

// originalLives lets the member go on, as if there had never been a copy.
func (r *run) originalLives(ctx context.Context, m, twin *member, stop func()) error {
	if err := m.lives(ctx, "the other is a copy"); err != nil {
		return err
	}
	r.say("%s is the one that lives", m.id)
	if err := errors.Join(m.says(ctx, ""), twin.says(ctx, saysGone)); err != nil {
		return err
	}
	stop()
	twin.powerOff()
	r.say("the copy is ended")
	return nil
}

// copyLives kills the member's host, and lets its copy live instead. What the member did since the copy was made is
// lost.
func (r *run) copyLives(ctx context.Context, m, twin *member, copied time.Time, stop func()) error {
	m.powerOff()
	r.rep.Kills++
	stop()
	r.forgot, r.forgotten[m.id] = true, true
	r.say("%s is dead; its copy is to live", m.id)
	if err := twin.lives(ctx, "the other's host is dead"); err != nil {
		return err
	}
	if err := twin.says(ctx, ""); err != nil {
		return err
	}
	m.api.Store(twin.host)
	for i, x := range r.ms {
		if x == m {
			r.ms[i] = twin
		}
	}
	r.ended = []*member{m}
	r.rec.Add(history.Op{
		Kind:    history.Restored,
		Worker:  cluster.WorkerID(m.id),
		Call:    copied.UnixNano(),
		Return:  time.Now().UnixNano(),
		Outcome: history.Yes,
	})
	r.say("the copy of %s is the one that lives", m.id)
	return nil
}

// lives tells a member that it lives, until it accepts that.
func (m *member) lives(ctx context.Context, reason string) error {
	ctx, cancel := context.WithTimeout(ctx, twinTime)
	defer cancel()
	for {
		_, err := m.souk(ctx, "agent", "lives", "--dir", m.dir, "--reason", reason, "--yes")
		if err == nil {
			return nil
		}
		if wait(ctx, askPause) != nil {
			return fault.Wrap(err, fault.Timeout, fault.CodeLives, "%s did not become the only valid member with "+
				"its id", m.id)
		}
	}
}

// says waits until /readyz of the member says that it is not ready, with a text; "": that it is ready.
func (m *member) says(ctx context.Context, text string) error {
	ctx, cancel := context.WithTimeout(ctx, twinTime)
	defer cancel()
	for {
		ready, said, err := m.readyz(ctx)
		if err == nil && ready == (text == "") && strings.Contains(said, text) {
			return nil
		}
		if wait(ctx, 20*time.Millisecond) != nil {
			return fault.Wrap(err, fault.Timeout, codeReadyz, "%s in %s does not say %q after %v, but ready: %v, %s",
				m.id, m.dir, text, twinTime, ready, said)
		}
	}
}

func (m *member) readyz(ctx context.Context) (ready bool, said string, err error) {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+apiAddr+"/readyz", http.NoBody)
	if err != nil {
		return false, "", err
	}
	a, err := m.http.Do(q)
	if err != nil {
		return false, "", err
	}
	defer a.Body.Close()
	raw, err := io.ReadAll(a.Body)
	return a.StatusCode == http.StatusOK, string(raw), err
}

// askTwin asks a copy for machines until stop is called: it must not make any at its own worker, and those that it gets
// from others must exist in the end.
func (r *run) askTwin(ctx context.Context, twin *member) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var asker sync.WaitGroup
	given, asked := 0, 0
	asker.Go(func() {
		for wait(ctx, askPause) == nil {
			op := history.Op{Kind: history.Create, Client: r.o.Clients, Gateway: twin.id, App: app, Tries: 1,
				Call: time.Now().UnixNano()}
			try, cancel := context.WithTimeout(ctx, askTime)
			m, err := twin.cl.Launch(try, app, r.load.launchOf("", false), client.LaunchOptions{})
			cancel()
			op.Return = time.Now().UnixNano()
			asked++
			switch f := fault.As(err); {
			case err == nil:
				op.Outcome, op.Machine, op.Worker, op.Instance = history.Yes, m.ID, m.Worker, m.InstanceID
			case ctx.Err() != nil || unanswered(f):
				op.Outcome, op.Code = history.Unsure, f.Code
			default:
				op.Outcome, op.Code = history.No, f.Code
			}
			r.rec.Add(op)
			if op.Worker == cluster.WorkerID(twin.id) {
				given++
			}
		}
	})
	return sync.OnceFunc(func() {
		cancel()
		asker.Wait()
		r.say("the copy was asked for %d machines", asked)
		if given > 0 {
			r.rep.Violations = append(r.rep.Violations,
				fmt.Sprintf("a copy of %s gave room to %d machines before anybody said that it lives", twin.id, given))
		}
	})
}
