package health

import (
	"container/heap"
	"context"
	"crypto/x509"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/machine"
)

// Bounds of what is asked at once.
const (
	maxAsks    = 256
	maxAppAsks = 32
)

// The pace.
const (
	// Until a check passes for the first time it is asked again after an eighth of the time since the start, so that
	// who waits for the machine waits for no more than that.
	firstWait = 5 * time.Millisecond // at least
	busyWait  = 250 * time.Millisecond
	// output that changes alone is reported no more often than this
	outputEvery = 10 * time.Second
	// One failure after a success is not reported, but the check is made again soon: two in a row are.
	againWait = time.Second
	failures  = 2
	// Soon leaves so long between two answers of a program. A port at which nothing listens yet is tried at each call,
	// which costs next to nothing.
	soonAgain = 5 * time.Millisecond
	// A program that has just been started listens nowhere, which is not worth a look where it does.
	explainAfter = time.Second
	// For so long after the start such a failure is reported as a miss, so that a rollout sees which fail now and then.
	trial = 10 * time.Minute
)

// Options make a Checker. Dial and Report are needed.
type Options struct {
	// Dial connects to a port of a machine, and to nothing else.
	Dial func(ctx context.Context, m *machine.Machine, port int) (net.Conn, error)
	// Explain says why nothing listens at a port, given the error of Dial; that costs ms of CPU. nil: nobody knows
	Explain func(m *machine.Machine, port int, err error) error
	// Report takes what checks have said that is news. It must not wait for the Checker.
	Report func([]lifecycle.CheckResult)
	Roots  *x509.CertPool // that machines' certificates are verified by; nil: the system's
}

// Checker checks machines. Its methods may be called from many goroutines.
type Checker struct {
	o    Options
	wake chan struct{}
	asks sync.WaitGroup

	mu       sync.Mutex
	machines map[string]*watched
	due      schedule
	asking   int            // goroutines
	byApp    map[string]int // of them
}

// watched is one attempt of a machine that is checked.
type watched struct {
	m       *machine.Machine // as it was last published
	attempt uint64
	began   time.Time
	checks  []*check
}

// check is one check of an attempt.
type check struct {
	machine.HealthCheck
	of       *watched
	at       time.Time // when it is due
	index    int       // in the schedule; -1: it is not there, as it is asking or over
	passed   bool      // at least once
	failed   int       // so often in a row
	reported time.Time
	ended    time.Time // when it last said something
	refused  bool      // which was that nothing listens
	because  error     // why, as it was found at sought; zero: it was not looked for since it passed
	sought   time.Time
	soon     bool // Soon was called while it asked
	over     bool // the attempt is not checked any more
}

// New makes a Checker that has nothing to check.
func New(o Options) *Checker {
	return &Checker{o: o, wake: make(chan struct{}, 1), machines: map[string]*watched{}, byApp: map[string]int{}}
}

// Set says that a machine, as it is now published, is to be checked, and which attempt that is; 0: it is not.
func (c *Checker) Set(m *machine.Machine, attempt uint64) {
	if attempt == 0 || m.Config == nil || !m.Config.HasChecks() {
		c.Forget(m.ID)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.machines[m.ID]
	if w != nil && w.attempt == attempt {
		w.m = m
		return
	}
	c.forgetMachine(m.ID)
	now := time.Now()
	w = &watched{m: m, attempt: attempt, began: now}
	c.machines[m.ID] = w
	for _, h := range m.Config.HealthChecks() {
		ch := &check{HealthCheck: h, of: w, at: now}
		if w.publishedCheck(h.Name).Status == machine.CheckPassing { // before souk started: there may be thousands
			ch.passed, ch.at = true, now.Add(rand.N(h.Interval))
		}
		w.checks = append(w.checks, ch)
		heap.Push(&c.due, ch)
	}
	c.poke()
}

// Soon has the checks of a machine that do not pass made at once, for who waits for it. A check that is asking just
// then is made once more, since its answer may be of before.
func (c *Checker) Soon(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.machines[id]
	if w == nil {
		return
	}
	now := time.Now()
	for _, ch := range w.checks {
		if w.publishedCheck(ch.Name).Status == machine.CheckPassing {
			continue
		}
		if ch.index < 0 {
			ch.soon = true
		} else if at := ch.soonestAgain(now); ch.at.After(at) {
			ch.at = at
			heap.Fix(&c.due, ch.index)
		}
	}
	c.poke()
}

// soonestAgain returns when a check may be made again for Soon.
func (ch *check) soonestAgain(now time.Time) time.Time {
	if at := ch.ended.Add(soonAgain); !ch.refused && at.After(now) {
		return at
	}
	return now
}

// Forget says that a machine is not to be checked.
func (c *Checker) Forget(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forgetMachine(id)
}

// forgetMachine is called with the lock.
func (c *Checker) forgetMachine(id string) {
	w := c.machines[id]
	if w == nil {
		return
	}
	delete(c.machines, id)
	for _, ch := range w.checks {
		ch.over = true
		if ch.index >= 0 {
			heap.Remove(&c.due, ch.index)
		}
	}
}

func (c *Checker) poke() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Run checks until ctx ends.
func (c *Checker) Run(ctx context.Context) {
	defer c.asks.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		timer.Reset(c.startDue(ctx, time.Now()))
		select {
		case <-ctx.Done():
			return
		case <-c.wake:
		case <-timer.C:
		}
	}
}

