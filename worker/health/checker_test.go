package health

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/machine"
)

// bed is a checker, a worker that publishes what it reports, and machines that accept connections or do not.
type bed struct {
	t     *testing.T
	c     *Checker
	began time.Time

	mu       sync.Mutex
	machines map[string]*machine.Machine
	attempts map[string]uint64
	up       map[string]bool // accepts connections
	hangs    map[string]bool // by app
	log      []string        // what was reported
	slow     time.Duration   // that each dial takes
	dialled  []time.Duration
	reason   string          // why nothing listens; "": nobody knows
	sought   []time.Duration // when it was looked why nothing listens
	dialling map[string]int  // by app
	most     map[string]int  // of dialling
}

func newBed(t *testing.T) *bed {
	b := &bed{t: t, began: time.Now(), machines: map[string]*machine.Machine{}, attempts: map[string]uint64{},
		up: map[string]bool{}, hangs: map[string]bool{}, dialling: map[string]int{}, most: map[string]int{}}
	b.c = New(Options{Dial: b.dial, Explain: b.explain, Report: b.report})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { b.c.Run(ctx); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
	return b
}

func (b *bed) dial(ctx context.Context, m *machine.Machine, _ int) (net.Conn, error) {
	b.mu.Lock()
	b.dialled = append(b.dialled, time.Since(b.began))
	b.dialling[m.App]++
	b.most[m.App] = max(b.most[m.App], b.dialling[m.App])
	up, hangs, slow := b.up[m.ID], b.hangs[m.App], b.slow
	b.mu.Unlock()
	if slow > 0 {
		<-time.After(slow)
	}
	if hangs {
		<-ctx.Done()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.dialling[m.App]--
	switch {
	case hangs:
		return nil, ctx.Err()
	case !up:
		return nil, syscall.ECONNREFUSED
	}
	near, far := net.Pipe()
	return near, far.Close()
}

func (b *bed) explain(_ *machine.Machine, _ int, err error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sought = append(b.sought, time.Since(b.began))
	if b.reason != "" {
		return errors.New(b.reason)
	}
	return err
}

// wasSought returns when it was looked why nothing listens, since it was last called.
func (b *bed) wasSought() (out []time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	out, b.sought = b.sought, nil
	return out
}

func (b *bed) report(list []lifecycle.CheckResult) {
	b.mu.Lock()
	for _, c := range list {
		if c.Missed != "" {
			b.log = append(b.log, c.Machine+" missed: "+c.Missed)
			continue
		}
		b.log = append(b.log, c.Machine+" "+c.Status)
		next := *b.machines[c.Machine]
		next.Checks = []machine.Check{{Name: c.Name, Status: c.Status, Output: c.Output}}
		b.machines[c.Machine] = &next
	}
	b.mu.Unlock()
	for _, c := range list {
		b.publish(c.Machine)
	}
}

func (b *bed) publish(id string) {
	b.mu.Lock()
	m, attempt := b.machines[id], b.attempts[id]
	b.mu.Unlock()
	b.c.Set(m, attempt)
}

// start has a machine begin an attempt, with one check.
func (b *bed) start(app, id string, attempt uint64, ch machine.ServiceCheck) {
	b.mu.Lock()
	b.attempts[id] = attempt
	b.machines[id] = &machine.Machine{ID: id, App: app, Config: &machine.Config{Services: []machine.Service{
		{InternalPort: 80, Checks: []machine.ServiceCheck{ch}}}},
		Checks: []machine.Check{{Name: "servicecheck-00-tcp-80", Status: machine.CheckCritical,
			Output: machine.CheckWaits}}}
	b.mu.Unlock()
	b.publish(id)
}

func (b *bed) set(id string, up bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.up[id] = up
}

// pass lets time go by and returns what was reported.
func (b *bed) pass(d time.Duration) (out string) {
	<-time.After(d)
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	out, b.log = strings.Join(b.log, ", "), nil
	return out
}

func want(t *testing.T, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("reported was %q, not %q", got, want)
	}
}

func seconds(n int) *machine.Duration {
	return &machine.Duration{Duration: time.Duration(n) * time.Second}
}

// TestStartingMachineIsCheckedOften: a starting machine is checked at once and often until it passes, then at its
// interval. In its grace only a pass counts.
func TestStartingMachineIsCheckedOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.start("a", "m", 1, machine.ServiceCheck{Interval: seconds(10), GracePeriod: seconds(3)})
		want(t, b.pass(100*time.Millisecond), "")
		b.set("m", true)
		want(t, b.pass(100*time.Millisecond), "m passing")
		b.mu.Lock()
		for i, at := range b.dialled {
			if i == 0 && at != 0 {
				t.Errorf("it was first asked after %v", at)
			} else if i > 0 && at-b.dialled[i-1] != max(firstWait, b.dialled[i-1]/8) {
				t.Errorf("it was asked after %v", b.dialled)
			}
		}
		b.dialled = nil
		b.mu.Unlock()
		want(t, b.pass(99*time.Second), "")
		b.mu.Lock()
		if n := len(b.dialled); n < 9 || n > 11 {
			t.Errorf("it was asked %d times in 100 s", n)
		}
		b.mu.Unlock()
	})
}

