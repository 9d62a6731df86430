package worker_test

import (
	"testing"

	"github.com/soukhq/souk/journal/mem"
	"github.com/soukhq/souk/lifecycle"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime/fake"
	"github.com/soukhq/souk/worker"
)

// TestAPowerLossStartsNoAttemptTwice: the power goes while an attempt is being started. What the runtime noted was not
// synced, so it knows nothing; the machine starts all the same, as the next attempt.
func TestAPowerLossStartsNoAttemptTwice(t *testing.T) {
	boot := func(id string) func(*worker.Options) { return func(o *worker.Options) { o.Boot = id } }
	starting, goOn := make(chan struct{}), make(chan struct{})
	before := fake.New(fake.Options{After: func(c fake.Call) error {
		if c.Op == "start" {
			close(starting)
			<-goOn
		}
		return nil
	}})
	j := mem.New()
	b := open(t, j, before, boot("one"))
	granted := make(chan error, 1)
	g := grant(id(1))
	g.Launch.Config.Restart = &machine.Restart{Policy: "always"}
	go func() { _, err := b.Grant(t.Context(), g); granted <- err }()
	<-starting
	disk := j.Snapshot() // the power goes here
	close(goOn)
	if err := <-granted; err != nil {
		t.Fatal(err)
	}
	if err := b.stop(); err != nil {
		t.Fatal(err)
	}

	after := fake.New(fake.Options{})
	c := open(t, mem.FromSnapshot(disk), after, boot("two"))
	c.until(id(1), machine.Started)
	for _, e := range after.Effects() {
		if e.Op == "start" && e.Attempt != 2 {
			t.Errorf("attempt %d was started behind the power loss; the first may have lived before it", e.Attempt)
		}
	}
	if rec, err := c.Record(t.Context()); err != nil || rec.Used.CPU != 100 {
		t.Errorf("the ledger has %+v: %v", rec.Used, err)
	}
}

// TestAMachineThatTheRuntimeForgotIsPreparedAnew: it was made and stopped long ago, and its directory is lost.
func TestAMachineThatTheRuntimeForgotIsPreparedAnew(t *testing.T) {
	j := mem.New()
	b := open(t, j, fake.New(fake.Options{}))
	if _, err := b.Grant(t.Context(), grant(id(1))); err != nil {
		t.Fatal(err)
	}
	stop := lifecycle.Command{Verb: lifecycle.Stop, App: "app", Machine: id(1)}
	if _, err := b.Do(t.Context(), stop); err != nil {
		t.Fatal(err)
	}
	if err := b.stop(); err != nil {
		t.Fatal(err)
	}
	c := open(t, j.Reopen(), fake.New(fake.Options{}), func(o *worker.Options) { o.Boot = "another" })
	start := lifecycle.Command{Verb: lifecycle.Start, App: "app", Machine: id(1)}
	if out, err := c.Do(t.Context(), start); err != nil || out.Machine.State != machine.Started {
		t.Errorf("%+v: %v", out.Machine, err)
	}
}
