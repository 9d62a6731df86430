package oci

import (
	"context"
	"sync"
	"time"

	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime"
)

// restBefore is how long a machine must be stopped before a container is made for its next start. Most machines that
// are stopped to be removed, updated or restarted are handled within that time.
const restBefore = 2 * time.Second

// readyPatience bounds the making of a container, which takes 0.1 s.
const readyPatience = time.Minute

// ahead makes containers for stopped machines in advance, one at a time.
type ahead struct {
	make func(context.Context, runtime.Spec) error
	most int

	ctx    context.Context
	cancel context.CancelFunc
	one    sync.Mutex // held while a container is made

	mu      sync.Mutex
	waiting map[string]*time.Timer // timers by machine
}

func newAhead(do func(context.Context, runtime.Spec) error, most int) *ahead {
	a := &ahead{make: do, most: most, waiting: make(map[string]*time.Timer)}
	a.ctx, a.cancel = context.WithCancel(context.Background())
	return a
}

// makeAfter schedules the making of a container for after a rest.
func (a *ahead) makeAfter(rest time.Duration, s runtime.Spec) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if t := a.waiting[s.Machine]; t != nil {
		t.Stop()
	}
	var t *time.Timer
	t = time.AfterFunc(rest, func() {
		a.one.Lock()
		defer a.one.Unlock()
		a.mu.Lock()
		mine := a.waiting[s.Machine] == t
		if mine {
			delete(a.waiting, s.Machine)
		}
		a.mu.Unlock()
		if !mine {
			return
		}
		ctx, cancel := context.WithTimeout(a.ctx, readyPatience)
		defer cancel()
		_ = a.make(ctx, s) // the machine's start reports the error
	})
	a.waiting[s.Machine] = t
}

// forgetMachine cancels the scheduled making for a machine.
func (a *ahead) forgetMachine(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if t := a.waiting[id]; t != nil {
		t.Stop()
		delete(a.waiting, id)
	}
}

// Ready makes a container for the next start of a stopped machine, unless the machine uses what other machines may need
// meanwhile: volumes, or ports of the host.
func (r *Runtime) Ready(s runtime.Spec) {
	shares := len(s.Mounts) > 0 || len(s.Network.Publish) > 0
	if r.ahead.most > 0 && !machine.IsHostImage(s.Image) && !shares && !s.TTY {
		r.ahead.makeAfter(restBefore, s)
	}
}

func (r *Runtime) makeReady(ctx context.Context, s runtime.Spec) error {
	img, err := r.images.Hold(ctx, s.Machine, s.Image)
	if err != nil {
		return err
	}
	in, err := r.completeSpec(&s, img)
	if err != nil {
		return err
	}
	return r.ReadyIn(ctx, s, in, r.ahead.most)
}

// Close closes souk's part; machines keep running.
func (r *Runtime) Close() error {
	r.ahead.cancel()
	return r.Runtime.Close()
}