// TestFailingCheckIsCriticalAfterItsGrace: a check that never passes is critical when its grace ends, and is repeated
// ever less often.
func TestFailingCheckIsCriticalAfterItsGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.start("a", "m", 1, machine.ServiceCheck{Interval: seconds(2), GracePeriod: seconds(3)})
		want(t, b.pass(2999*time.Millisecond), "")
		want(t, b.pass(400*time.Millisecond), "m critical")
		want(t, b.pass(100*time.Second), "")
		b.mu.Lock()
		if n := len(b.dialled); n > 130 {
			t.Errorf("it was asked %d times", n)
		}
		b.mu.Unlock()
	})
}

// TestFlappingCheckReportsEachChange: each change of a check is reported, and a repeated result is not.
func TestFlappingCheckReportsEachChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.set("m", true)
		b.start("a", "m", 1, machine.ServiceCheck{Interval: seconds(1), GracePeriod: seconds(0)})
		want(t, b.pass(2*time.Second), "m passing")
		b.set("m", false)
		want(t, b.pass(3*time.Second), "m missed: port 80: connection refused, m critical") // twice in a row
		b.set("m", true)
		want(t, b.pass(3*time.Second), "m passing")
		b.start("a", "m", 2, machine.ServiceCheck{Interval: seconds(1)}) // it has been restarted
		want(t, b.pass(time.Second), "m passing")
		b.c.Set(b.machines["m"], 0) // it has been stopped
		b.set("m", false)
		want(t, b.pass(time.Minute), "")
		if len(b.c.machines) > 0 || len(b.c.due) > 0 {
			t.Error("it is still known")
		}
	})
}

// TestSingleFailureIsNotCritical: a check that fails every second time takes its machine out not once, which is told as a miss
// in the machine's first minutes, and one that fails for good is critical a second after its first failure.
func TestSingleFailureIsNotCritical(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.set("m", true)
		b.start("a", "m", 1, machine.ServiceCheck{Interval: seconds(10), GracePeriod: seconds(0)})
		want(t, b.pass(time.Second), "m passing")
		asked := func() int { b.mu.Lock(); defer b.mu.Unlock(); return len(b.dialled) }
		missed := 0
		for up, n := false, asked(); time.Since(b.began) < trial+5*time.Minute; n = asked() {
			b.set("m", up)
			for asked() == n {
				said := b.pass(100 * time.Millisecond)
				if said != "" && !up && time.Since(b.began) < trial+time.Second {
					missed++
					want(t, said, "m missed: port 80: connection refused")
					continue
				}
				want(t, said, "")
			}
			up = !up
		}
		if missed < 40 {
			t.Errorf("it is said to have missed %d times", missed)
		}
		b.set("m", false)
		want(t, b.pass(10*time.Second+againWait), "m critical")
		b.set("m", true)
		want(t, b.pass(10*time.Second), "m passing") // one success is enough
	})
}

// TestCheckUsesARoutedHostName: a check's host name is one that the machine's requests may have.
func TestCheckUsesARoutedHostName(t *testing.T) {
	m := &machine.Machine{App: "shop", Config: &machine.Config{Services: []machine.Service{
		{InternalPort: 80}, {InternalPort: 81, Hosts: []string{"a"}},
		{InternalPort: 82, Hosts: []string{"a", "a.example"}}}}}
	for port, want := range map[int]string{80: "shop", 81: "a", 82: "a.example", 83: "shop"} {
		req, err := checkRequest(m, &machine.HealthCheck{Port: port, Method: "GET", Path: "/"})
		if err != nil || req.Host != want {
			t.Errorf("%d: %q, %v", port, req.Host, err)
		}
	}
}

// TestHangingChecksDelayOnlyTheirApp: those of another are made in time.
func TestHangingChecksDelayOnlyTheirApp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.hangs["bad"] = true
		for i := range 500 {
			b.start("bad", fmt.Sprint("bad", i), 1, machine.ServiceCheck{Timeout: seconds(60),
				GracePeriod: seconds(3600)})
		}
		b.pass(time.Minute)
		b.set("m", true)
		b.start("good", "m", 1, machine.ServiceCheck{})
		if got := b.pass(10 * time.Millisecond); !strings.HasSuffix(got, "m passing") {
			t.Errorf("reported was %q", got)
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.most["bad"] != maxAppAsks {
			t.Errorf("%d at once are asked of one app", b.most["bad"])
		}
	})
}