// startDue asks what is due, and returns how long nothing else is.
func (c *Checker) startDue(ctx context.Context, now time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.due) > 0 && ctx.Err() == nil {
		ch := c.due[0]
		if wait := ch.at.Sub(now); wait > 0 {
			return wait
		}
		app := ch.of.m.App
		if c.asking >= maxAsks || c.byApp[app] >= maxAppAsks {
			ch.at = now.Add(busyWait + rand.N(busyWait))
			heap.Fix(&c.due, 0)
			continue
		}
		heap.Pop(&c.due)
		c.asking++
		c.byApp[app]++
		m := ch.of.m
		c.asks.Go(func() {
			v, refused := c.askOnce(ctx, m, &ch.HealthCheck)
			if refused != nil {
				v = failedVerdict(&ch.HealthCheck, c.whyRefused(ch, m, refused))
			}
			c.finishCheck(ctx, ch, app, v, refused != nil)
		})
	}
	return time.Hour
}

// finishCheck takes what a check has said, reports it where it is news, and plans the next.
func (c *Checker) finishCheck(ctx context.Context, ch *check, app string, v verdict, refused bool) {
	news, result := c.recordResult(ctx, ch, app, v, refused)
	if news {
		c.o.Report([]lifecycle.CheckResult{result})
	}
}

// whyRefused returns why nothing listens at a check's port. It looks once in outputEvery; not in the first second, and
// not in the grace.
func (c *Checker) whyRefused(ch *check, m *machine.Machine, refused error) error {
	c.mu.Lock()
	began, sought, because := ch.of.began, ch.sought, ch.because
	c.mu.Unlock()
	now := time.Now()
	switch {
	case c.o.Explain == nil || now.Sub(began) < max(ch.Grace, explainAfter):
		return refused
	case now.Sub(sought) < outputEvery:
		return because
	}
	because = c.o.Explain(m, ch.Port, refused)
	c.mu.Lock()
	defer c.mu.Unlock()
	ch.sought, ch.because = now, because
	return because
}

func (c *Checker) recordResult(ctx context.Context, ch *check, app string, v verdict, refused bool) (
	bool, lifecycle.CheckResult) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asking--
	if c.byApp[app]--; c.byApp[app] == 0 {
		delete(c.byApp, app)
	}
	if ch.over || ctx.Err() != nil {
		return false, lifecycle.CheckResult{}
	}
	now := time.Now()
	if v.status == machine.CheckPassing {
		ch.passed, ch.failed, ch.sought = true, 0, time.Time{}
	} else {
		ch.failed++
	}
	ch.ended, ch.refused = now, refused
	ch.at = now.Add(ch.nextPause(now))
	if ch.soon && v.status != machine.CheckPassing {
		ch.at = ch.soonestAgain(now)
	}
	ch.soon = false
	heap.Push(&c.due, ch)
	c.poke()
	result := lifecycle.CheckResult{Machine: ch.of.m.ID, Attempt: ch.of.attempt, Name: ch.Name, Status: v.status,
		Output: v.output}
	switch {
	case ch.hasMissed(now):
		result.Status, result.Output, result.Missed = machine.CheckPassing, "", v.output
	case !ch.isNews(now, v):
		return false, lifecycle.CheckResult{}
	}
	ch.reported = now
	return true, result
}

// nextPause returns how long a check waits after it has said something.
func (ch *check) nextPause(now time.Time) time.Duration {
	if ch.passed && ch.failed > 0 && ch.failed < failures {
		return min(againWait, ch.Interval)
	}
	if ch.passed {
		return ch.Interval - rand.N(ch.Interval/10) // what was started together is not asked together for ever
	}
	return min(max(now.Sub(ch.of.began)/8, firstWait), ch.Interval)
}

// hasMissed reports whether a check that passes has failed once: no status changes for that. Of a machine that has been
// up for long it is none.
func (ch *check) hasMissed(now time.Time) bool {
	since := now.Sub(ch.of.began)
	return ch.failed == 1 && since < trial && since >= ch.Grace &&
		ch.of.publishedCheck(ch.Name).Status == machine.CheckPassing
}

// isNews reports whether what a check says is to be reported: another status than is published, or another reason why it
// does not pass. One that passed must fail twice in a row. In its grace nothing counts but that it passes.
func (ch *check) isNews(now time.Time, v verdict) bool {
	if v.status != machine.CheckPassing && now.Sub(ch.of.began) < ch.Grace {
		return false
	}
	was := ch.of.publishedCheck(ch.Name)
	if was.Status == machine.CheckPassing && ch.failed > 0 && ch.failed < failures {
		return false
	}
	if was.Status != v.status || was.Output == machine.CheckWaits {
		return true
	}
	return v.status != machine.CheckPassing && was.Output != v.output && now.Sub(ch.reported) >= outputEvery
}

// publishedCheck returns what is published of a check.
func (w *watched) publishedCheck(name string) (none machine.Check) {
	at := slices.IndexFunc(w.m.Checks, func(ch machine.Check) bool { return ch.Name == name })
	if at < 0 {
		return none
	}
	return w.m.Checks[at]
}

// schedule is a heap of checks by when they are due.
type schedule []*check

func (s schedule) Len() int           { return len(s) }
func (s schedule) Less(i, j int) bool { return s[i].at.Before(s[j].at) }
func (s schedule) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].index, s[j].index = i, j
}

// Push is heap.Interface's.
func (s *schedule) Push(x any) {
	ch, ok := x.(*check)
	if !ok {
		panic("health: what is scheduled is no check")
	}
	ch.index = len(*s)
	*s = append(*s, ch)
}

// Pop is heap.Interface's.
func (s *schedule) Pop() any {
	last := len(*s) - 1
	ch := (*s)[last]
	(*s)[last] = nil
	*s = (*s)[:last]
	ch.index = -1
	return ch
}
