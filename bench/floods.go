package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/bench/live"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/wait"
)

// FloodsOptions say how souk is flooded.
type FloodsOptions struct {
	N    int           // launches without and with each flood
	For  time.Duration // each at least
	Rate int           // connections that a flood opens a second at most
	Only []string      // kinds of floods; empty: all
}

// FloodRow is launches without and with a flood, in turns, and the longest time without an answer to an ordinary
// request.
type FloodRow struct {
	Name     string  `json:"name"`
	N        int     `json:"n"`
	QuietP50 float64 `json:"quiet_p50_ms"`
	QuietP99 float64 `json:"quiet_p99_ms"`
	P50      float64 `json:"p50_ms"`
	P99      float64 `json:"p99_ms"`
	Ratio    float64 `json:"ratio_p50"`

	// the longest time to an answer during the flood, including failed tries: a GET of the API over a new connection, a
	// call over the wire, an object of 4 KB through gossip
	API    float64 `json:"api_longest_ms"`
	Wire   float64 `json:"wire_longest_ms"`
	Gossip float64 `json:"gossip_longest_ms"`

	Opened   float64 `json:"opened_per_second"` // connections of the flood
	Resets   float64 `json:"resets_per_second"`
	FloodCPU float64 `json:"flood_cpu_percent"` // CPU of the flood's process, per cent of a core
	RSS      float64 `json:"rss_mb"`            // of the flooded agent, afterwards
	Met      bool    `json:"met"`
}

// Text returns the row as it is printed for people.
func (r FloodRow) Text() string {
	text := fmt.Sprintf("%-8s %5d %9.2f %9.2f %9.2f %9.2f %6.2f %8.0f %8.0f %8.0f %8.0f %8.0f %6.0f %6.0f  "+
		"p50 <= 1.5x, answers <= 5000 ms", r.Name, r.N, r.QuietP50, r.QuietP99, r.P50, r.P99, r.Ratio,
		r.API, r.Wire, r.Gossip, r.Opened, r.Resets, r.FloodCPU, r.RSS)
	if !r.Met {
		text += "  MISSED"
	}
	return text
}

// FloodsHead is the line above the rows.
func FloodsHead() string {
	return fmt.Sprintf("%-8s %5s %9s %9s %9s %9s %6s %8s %8s %8s %8s %8s %6s %6s  %s", "FLOOD", "N", "QUIET P50", "P99",
		"P50 MS", "P99", "RATIO", "API MS", "WIRE MS", "GOSSIP", "OPENED/S", "RESETS/S", "CPU %", "RSS MB", "WANTED")
}

// The members of souk bench floods: the one that is flooded and asked, and another one, whose ports are flooded, too.
const floodedMember, otherMember = "a", "b"

// floodKinds are the floods, and how many connections each has open to each port.
func floodKinds() []flood {
	return []flood{{kind: floodAPI, conns: 1500}, {kind: floodGossip, conns: 1500}, {kind: floodWire, conns: 4400},
		{kind: floodResets, conns: 3, rate: 33_000}}
}

// Known reports whether any of the requested floods exists.
func (o *FloodsOptions) Known() bool {
	for _, k := range floodKinds() {
		if o.wantsKind(k.kind) {
			return true
		}
	}
	return false
}

func (o *FloodsOptions) wantsKind(kind string) bool {
	return len(o.Only) == 0 || strings.Contains(","+strings.Join(o.Only, ",")+",", ","+kind+",")
}

