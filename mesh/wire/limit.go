package wire

import (
	"sync"
	"time"

	"github.com/soukhq/souk/fault"
)

// Limits bound concurrent calls and connections of a server; each caller may use half of each.
type Limits struct {
	Reads       int // calls that change nothing; 0: 512
	Changes     int // grants and verbs; 0: 256
	Streams     int // watches, events, logs, commands, copies; 0: 512
	Buyers      int // connections of buyers of tasks, two of each member at most; 0: 4096
	Connections int // members' connections; 0: 4096; further ones are closed at once
	Proxied     int // connections of members' proxies, one for each request; 0: 16384
}

func (l Limits) orDefaults() Limits {
	def := func(n *int, d int) {
		if *n <= 0 {
			*n = d
		}
	}
	def(&l.Reads, 512)
	def(&l.Changes, 256)
	def(&l.Streams, 512)
	def(&l.Buyers, 4096)
	def(&l.Connections, 4096)
	def(&l.Proxied, 16384)
	return l
}

// class is the limit that a call counts against.
type class uint8

const (
	read class = iota
	change
	stream
	buyers
	classes
)

// gate counts calls or connections in progress.
type gate struct {
	mu    sync.Mutex
	most  int
	total int
	by    map[string]int // by caller; callers without calls are removed
}

func newGate(most int) *gate { return &gate{most: most, by: map[string]int{}} }

func (g *gate) enterCaller(caller string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.total >= g.most || g.by[caller] >= max(1, g.most/2) {
		return false
	}
	g.total++
	g.by[caller]++
	return true
}

func (g *gate) isFull() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.total >= g.most
}

func (g *gate) leaveCaller(caller string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.total--
	if g.by[caller]--; g.by[caller] == 0 {
		delete(g.by, caller)
	}
}

// busyWait is the advised wait before a retry: about as long as a short queue of starts takes.
const busyWait = 100 * time.Millisecond

func busyError(kind fault.Kind, id string) *fault.Error {
	return &fault.Error{Kind: kind, Code: fault.CodeBusy,
		Scope: fault.ScopeHost, Op: "wire.server", RetryAfter: busyWait,
		Text: "worker " + id + " is busy with as many calls as it takes at once; ask elsewhere, or again in a moment"}
}
