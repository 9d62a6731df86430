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

// pulse tells the time in which something could be done from that in which it could not, since souk itself was stopped
// (a paused virtual machine, SIGSTOP, a host that thrashes) or the runtime did not answer. It beats a few times each
// period; what lies between two beats that are more than a period apart is missed. Once a period the runtime is asked
// something; from a question that has had no answer for a period, all is missed until there is one. The loop is asked
// likewise, so that one that stands still can be told.
type pulse struct {
	period  time.Duration
	worker  cluster.WorkerID
	runtime func(context.Context) error // nil: it is not asked
	loop    func(context.Context) error

	mu     sync.Mutex
	last   time.Time // beat
	missed time.Duration
	asking map[string]bool      // whom, now
	asked  map[string]time.Time // whom, without an answer since then
}

// Who is asked.
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

// askInBackground asks one of the two, unless a question to it is under way. An error is an answer, but for one that
// has taken long.
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
			gap = now.Sub(since) // what was waited for in vain before it was known
		}
		p.missed += gap
	}
}

// missedSinceAsked returns the time that was missed since it was last asked.
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

// whySilent returns why a worker has not been able to do anything for longer than d; nil when it was.
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

// examineNow makes a round trip through the loop and one through the runtime, now.
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
			err = fault.New(fault.Timeout, fault.CodeSilent, "no answer in %v", examineTime)
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
