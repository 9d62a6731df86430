package rollouts

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/bench"
	"github.com/soukhq/souk/bench/live"
	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/wait"
	"github.com/soukhq/souk/machine"
)

// The limits for a service at rest.
const (
	wantCPU    = 1 // percent of a core, of all services
	wantMemory = 4 // KB of one service
)

const (
	// settleTime is the wait after many writes: their garbage is collected within two minutes, and returned to the host
	// within a minute more.
	settleTime = 200 * time.Second
	restTime   = 30 * time.Second
)

// measureRest makes many services of one replica that is not started, on two members, and measures the additional CPU,
// memory and traffic of the members for them while nothing changes.
func measureRest(ctx context.Context, o Options, to bench.Reporter) (rows []Row, err error) {
	dir, err := os.MkdirTemp("", "souk-bench-")
	if err != nil {
		return nil, wrapFailure(err, "no temporary directory can be made")
	}
	defer os.RemoveAll(dir)
	agents, err := live.StartAgents(ctx, dir, to.Stderr(), []string{"m1", "m2"}, []string{"--http", "off",
		"--containers", "off", "--cpus", "100000", "--memory", "100000000"}, nil)
	if err != nil {
		return nil, wrapFailure(err, "the agents did not come up")
	}
	defer agents.Close()
	if err := agents.Meet(ctx); err != nil {
		return nil, err
	}
	cl := agents.List[0].Client
	name := func(i int) string { return fmt.Sprint("rest-", i) }
	if err := atOnce(o.Services, o.At, func(i int) error {
		_, err := cl.CreateApp(ctx, name(i))
		return err
	}); err != nil {
		return nil, wrapFailure(err, "an app was not made")
	}
	before, err := readIdle(ctx, agents)
	if err != nil {
		return nil, err
	}
	zero := 0
	release := api.NewRelease{Groups: []api.NewGroup{{Replicas: &zero, Group: release.Group{Name: "web",
		Config: &machine.Config{
			Image: machine.HostImage, Init: machine.Init{Exec: live.Stays()}}}}}}
	if err := atOnce(o.Services, o.At, func(i int) error {
		_, err := cl.Deploy(ctx, name(i), release)
		return err
	}); err != nil {
		return nil, wrapFailure(err, "a release was not made")
	}
	if err := live.Until(ctx, func() bool {
		_, err := agents.List[1].Client.Service(ctx, name(o.Services-1))
		return err == nil
	}); err != nil {
		return nil, wrapFailure(err, "the other member did not hear of all services")
	}
	after, err := readIdle(ctx, agents)
	if err != nil {
		return nil, err
	}
	row := func(what string, value float64, unit, want string, met bool) {
		rows = append(rows, Row{Name: "rest_" + what, N: o.Services, Value: &value, Unit: unit, Want: want, Met: met})
	}
	row("cpu", after.cpu-before.cpu, "% of a core more", fmt.Sprintf("< %d", wantCPU), after.cpu-before.cpu < wantCPU)
	kb := float64(after.memory-before.memory) / 1024 / float64(o.Services)
	row("memory", kb, "KB a service", fmt.Sprintf("< %d", wantMemory), kb < wantMemory)
	more := after.packets - before.packets
	row("messages", more, fmt.Sprintf("packets a second more than %.1f", before.packets), "< 1", more < 1)
	return rows, nil
}

// idle is the use of two members while nothing changes.
type idle struct {
	cpu     float64 // percent of a core, of the busier member
	memory  int64   // bytes, of the larger member
	packets float64 // sent by this host, per second
}

func readIdle(ctx context.Context, agents *live.Agents) (x idle, err error) {
	if err := wait.For(ctx, settleTime); err != nil {
		return x, err
	}
	var began [2]time.Duration
	for i, a := range agents.List {
		if began[i], err = live.CPU(a.PID()); err != nil {
			return x, wrapFailure(err, "the kernel does not tell what a process takes")
		}
	}
	sent, err := packetsSent()
	if err != nil {
		return x, err
	}
	if err := wait.For(ctx, restTime); err != nil {
		return x, err
	}
	now, err := packetsSent()
	if err != nil {
		return x, err
	}
	x.packets = float64(now-sent) / restTime.Seconds()
	for i, a := range agents.List {
		took, err := live.CPU(a.PID())
		if err != nil {
			return x, wrapFailure(err, "the kernel does not tell what a process takes")
		}
		x.cpu = max(x.cpu, 100*(took-began[i]).Seconds()/restTime.Seconds())
		has, _, err := live.FieldOf(a.PID(), "status", "RssAnon")
		if err != nil {
			return x, wrapFailure(err, "the kernel does not tell how much memory a process has")
		}
		x.memory = max(x.memory, has)
	}
	return x, nil
}

// packetsSent returns how many datagrams and segments of TCP this host has sent.
func packetsSent() (n int64, err error) {
	raw, err := os.ReadFile("/proc/net/snmp")
	if err != nil {
		return 0, wrapFailure(err, "the kernel does not tell what was sent")
	}
	var names []string
	for line := range strings.Lines(string(raw)) {
		f := strings.Fields(line)
		if names == nil || f[0] != names[0] {
			names = f
			continue
		}
		for i, name := range names {
			if f[0] == "Udp:" && name == "OutDatagrams" || f[0] == "Tcp:" && name == "OutSegs" {
				sent, err := strconv.ParseInt(f[i], 10, 64)
				if err != nil {
					return 0, fault.Wrap(err, fault.Internal, fault.CodeBench, "/proc/net/snmp is not as expected")
				}
				n += sent
			}
		}
		names = nil
	}
	return n, nil
}
