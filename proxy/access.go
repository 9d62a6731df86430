package proxy

import (
	"bufio"
	"encoding/json"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/fault"
)

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1e3 }

const maxField = 256 // bytes of what a client chose, in the log

// recordExchange keeps what became of a request.
func (p *Proxy) recordExchange(x *exchange) {
	took := time.Since(x.began)
	p.metrics.countRequest(x.key.app, x.code, took)
	if x.err != nil {
		p.metrics.refused.WithLabelValues(string(fault.CodeOf(x.err))).Inc()
	}
	worth := x.err != nil || x.woke != nil || x.replays > 0
	if worth && x.key.app == "" && !p.strays.allowLine(x.began) { // a scanner asks for thousands of names
		return
	}
	if !p.access.wantsLine(worth) && !worth {
		return
	}
	a := api.ProxiedRequest{Time: x.began, ID: x.id, Client: x.client, Proto: x.r.Proto,
		Method: fault.Clip(x.r.Method, 20), Host: fault.Clip(x.r.Host, maxField),
		Path: fault.Clip(x.r.URL.Path, maxField), App: x.key.app, Code: x.code, Bytes: x.bytes,
		TookMS: milliseconds(took),
		HeldMS: milliseconds(x.held), Replays: x.replays}
	if x.backend != nil {
		a.Machine, a.Worker = x.backend.Machine, x.backend.worker
	}
	if !x.first.IsZero() {
		a.FirstMS = milliseconds(x.first.Sub(x.began))
	}
	if x.woke != nil {
		a.StartMS, a.ReadyMS = milliseconds(x.woke.Start), milliseconds(x.woke.Ready)
	}
	if x.err != nil {
		f := fault.As(x.err)
		a.Error, a.Why = string(f.Code), f.Text
	}
	if worth {
		p.recent.addRequest(a)
	}
	p.access.queueLine(logLine{a, worth})
}

// strayLines is how many requests for no app are in the log in a second.
const strayLines = 20

// strays bounds the lines of requests that are for no app. All are counted in the metrics.
type strays struct {
	mu     sync.Mutex
	second time.Time
	n      int
}

func (s *strays) allowLine(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.second) >= time.Second {
		s.second, s.n = now, 0
	}
	s.n++
	return s.n <= strayLines
}

// accessLog writes log lines in the background: a slow reader of the log delays no request. Lines that do not fit into
// the buffer are dropped and counted.
type accessLog struct {
	w      io.Writer
	sample float64
	lines  chan logLine
	quit   chan struct{} // closed when no more lines are written
	done   chan struct{}
	lost   atomic.Int64
	once   sync.Once
}

const accessBuffer = 4096 // lines

// logLine is one request as it is logged.
type logLine struct {
	api.ProxiedRequest
	soon bool // a failure, wake or replay: written at once, so that a user finds it
}

func newAccessLog(w io.Writer, sample float64) *accessLog {
	a := &accessLog{w: w, sample: sample}
	if w == nil {
		return a
	}
	if sample <= 0 || sample > 1 {
		a.sample = 1
	}
	a.lines, a.quit, a.done = make(chan logLine, accessBuffer), make(chan struct{}), make(chan struct{})
	go a.run()
	return a
}

// wantsLine reports whether a request is to be in the log.
func (a *accessLog) wantsLine(worth bool) bool {
	return a.w != nil && (worth || a.sample >= 1 || rand.Float64() < a.sample)
}

func (a *accessLog) queueLine(x logLine) {
	if a.w == nil {
		return
	}
	select {
	case a.lines <- x:
	default:
		a.lost.Add(1)
	}
}

// together is how long a line waits at most to be written with others: one write per line would cost a busy proxy 2% of
// its work.
const together = 20 * time.Millisecond

func (a *accessLog) run() {
	defer close(a.done)
	bw := bufio.NewWriterSize(a.w, 64<<10)
	enc := json.NewEncoder(bw)
	var due <-chan time.Time // nil: nothing waits
	for {
		select {
		case x := <-a.lines:
			_ = enc.Encode(x.ProxiedRequest) // a disk that is full costs lines, and nothing else
			switch {
			case x.soon:
				_ = bw.Flush()
			case due == nil:
				due = time.After(together)
			}
		case <-due:
			due = nil
			_ = bw.Flush()
		case <-a.quit:
			if len(a.lines) == 0 {
				_ = bw.Flush()
				return
			}
		}
	}
}

func (a *accessLog) close() {
	a.once.Do(func() {
		if a.w != nil {
			close(a.quit)
			<-a.done
		}
	})
}

// recent holds the newest requests that somebody may ask about: those that woke a machine, were replayed or failed.
type recent struct {
	mu   sync.Mutex
	list []api.ProxiedRequest
	next int
}

const maxRecent = 1024

func (r *recent) addRequest(a api.ProxiedRequest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.list) < maxRecent {
		r.list = append(r.list, a)
		return
	}
	r.list[r.next] = a
	r.next = (r.next + 1) % maxRecent
}

// Recent returns a request that woke a machine, was replayed or failed, by its id, while it is among the newest 1,024 of
// these.
func (p *Proxy) Recent(id string) (api.ProxiedRequest, bool) {
	p.recent.mu.Lock()
	defer p.recent.mu.Unlock()
	for _, a := range p.recent.list {
		if a.ID == id {
			return a, true
		}
	}
	return api.ProxiedRequest{}, false
}
