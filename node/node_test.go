package node_test

import (
	"context"
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/node"
	"github.com/soukhq/souk/runtime/fake"
)

const (
	token = "the token of this test"
	app   = "web"
)

// process is a souk process over a fake runtime that can be ended and started again.
type process struct {
	t       *testing.T
	dir     string
	world   *fake.Runtime
	reserve bool
	cl      *client.Client
	end     func()
}

func start(t *testing.T) *process {
	t.Helper()
	p := &process{t: t, dir: t.TempDir(), world: fake.New(fake.Options{})}
	p.start()
	t.Cleanup(func() { p.end() })
	return p
}

func (p *process) options() node.Options {
	w := node.Worker{
		ID:       "w1",
		Dir:      p.dir,
		Capacity: cluster.Resources{CPU: 16_000, Memory: 4096, Disk: 100_000, Ports: 100},
	}
	return node.Options{
		Dir:        p.dir,
		Token:      token,
		Region:     "local",
		Workers:    []node.Worker{w},
		Build:      cluster.Build{Version: "test"},
		DecisionMB: 1,
		Reserve:    p.reserve,
		Runtime:    func(node.Worker, string) (node.Runtime, error) { return p.world.Reopen(), nil },
	}
}

func (p *process) start() {
	p.t.Helper()
	n, err := node.New(p.t.Context(), p.options())
	if err != nil {
		p.t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		p.t.Fatal(err)
	}
	transport := &http.Transport{}
	p.cl = client.WithHTTP(ln.Addr().String(), token, &http.Client{Transport: transport})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx, ln) }()
	p.end = func() {
		cancel()
		if err := <-done; err != nil {
			p.t.Error(err)
		}
		if err := n.Close(); err != nil {
			p.t.Error(err)
		}
		transport.CloseIdleConnections()
		p.end = func() {}
	}
}

func launch() *machine.Launch {
	return &machine.Launch{
		Name: "one",
		Config: &machine.Config{Image: "souk/host", Init: machine.Init{Exec: []string{"sleep", "1000"}},
			Guest: &machine.Guest{CPUKind: "shared", CPUs: 1, MemoryMB: 256}},
	}
}

// TestAnsweredStateSurvivesRestart: a machine, its decision and a job are what they were after the process was started
// again.
func TestAnsweredStateSurvivesRestart(t *testing.T) {
	p := start(t)
	if _, err := p.cl.CreateApp(t.Context(), app); err != nil {
		t.Fatal(err)
	}
	m, err := p.cl.Launch(t.Context(), app, launch(), client.LaunchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	job, err := p.cl.SubmitJob(t.Context(), "", jobs.Spec{App: app, Command: []string{"true"}, First: 1, Last: 3})
	if err != nil {
		t.Fatal(err)
	}
	if job, err = p.cl.WaitJob(t.Context(), job.ID, job.Tasks, time.Minute); err != nil ||
		job.State != jobs.Succeeded {
		t.Fatalf("the job is %+v, %v", job, err)
	}
	p.end()
	p.start()
	got, err := p.cl.Machine(t.Context(), app, m.ID)
	if err != nil || got.InstanceID != m.InstanceID || got.State != machine.Started {
		t.Errorf("the machine was %+v, is %+v, %v", m, got, err)
	}
	e, err := p.cl.Explain(t.Context(), app, m.ID, 0)
	if err != nil || len(e.Decisions) != 1 {
		t.Errorf("it is explained by %+v, %v; want the decision that was recorded", e.Decisions, err)
	}
	if got, err := p.cl.Job(t.Context(), job.ID); err != nil || got.State != jobs.Succeeded {
		t.Errorf("the job is %+v, %v", got, err)
	}
	if logs, err := filepath.Glob(filepath.Join(p.dir, "journal.log*")); err != nil || len(logs) == 0 {
		t.Errorf("the worker's journal has no log in front: %v, %v", logs, err)
	}
}

// TestFailedStartClosesOpenedParts: when one part cannot be opened, those before it are let go of.
func TestFailedStartClosesOpenedParts(t *testing.T) {
	p := &process{t: t, dir: t.TempDir(), world: fake.New(fake.Options{})}
	o := p.options()
	o.Runtime = func(node.Worker, string) (node.Runtime, error) {
		return nil, fault.New(fault.Unavailable, "reaper", "it does not start")
	}
	if _, err := node.New(t.Context(), o); !fault.Is(err, fault.Unavailable) {
		t.Fatalf("a runtime that does not open: %v", err)
	}
	p.start() // its journals would be locked
	p.end()
}
