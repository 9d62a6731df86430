package worker_test

import (
	"context"
	"strings"
	"testing"

	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime/fake"
	"github.com/soukhq/souk/store/journal/mem"
	"github.com/soukhq/souk/worker"
)

func update(n int, edit func(*machine.Launch)) lifecycle.Command {
	g := grant(id(n))
	edit(g.Launch)
	return lifecycle.Command{Verb: lifecycle.Update, App: "app", Machine: id(n), Launch: g.Launch,
		Resources: &g.Request.Resources}
}

// TestRefusedUpdateStopsNothing: an update whose start would be refused touches neither the machine nor its process;
// one that is not to be started may name what comes later.
func TestRefusedUpdateStopsNothing(t *testing.T) {
	secrets := func(o *worker.Options) {
		o.Secrets = func(*machine.Machine) (map[string]string, error) { return map[string]string{}, nil }
	}
	b := open(t, mem.New(), fake.New(fake.Options{}), secrets)
	if _, err := b.Grant(t.Context(), grant(id(1))); err != nil {
		t.Fatal(err)
	}
	was := b.until(id(1), machine.Started)
	effects := len(b.rt.Effects())
	name := "API_KEY"
	for text, edit := range map[string]func(*machine.Launch){
		"does not exist": func(l *machine.Launch) { l.Config.Init.Exec = []string{"/opt/typo"} },
		"no program":     func(l *machine.Launch) { l.Config.Init.Exec = nil },
		"wants the secret API_KEY": func(l *machine.Launch) {
			l.Config.Files = []machine.File{{GuestPath: "/key", SecretName: &name}}
		},
		"is not base64": func(l *machine.Launch) {
			raw := "%"
			l.Config.Files = []machine.File{{GuestPath: "/key", RawValue: &raw}}
		},
	} {
		_, err := b.Do(t.Context(), update(1, edit))
		if err == nil || !strings.Contains(err.Error(), text) ||
			!strings.HasPrefix(err.Error(), "machine "+id(1)+" stays as it is, at version "+was.InstanceID+": ") {
			t.Errorf("%s: %v", text, err)
		}
	}
	is, err := b.Machine(t.Context(), "app", id(1))
	if err != nil || is.InstanceID != was.InstanceID || is.State != was.State || len(is.Events) != len(was.Events) {
		t.Errorf("it was %+v, and is %+v, %v", was, is, err)
	}
	if now := b.rt.Effects(); len(now) != effects {
		t.Errorf("something was done: %v", now[effects:])
	}
	if _, err := b.Do(t.Context(), update(2, func(*machine.Launch) {})); !fault.Is(err, fault.NotFound) {
		t.Errorf("of a machine that is not there: %v", err)
	}
	out, err := b.Do(t.Context(), update(1, func(l *machine.Launch) {
		l.Config.Init.Exec, l.SkipLaunch = []string{"/opt/later"}, true
	}))
	if err != nil || out.Machine.State != machine.Stopped {
		t.Errorf("without a start: %+v, %v", out.Machine, err)
	}
}

// TestFailedUpdateRestoresTheMachine: what only the start refuses brings back what ran, and the answer is an error.
func TestFailedUpdateRestoresTheMachine(t *testing.T) {
	refuse := false
	rt := fake.New(fake.Options{Before: func(c fake.Call) error {
		if c.Op == "start" && c.Attempt == 2 && refuse {
			return fault.New(fault.Precondition, "program", "it is not a program for this worker")
		}
		return nil
	}})
	b := open(t, mem.New(), rt)
	if _, err := b.Grant(t.Context(), grant(id(1))); err != nil {
		t.Fatal(err)
	}
	was := b.until(id(1), machine.Started)
	refuse = true
	_, err := b.Do(context.WithoutCancel(t.Context()), update(1, func(l *machine.Launch) {
		l.Config.Init.Exec = []string{"sleep", "5"}
	}))
	if err == nil || !strings.HasSuffix(err.Error(), "version "+was.InstanceID+" runs again") ||
		!strings.Contains(err.Error(), "it is not a program for worker w1") {
		t.Errorf("the answer is %v", err)
	}
	is := b.until(id(1), machine.Started)
	if is.InstanceID != was.InstanceID || is.Config.Init.Exec[1] != "1000" {
		t.Errorf("it is %+v", is)
	}
}
