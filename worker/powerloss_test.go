package worker_test

import (
	"sync/atomic"
	"testing"

	"github.com/soukhq/souk/core/fsm"
	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime/fake"
	"github.com/soukhq/souk/store/journal"
	"github.com/soukhq/souk/store/journal/mem"
	"github.com/soukhq/souk/worker"
)

// TestPowerLossStartsNoAttemptTwice: the power goes while an attempt is being started. What the runtime noted was not
// synced, so it knows nothing; the machine starts all the same, as the next attempt.
func TestPowerLossStartsNoAttemptTwice(t *testing.T) {
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
		if e.Op == "start" && e.Attempt < 2 {
			t.Errorf("attempt %d was started behind the power loss; the first may have lived before it", e.Attempt)
		}
	}
	if rec, err := c.Record(t.Context()); err != nil || rec.Used.CPU != 100 {
		t.Errorf("the ledger has %+v: %v", rec.Used, err)
	}
}

// lateDisk is a journal that has written a batch before it is durable, which is when the test lets it.
type lateDisk struct {
	*mem.Journal
	late    atomic.Bool
	durable chan struct{}
}

func (j *lateDisk) Commit(batch []fsm.Record, written ...func()) error {
	journal.Tell(written)
	if j.late.Load() {
		<-j.durable
	}
	return j.Journal.Commit(batch)
}

// TestStartOverlapsItsCommit: the runtime starts a machine while the disk still works on what says so, and nobody is
// answered before it has. Where the power goes in between, a machine that was there is started as an attempt with
// another number, and one that was not is not there.
func TestStartOverlapsItsCommit(t *testing.T) {
	for _, c := range []struct {
		name  string
		there bool // the machine is made before
		keyed bool // a repetition of the grant leads to the same id
		ahead bool
	}{
		{"a machine with an id of its own", false, false, true},
		{"a machine that is asked for again", false, true, false},
		{"a machine that was there", true, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			started := make(chan uint64, 10)
			rt := fake.New(fake.Options{After: func(c fake.Call) error {
				if c.Op == "start" {
					started <- c.Attempt
				}
				return nil
			}})
			j := &lateDisk{Journal: mem.New(), durable: make(chan struct{})}
			b := openOn(t, j, rt, func(o *worker.Options) { o.Boot = "one" })
			g := grant(id(1))
			g.NewID = !c.keyed
			ask := func() error { _, err := b.Grant(t.Context(), g); return err }
			if c.there {
				g.Launch.SkipLaunch = true
				if err := ask(); err != nil {
					t.Fatal(err)
				}
				start := lifecycle.Command{Verb: lifecycle.Start, App: "app", Machine: id(1)}
				ask = func() error { _, err := b.Do(t.Context(), start); return err }
			}
			j.late.Store(true)
			answered := make(chan error, 1)
			go func() { answered <- ask() }()
			if !c.ahead {
				j.durable <- struct{}{}
			}
			first := <-started
			if c.ahead {
				select {
				case err := <-answered:
					t.Fatalf("it was answered before the disk had it: %v", err)
				default:
				}
			}
			disk := j.Snapshot() // the power goes here
			j.late.Store(false)
			close(j.durable)
			if err := <-answered; err != nil {
				t.Fatal(err)
			}
			if err := b.stop(); err != nil {
				t.Fatal(err)
			}
			if !c.ahead {
				return
			}

			after := open(t, mem.FromSnapshot(disk), fake.New(fake.Options{}),
				func(o *worker.Options) { o.Boot = "two" })
			if !c.there {
				if list, err := after.Machines(t.Context(), "", true); err != nil || len(list) != 0 {
					t.Errorf("there is %+v: %v", list, err)
				}
				return
			}
			start := lifecycle.Command{Verb: lifecycle.Start, App: "app", Machine: id(1)}
			if _, err := after.Do(t.Context(), start); err != nil {
				t.Fatal(err)
			}
			for _, e := range after.rt.Effects() {
				if e.Op == "start" && e.Attempt <= first {
					t.Errorf("attempt %d was started behind the power loss, and attempt %d before it", e.Attempt, first)
				}
			}
		})
	}
}

// TestSlowStartIsVisible: who waits for nothing sees a machine that is being started all the same.
func TestSlowStartIsVisible(t *testing.T) {
	goOn := make(chan struct{})
	rt := fake.New(fake.Options{After: func(c fake.Call) error {
		if c.Op == "start" {
			<-goOn
		}
		return nil
	}})
	b := open(t, mem.New(), rt, func(o *worker.Options) { o.Boot = "one" })
	g := grant(id(1))
	g.NewID = true
	granted := make(chan error, 1)
	go func() { _, err := b.Grant(t.Context(), g); granted <- err }()
	waittest.Until(t, "the machine is being created", func() bool {
		ms, err := b.Machines(t.Context(), "", false)
		return err == nil && len(ms) == 1 && ms[0].State == machine.Creating
	})
	close(goOn)
	if err := <-granted; err != nil {
		t.Fatal(err)
	}
}

// TestStartWaitsForCommitWithoutBootID: numbers cannot be passed over then.
func TestStartWaitsForCommitWithoutBootID(t *testing.T) {
	started := make(chan struct{}, 1)
	rt := fake.New(fake.Options{After: func(c fake.Call) error {
		if c.Op == "start" {
			started <- struct{}{}
		}
		return nil
	}})
	j := &lateDisk{Journal: mem.New(), durable: make(chan struct{})}
	b := openOn(t, j, rt)
	j.late.Store(true)
	g := grant(id(1))
	g.NewID = true
	answered := make(chan error, 1)
	go func() { _, err := b.Grant(t.Context(), g); answered <- err }()
	j.durable <- struct{}{} // the grant's commit, which nobody has gone ahead of
	if err := <-answered; err != nil || len(started) != 1 {
		t.Errorf("%v, %d starts", err, len(started))
	}
	j.late.Store(false)
	close(j.durable)
}

// TestForgottenMachineIsPreparedAgain: it was made and stopped long ago, and its directory is lost.
func TestForgottenMachineIsPreparedAgain(t *testing.T) {
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
