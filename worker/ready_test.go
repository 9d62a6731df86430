package worker_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/fake"
	"github.com/soukhq/souk/store/journal/mem"
	"github.com/soukhq/souk/worker"
)

// readying is told of what could be made ahead, and of what is started.
type readying struct {
	*fake.Runtime
	ahead, started chan runtime.Spec
}

func (readying) CanRun(string, string) error { return nil }

func (r readying) Ready(s runtime.Spec) { r.ahead <- s }

func (r readying) Start(ctx context.Context, s runtime.Spec) (runtime.Status, error) {
	r.started <- s
	return r.Runtime.Start(ctx, s)
}

// TestAnnouncedNextStartIsExact: the runtime is told of the start that comes next when a machine has come to rest, to
// the letter, and of none where none comes.
func TestAnnouncedNextStartIsExact(t *testing.T) {
	rt := readying{fake.New(fake.Options{}), make(chan runtime.Spec, 10), make(chan runtime.Spec, 10)}
	b := open(t, mem.New(), rt.Runtime, func(o *worker.Options) {
		o.Runtime = rt
		o.Secrets = func(*machine.Machine) (map[string]string, error) { return map[string]string{"KEY": "secret"}, nil }
	})
	do := func(verb lifecycle.Verb, id string) {
		t.Helper()
		if _, err := b.Do(t.Context(), lifecycle.Command{Verb: verb, App: "app", Machine: id}); err != nil {
			t.Fatal(err)
		}
	}
	g := grant(id(1))
	g.Launch.Config.Image, g.Launch.SkipLaunch = "demo:1", true
	if _, err := b.Grant(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	for n := range 3 { // of one that was never started, and of one that was stopped
		ahead := <-rt.ahead
		do(lifecycle.Start, id(1))
		started := <-rt.started
		if d := cmp.Diff(ahead, started); d != "" || started.Attempt != uint64(n)+1 {
			t.Errorf("start %d is not what was said to come (-said +came):\n%s", n+1, d)
		}
		do(lifecycle.Stop, id(1))
	}
	<-rt.ahead
	do(lifecycle.Destroy, id(1))

	host, once := grant(id(2)), grant(id(3))
	once.Launch.Config.Image, once.Launch.Config.AutoDestroy = "demo:1", true
	for _, g := range []lifecycle.Grant{host, once} {
		if _, err := b.Grant(t.Context(), g); err != nil {
			t.Fatal(err)
		}
		do(lifecycle.Stop, g.Request.Machine)
		b.until(g.Request.Machine, machine.Stopped)
	}
	if n := len(rt.ahead); n > 0 {
		t.Errorf("of machines that need nothing, or are not started again, %d are to be made ready", n)
	}
}
