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

// Bounds of concurrent checks.
const (
	maxAsks    = 256
	maxAppAsks = 32
)

// Times between checks.
const (
	// Until a check first passes, it is repeated after an eighth of the time since the start, so that nobody waits
	// much longer than the machine takes.
	firstWait = 5 * time.Millisecond // at least
	busyWait  = 250 * time.Millisecond
	// how often at most a change of the output alone is reported
	outputEvery = 10 * time.Second
	// One failure after a success is not reported, but the check is repeated soon: two failures in a row are reported.
	againWait = time.Second
	failures  = 2
	// Soon leaves this time between two answers of a program. A port at which nothing listens yet is tried at each
	// call, which costs next to nothing.
	soonAgain = 5 * time.Millisecond
	// A program that has just started may not listen yet; before this time the reason is not looked up.
	explainAfter = time.Second
	// For this long after the start such a failure is reported as a miss, so that a rollout sees checks that fail now
	// and then.
	trial = 10 * time.Minute
)

// Options are the dependencies of a Checker. Dial and Report are required.
type Options struct {
	// Dial connects to a port of a machine, and to nothing else.
	Dial func(ctx context.Context, m *machine.Machine, port int) (net.Conn, error)
	// Explain returns why nothing listens at a port, given Dial's error; it costs milliseconds of CPU. nil: no
	// explanation
	Explain func(m *machine.Machine, port int, err error) error
	// Report gets the results that are news. It must not wait for the Checker.
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
	asking   int            // checks in progress
	byApp    map[string]int // checks in progress, by app
}

// watched is one attempt of a machine that is checked.
type watched struct {
	m       *machine.Machine // as last published
	attempt uint64
	began   time.Time
	checks  []*check
}

// check is one check of an attempt.
type check struct {
	machine.HealthCheck
	of       *watched
	at       time.Time // when it is due
	index    int       // in the schedule; -1: not scheduled, as it is in progress or over
	passed   bool      // at least once
	failed   int       // times in a row
	reported time.Time
	ended    time.Time // when it last ended
	refused  bool      // in that result, nothing listened
	because  error     // why nothing listens, as found at sought; zero: not looked up since it passed
	sought   time.Time
	soon     bool // Soon was called while it was in progress
	over     bool // the attempt is not checked any more
}

// New makes a Checker that has nothing to check.
func New(o Options) *Checker {
	return &Checker{o: o, wake: make(chan struct{}, 1), machines: map[string]*watched{}, byApp: map[string]int{}}
}

// Set makes a machine, as now published, be checked; attempt is its running attempt, 0: it is not checked.
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

// Soon repeats, at once, the checks of a machine that do not pass, for a caller that waits. A check in progress is
// repeated once more, since its answer may be outdated.
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

// soonestAgain returns when Soon may next repeat a check.
func (ch *check) soonestAgain(now time.Time) time.Time {
	if at := ch.ended.Add(soonAgain); !ch.refused && at.After(now) {
		return at
	}
	return now
}

// Forget ends the checks of a machine.
func (c *Checker) Forget(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forgetMachine(id)
}

// forgetMachine is Forget with the lock held.
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

// startDue starts the due checks, and returns how long until the next is due.
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

// finishCheck handles the result of a check: it reports it if it is news, and plans the next.
func (c *Checker) finishCheck(ctx context.Context, ch *check, app string, v verdict, refused bool) {
	news, result := c.recordResult(ctx, ch, app, v, refused)
	if news {
		c.o.Report([]lifecycle.CheckResult{result})
	}
}

// whyRefused returns why nothing listens at a check's port. It looks this up once in outputEvery, but not in the first
// second or in the grace.
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

// nextPause returns how long a check pauses after a result.
func (ch *check) nextPause(now time.Time) time.Duration {
	if ch.passed && ch.failed > 0 && ch.failed < failures {
		return min(againWait, ch.Interval)
	}
	if ch.passed {
		return ch.Interval - rand.N(ch.Interval/10) // so that checks that started together drift apart
	}
	return min(max(now.Sub(ch.of.began)/8, firstWait), ch.Interval)
}

// hasMissed reports whether a passing check has failed once, which does not change its status. For a machine that has
// been up for long, it does not count.
func (ch *check) hasMissed(now time.Time) bool {
	since := now.Sub(ch.of.began)
	return ch.failed == 1 && since < trial && since >= ch.Grace &&
		ch.of.publishedCheck(ch.Name).Status == machine.CheckPassing
}

// isNews reports whether a result is to be reported: it differs from the published status, or in the reason for a
// failure. A check that passed must fail twice in a row. In its grace only a pass counts.
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

// publishedCheck returns a check as published.
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
