package bench

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/soukhq/souk/bench/live"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/registry"
	"github.com/soukhq/souk/mesh/gossip"
)

// memberOrder is a line that "souk bench propagation" writes to one of its members.
type memberOrder struct {
	Do   string `json:"do"` // join, change, stats
	Addr string `json:"addr,omitempty"`
	Key  string `json:"key,omitempty"`

	Memory bool `json:"memory,omitempty"` // with stats: measure memory, too, which takes the kernel some time
}

// memberLine is a line that a member writes. Times are of the host's one clock.
type memberLine struct {
	What   string        `json:"what"` // up, joined, unjoined, changed, saw, stats, member, failed
	Key    string        `json:"key,omitempty"`
	Addr   string        `json:"addr,omitempty"`
	State  string        `json:"state,omitempty"`
	Error  string        `json:"error,omitempty"`
	At     int64         `json:"at"` // Unix nanoseconds
	Alive  int           `json:"alive,omitempty"`
	Known  int           `json:"known,omitempty"` // workers whose record it has
	CPU    time.Duration `json:"cpu_ns,omitempty"`
	PSS    int64         `json:"pss_bytes,omitempty"` // proportional set size: shared memory is divided among its users
	Gossip *gossip.Stats `json:"gossip,omitempty"`
}

// MemberMain is the hidden command "souk bench-member ID KEY PACE": one member of a measured cluster, which reads
// orders from stdin and reports on stdout. It ends at the end of stdin. It reports whether the arguments are that
// command.
func MemberMain(argv []string) (mine bool, err error) {
	if len(argv) != 4 || argv[0] != "bench-member" {
		return false, nil
	}
	return true, runMember(argv[1], argv[2], argv[3])
}

type lines struct {
	mu  sync.Mutex
	out *json.Encoder
}

func (l *lines) writeLine(x memberLine) {
	if x.At == 0 {
		x.At = time.Now().UnixNano()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.out.Encode(x) // if stdout is closed, no one could receive the error
}

func runMember(id, key, pace string) error {
	knobs, known := gossip.Paces[pace]
	if !known {
		return fmt.Errorf("there is no pace %q", pace)
	}
	secret, err := base64.RawURLEncoding.DecodeString(key)
	if err != nil {
		return err
	}
	self := cluster.WorkerID(id)
	g, err := gossip.New(gossip.Options{Self: self, Role: "worker", Keys: [][]byte{secret}, Knobs: knobs()})
	if err != nil {
		return err
	}
	w := cluster.Record{
		Worker:      self,
		Region:      "local",
		State:       cluster.Ready,
		Incarnation: 1,
		Capacity:    cluster.Resources{CPU: 8000, Memory: 32 << 10},
	}
	if err := g.Begin(&w, nil); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- g.Run(ctx) }()
	out := &lines{out: json.NewEncoder(os.Stdout)}
	go followRecords(ctx, g, self, out)
	go followMembers(ctx, g, out)
	<-g.Ready()
	out.writeLine(memberLine{What: "up", Addr: g.Addr()})
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var o memberOrder
		if err := json.Unmarshal(in.Bytes(), &o); err != nil {
			break
		}
		if err := carryOut(ctx, g, self, o, out); err != nil {
			out.writeLine(memberLine{What: "failed", Error: err.Error()})
		}
	}
	cancel()
	return <-done
}

func carryOut(ctx context.Context, g *gossip.Cluster, self cluster.WorkerID, o memberOrder, out *lines) error {
	switch o.Do {
	case "join":
		if err := g.Join(ctx, []string{o.Addr}); err != nil {
			out.writeLine(memberLine{What: "unjoined", Error: err.Error()})
			return nil
		}
		out.writeLine(memberLine{What: "joined"})
	case "change":
		at := time.Now()
		err := g.AnnounceMachine(gossip.Machine{
			ID:        o.Key,
			App:       "bench",
			State:     "started",
			Instance:  o.Key,
			UpdatedAt: at,
			Worker:    self,
			Region:    "local",
		})
		if err != nil {
			return err
		}
		out.writeLine(memberLine{What: "changed", Key: o.Key, At: at.UnixNano()})
	case "stats":
		var use syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &use); err != nil {
			return err
		}
		x, s := memberLine{What: "stats", CPU: time.Duration(use.Utime.Nano() + use.Stime.Nano())}, g.Stats()
		if o.Memory {
			var there bool
			var err error
			if x.PSS, there, err = live.FieldOf(os.Getpid(), "smaps_rollup", "Pss"); err != nil {
				return err
			}
			if !there {
				return errors.New("the kernel does not tell how much memory a process has")
			}
		}
		x.Gossip, x.Known = &s, len(g.View().Workers)
		for _, m := range g.Members() {
			if m.State == cluster.MemberAlive {
				x.Alive++
			}
		}
		out.writeLine(x)
	}
	return nil
}

// followRecords reports every machine of others that it learns of.
func followRecords(ctx context.Context, g *gossip.Cluster, self cluster.WorkerID, out *lines) {
	w := g.Watch("bench", g.Index())
	defer w.Close()
	for {
		changes, _, err := w.Next(ctx)
		if err != nil {
			return
		}
		at := time.Now().UnixNano()
		for _, c := range changes {
			if c.Kind == registry.Machine && c.Owner != self {
				out.writeLine(memberLine{What: "saw", Key: c.Key, At: at})
			}
		}
	}
}

// followMembers reports the members' changes of state.
func followMembers(ctx context.Context, g *gossip.Cluster, out *lines) {
	last := uint64(0)
	for {
		moved := g.Moved()
		for _, f := range g.Facts(last) {
			last = f.Index
			if f.State == cluster.MemberDead || f.State == cluster.MemberSuspect {
				out.writeLine(memberLine{What: "member", Key: string(f.Member), State: string(f.State),
					At: f.At.UnixNano()})
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-moved:
		}
	}
}