// Floods measures launches while the ports of two agents are flooded.
func Floods(ctx context.Context, o *FloodsOptions, to Reporter) error {
	dir, err := os.MkdirTemp("", "souk-bench-*")
	if err != nil {
		return wrapFailure(err, "no temporary directory can be made")
	}
	defer os.RemoveAll(dir)
	done := to.Working("starting two agents")
	agents, err := live.StartAgents(ctx, dir, to.Stderr(), []string{floodedMember, otherMember},
		[]string{"--cpus", "1000", "--memory", "1000000"}, nil)
	done()
	if err != nil {
		return wrapFailure(err, "the agents did not come up")
	}
	defer agents.Close()
	f := &flooding{forwarding{agents}, o}
	if err := f.awaitReady(ctx); err != nil {
		return wrapFailure(err, "the agents do not meet")
	}
	for _, kind := range floodKinds() {
		if !o.wantsKind(kind.kind) {
			continue
		}
		done := to.Working("flooding %s", kind.kind)
		row, err := f.measureFlood(ctx, kind)
		done()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			return wrapFailure(err, "an ordinary command was not answered")
		}
		to.Row(row)
	}
	return nil
}

type flooding struct {
	forwarding
	o *FloodsOptions
}

// floodTurns is how often each is measured without and with the flood, in turns, since the host may be busy at times.
const floodTurns = 5

// measureFlood launches without the flood and with it.
func (f *flooding) measureFlood(ctx context.Context, kind flood) (r FloodRow, err error) {
	if _, err = f.launchRound(ctx, 0, time.Second); err != nil { // warm-up
		return r, err
	}
	var quiet, with round
	var did flooded
	for range floodTurns {
		without, err := f.launchRound(ctx, f.o.N/floodTurns, f.o.For/floodTurns)
		if err != nil {
			return r, err
		}
		quiet.addRound(without)
		end, err := f.beginFlood(ctx, kind)
		if err != nil {
			return r, err
		}
		during, err := f.launchRound(ctx, f.o.N/floodTurns, f.o.For/floodTurns)
		done, ended := end()
		if err = errors.Join(err, ended); err != nil {
			return r, err
		}
		with.addRound(during)
		did.addCounts(done)
	}
	rss, _, err := live.FieldOf(f.List[0].PID(), "status", "VmRSS")
	if err != nil {
		return r, err
	}
	r = FloodRow{Name: kind.kind, N: len(with.launches), QuietP50: Quantile(quiet.launches, 0.5),
		QuietP99: Quantile(quiet.launches, 0.99),
		P50:      Quantile(with.launches, 0.5), P99: Quantile(with.launches, 0.99),
		API: Quantile(with.api, 1), Wire: Quantile(with.wire, 1), Gossip: Quantile(with.gossip, 1),
		Opened: float64(did.Opened) / did.Seconds, Resets: float64(did.Resets) / did.Seconds,
		FloodCPU: 100 * did.CPU.Seconds() / did.Seconds, RSS: float64(rss) / (1 << 20)}
	r.Ratio = r.P50 / r.QuietP50
	r.Met = r.Ratio <= 1.5 && max(r.API, r.Wire, r.Gossip) <= 5000
	return r, nil
}