// TestWaitingChecksUseNoGoroutine: thousands of checks that are not due cost none.
func TestWaitingChecksUseNoGoroutine(t *testing.T) {
	b := newBed(t)
	before := runtime.NumGoroutine()
	for i := range 5000 {
		id := fmt.Sprint(i)
		m := &machine.Machine{ID: id, App: id, Config: &machine.Config{Services: []machine.Service{{InternalPort: 80,
			Checks: []machine.ServiceCheck{{Interval: seconds(3600)}}}}},
			Checks: []machine.Check{{Name: "servicecheck-00-tcp-80", Status: machine.CheckPassing}}}
		b.c.Set(m, 1)
	}
	if n := runtime.NumGoroutine() - before; n > 100 {
		t.Errorf("%d goroutines more", n)
	}
}

// TestAwaitedMachineIsCheckedAtOnce: a check that does not pass is made at once where somebody waits for its machine, and one that passes is not.
func TestAwaitedMachineIsCheckedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.start("a", "m", 1, machine.ServiceCheck{Interval: &machine.Duration{Duration: 10 * time.Second},
			GracePeriod: &machine.Duration{}})
		b.pass(time.Minute)
		b.set("m", true)
		b.c.Soon("m")
		b.c.Soon("none")
		if got := b.pass(time.Millisecond); got != "m passing" {
			t.Errorf("a machine that somebody waits for: %q", got)
		}
		asked := len(b.dialled)
		b.c.Soon("m")
		if b.pass(time.Millisecond); len(b.dialled) != asked {
			t.Error("a check that passes is made sooner")
		}
	})
}

// TestRunningCheckIsRepeatedWhenAwaited: a check that is asking when its port begins to accept is made once more, at once.
func TestRunningCheckIsRepeatedWhenAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.slow = 40 * time.Millisecond
		b.start("a", "m", 1, machine.ServiceCheck{Interval: seconds(10), GracePeriod: seconds(0)})
		want(t, b.pass(20*time.Millisecond), "") // it was refused, and does not know yet
		b.slow = 0
		b.set("m", true)
		b.c.Soon("m")
		want(t, b.pass(20*time.Millisecond), "m critical, m passing")
		if len(b.dialled) != 2 || b.dialled[1] != 40*time.Millisecond {
			t.Errorf("it was asked after %v", b.dialled)
		}
	})
}

// TestAwaitedCheckRateIsBounded: a check that somebody waits for is made as often as they say while nothing listens, and no more
// often than every 5 ms where a program answers.
func TestAwaitedCheckRateIsBounded(t *testing.T) {
	for answers, most := range map[bool]int{false: 1002, true: 101} {
		synctest.Test(t, func(t *testing.T) {
			b := newBed(t)
			b.set("m", answers)
			http := "http"
			b.start("a", "m", 1, machine.ServiceCheck{Type: &http, Interval: seconds(10)})
			for range 1000 {
				b.c.Soon("m")
				want(t, b.pass(500*time.Microsecond), "")
			}
			if n := len(b.dialled); n > most || n < most*9/10 {
				t.Errorf("answers %v: it was asked %d times, and %d are its bound", answers, n, most)
			}
		})
	}
}

// TestAReasonIsSoughtWhereItIsTold: a look where a program listens instead takes a ms of CPU and more, so there is none
// while it starts, none in its grace, and then one in 10 s.
func TestFailureReasonIsLookedUpRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.reason = "it listens elsewhere"
		b.start("a", "m", 1, machine.ServiceCheck{Interval: seconds(1), GracePeriod: seconds(3)})
		b.pass(3 * time.Second)
		if at := b.wasSought(); len(at) > 0 {
			t.Errorf("it was sought after %v", at)
		}
		want(t, b.pass(30*time.Second), "m critical")
		if at := b.wasSought(); len(at) < 3 || len(at) > 4 {
			t.Errorf("it was sought after %v", at)
		}
		if out := b.machines["m"].Checks[0].Output; out != "port 80: it listens elsewhere" {
			t.Errorf("it says %q", out)
		}
		b.start("a", "m", 2, machine.ServiceCheck{Interval: seconds(1), GracePeriod: seconds(0)})
		want(t, b.pass(time.Second), "m critical")
		if at := b.wasSought(); len(at) > 0 {
			t.Errorf("of one that has just started it was sought after %v", at)
		}
		want(t, b.pass(20*time.Second), "m critical") // with the reason
	})
}
