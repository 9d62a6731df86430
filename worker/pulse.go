package worker

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime"
)

// pulse separates the time in which the worker could act from the time in which it could not, because souk itself was
// stopped (a paused virtual machine, SIGSTOP, a thrashing host) or the runtime did not answer. It beats a few times
// each period; the time between two beats more than a period apart is missed. Once a period it asks the runtime
// something; while a question is unanswered for longer than a period, all time is missed. It asks the loop likewise,
// so that a loop that hangs is noticed.
type pulse struct {
	period  time.Duration
	worker  cluster.WorkerID
	runtime func(context.Context) error // nil: it is not asked
	loop    func(context.Context) error

	mu     sync.Mutex
	last   time.Time // time of the last beat
	missed time.Duration
	asking map[string]bool      // who is being asked now
	asked  map[string]time.Time // who has not answered, and since when
}

// The parties that are asked.
const (
	asksLoop    = "loop"
	asksRuntime = "runtime"
)

const beatsPerPeriod = 4

func newPulse(l *loop) *pulse {
	p := &pulse{period: l.o.Pulse, worker: l.o.ID, last: time.Now(), asking: map[string]bool{},
		asked: map[string]time.Time{}}
	if rt, ok := l.o.Runtime.(runtime.Pinger); ok {
		p.runtime = rt.Ping
	}
	p.loop = func(ctx context.Context) error { return l.inspectState(ctx, func(time.Time) {}) }
	return p
}

// run beats until ctx ends.
func (p *pulse) run(ctx context.Context) {
	var asking sync.WaitGroup
	defer asking.Wait()
	beats := time.NewTicker(p.period / beatsPerPeriod)
	defer beats.Stop()
	for k := 0; ; k++ {
		select {
		case <-ctx.Done():
			return
		case <-beats.C:
		}
		p.countBeat(time.Now())
		if k%beatsPerPeriod == 0 {
			p.askInBackground(ctx, &asking, asksLoop, p.loop)
			p.askInBackground(ctx, &asking, asksRuntime, p.runtime)
		}
	}
}

// askInBackground asks one of the two, unless a question to it is open. An error counts as an answer, unless it took
// long.
func (p *pulse) askInBackground(ctx context.Context, asking *sync.WaitGroup, who string,
	f func(context.Context) error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.asking[who] || f == nil {
		return
	}
	p.asking[who] = true
	now := time.Now()
	if _, owes := p.asked[who]; !owes {
		p.asked[who] = now
	}
	asking.Go(func() {
		err := f(ctx)
		p.countBeat(time.Now())
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.asking, who)
		if err == nil || time.Since(now) <= p.period {
			delete(p.asked, who)
		}
	})
}

// countBeat counts the time since the last beat.
func (p *pulse) countBeat(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	gap := now.Sub(p.last)
	if gap <= 0 {
		return
	}
	before := p.last
	p.last = now
	since, owes := p.asked[asksRuntime]
	switch {
	case gap > p.period:
		p.missed += gap
	case owes && now.Sub(since) > p.period:
		if before.Sub(since) <= p.period {
			gap = now.Sub(since) // the time waited in vain before it counted as missed
		}
		p.missed += gap
	}
}

// missedSinceAsked returns the time missed since its last call.
func (p *pulse) missedSinceAsked(now time.Time) time.Duration {
	p.countBeat(now)
	p.mu.Lock()
	defer p.mu.Unlock()
	d := p.missed
	p.missed = 0
	return d
}

// unready is after how many periods without an answer a worker counts as not ready. One is too few on a busy host.
const unready = 5

// whySilent returns why a worker has been unable to act for longer than d; nil if it was able.
func (p *pulse) whySilent(d time.Duration) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, who := range []string{asksLoop, asksRuntime} {
		since, owes := p.asked[who]
		if ago := time.Since(since); owes && ago > d {
			return fault.New(fault.Unavailable, fault.CodeSilent, "the %s of worker %s has not answered for %v",
				who, p.worker, ago.Round(time.Second/10))
		}
	}
	return nil
}

// examineTime bounds each round trip of an examination.
const examineTime = 5 * time.Second

// examineNow makes a round trip through the loop and one through the runtime.
func (p *pulse) examineNow(ctx context.Context) (out []cluster.Finding) {
	for _, x := range []struct {
		name, advice string
		ask          func(context.Context) error
	}{
		{"worker: its loop answers", "nothing is begun at this worker; see its log, then restart souk there " +
			"(machines run on)", p.loop},
		{"worker: its runtime answers", "nothing starts, ends or is waited for at this worker; see whether its " +
			"reaper is stopped, and end it with SIGKILL if it stays so: souk starts another one, and machines run on",
			p.runtime},
	} {
		if x.ask == nil {
			continue
		}
		began := time.Now()
		bounded, cancel := context.WithTimeout(ctx, examineTime)
		done := make(chan error, 1)
		go func() { done <- x.ask(bounded) }()
		var err error
		select {
		case err = <-done:
		case <-bounded.Done():
			err = fault.New(fault.Timeout, fault.CodeSilent, "no answer came within %v", examineTime)
		}
		cancel()
		f := cluster.Finding{Name: x.name, OK: err == nil,
			Have: "in " + time.Since(began).Round(10*time.Microsecond).String()}
		if err != nil {
			f.Have, f.Advice = fmt.Sprint(err), x.advice
		}
		out = append(out, f)
	}
	return out
}