// beginFlood starts a flood in a process of its own. end ends it, and returns what it did.
func (f *flooding) beginFlood(ctx context.Context, kind flood) (end func() (flooded, error), err error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	var ports []string
	for _, a := range f.List {
		api, wire, gossip := a.Doors()
		ports = append(ports, map[string]string{floodAPI: api, floodGossip: gossip, floodWire: wire,
			floodResets: wire}[kind.kind])
	}
	if kind.kind == floodResets {
		ports = ports[:1] // only the issuer accepts joins
	}
	rate := kind.rate
	if rate == 0 {
		rate = f.o.Rate
	}
	cmd := exec.CommandContext(ctx, exe, append([]string{"bench-flood", kind.kind, fmt.Sprint(kind.conns),
		fmt.Sprint(rate)}, ports...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	var out strings.Builder
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return func() (did flooded, err error) {
		if err := in.Close(); err != nil {
			return did, err
		}
		if err := cmd.Wait(); err != nil {
			return did, err
		}
		return did, json.Unmarshal([]byte(out.String()), &did)
	}, nil
}

// round is what was measured in one turn.
type round struct{ launches, api, wire, gossip []time.Duration }

func (r *round) addRound(x round) {
	r.launches, r.api = append(r.launches, x.launches...), append(r.api, x.api...)
	r.wire, r.gossip = append(r.wire, x.wire...), append(r.gossip, x.gossip...)
}

// launchRound makes at least n launches for at least atLeast, and probes other calls meanwhile.
func (f *flooding) launchRound(ctx context.Context, n int, atLeast time.Duration) (r round, err error) {
	probing, stop := context.WithCancel(ctx)
	var all sync.WaitGroup
	errs := make([]error, 3)
	for i, p := range []struct {
		took  *[]time.Duration
		every time.Duration
		ask   func(ctx context.Context, turn int) error
	}{{&r.api, 50 * time.Millisecond, f.askAPI}, {&r.wire, 100 * time.Millisecond, f.askWire},
		{&r.gossip, 200 * time.Millisecond, f.tellObject}} {
		all.Go(func() { *p.took, errs[i] = probeUntil(ctx, probing.Done(), p.every, p.ask) })
	}
	begin := time.Now()
	for i := 0; err == nil && (i < n || time.Since(begin) < atLeast); i++ {
		var took time.Duration
		if took, err = f.launchOnce(ctx, floodedMember); err == nil {
			r.launches = append(r.launches, took)
		}
	}
	stop()
	all.Wait()
	for _, e := range errs {
		if err == nil {
			err = e
		}
	}
	return r, err
}

// patience is how long a failing probe is retried before the measurement fails.
const patience = time.Minute

// probeUntil repeats a probe until done, and returns how long each took until it was answered.
func probeUntil(ctx context.Context, done <-chan struct{}, every time.Duration,
	ask func(ctx context.Context, turn int) error) (took []time.Duration, err error) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for turn := 0; ; turn++ {
		begin := time.Now()
		for err = ask(ctx, turn); err != nil; err = ask(ctx, turn) {
			if time.Since(begin) > patience || ctx.Err() != nil {
				return took, err
			}
		}
		took = append(took, time.Since(begin))
		select {
		case <-done:
			return took, nil
		case <-tick.C:
		}
	}
}

func (f *flooding) askAPI(ctx context.Context, _ int) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	_, err := f.List[0].GetAnew(ctx, "/v1/apps")
	return err
}

// askWire makes the flooded agent hold room at the other one, and release it.
func (f *flooding) askWire(ctx context.Context, _ int) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	held, err := f.List[0].Client.Hold(ctx, otherMember, api.Bid{App: live.App,
		Launch: live.LaunchOf(live.Stays(), false), TTL: 5})
	if err != nil {
		return err
	}
	return f.List[0].Client.ReleaseHold(ctx, otherMember, held.Hold)
}

// tellObject sets a secret of 4 KB at one agent, and waits until the other one has it.
func (f *flooding) tellObject(ctx context.Context, turn int) error {
	value := fmt.Sprintf("%d at %d%s", turn, time.Now().UnixNano(), strings.Repeat("s", 4<<10))
	if err := f.List[0].Client.SetSecrets(ctx, live.App, map[string]*string{"FLOOD": &value}); err != nil {
		return err
	}
	want, err := updatedAt(ctx, f.List[0].Client)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, patience, live.ErrSilent)
	defer cancel()
	return wait.Until(ctx, 10*time.Millisecond, func() bool {
		has, err := updatedAt(ctx, f.List[1].Client)
		return err == nil && has.Equal(want)
	})
}

// updatedAt returns since when a member's secret is what it is.
func updatedAt(ctx context.Context, c *client.Client) (time.Time, error) {
	all, err := c.Secrets(ctx, live.App)
	if err != nil {
		return time.Time{}, err
	}
	for _, s := range all {
		if s.Name == "FLOOD" {
			return s.UpdatedAt, nil
		}
	}
	return time.Time{}, fault.New(fault.NotFound, fault.CodeBench, "the secret FLOOD is not set yet")
}
