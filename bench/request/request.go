// Package request measures requests through souk's proxy: to sleeping and to started machines, compared with other
// proxies in the same run.
package request

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/soukhq/souk/bench/live"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// rig is a souk with the address of its proxy.
type rig struct {
	*live.Souk
	dir  string
	http string // host:port of its door
	exe  string
}

func newRig(ctx context.Context, stderr io.Writer) (*rig, error) {
	dir, err := os.MkdirTemp("", "souk-bench-")
	if err != nil {
		return nil, wrapFailure(err, "no directory could be made")
	}
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // machines' users pass through it
		return nil, wrapFailure(err, "its directory could not be opened to machines")
	}
	port, err := live.FreePort()
	if err != nil {
		return nil, wrapFailure(err, "there is no free port")
	}
	r := &rig{dir: dir, http: fmt.Sprintf("127.0.0.1:%d", port)}
	if r.exe, err = live.Program(dir); err == nil {
		r.Souk, err = live.Start(dir+"/state", stderr, "--http", r.http, "--access-log", dir+"/access")
	}
	if err != nil {
		return nil, wrapFailure(errors.Join(err, os.RemoveAll(dir)), "it could not begin")
	}
	if _, err := r.Client.CreateApp(ctx, live.App); err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

func (r *rig) close() {
	r.End()
	_ = os.RemoveAll(r.dir) // a temporary directory
}

func wrapFailure(err error, what string) error {
	return fault.Wrap(err, fault.Internal, fault.CodeBench, "the measurement stopped: %s", what)
}

// noAnswer adds the state of the request's machine to an error, since the proxy's answer does not say why no machine
// takes the request.
func (r *rig) noAnswer(ctx context.Context, id string, err error) error {
	m, asked := r.Client.Machine(ctx, live.App, id)
	if asked == nil && m.State != machine.Started {
		err = fmt.Errorf("machine %s is %s%s (%w)", id, m.State, m.Because(), err)
	}
	return wrapFailure(err, "a request failed")
}

// serverLaunch returns a launch of a machine that answers at a port, for requests to name.localhost.
func (r *rig) serverLaunch(name string, port int, stop machine.Autostop, skip bool) *machine.Launch {
	return &machine.Launch{Name: name, SkipLaunch: skip, Config: &machine.Config{Image: machine.HostImage,
		Init:    machine.Init{Exec: []string{r.exe, serveWord}},
		Env:     map[string]string{"PORT": fmt.Sprint(port), "GOMAXPROCS": "2"},
		Restart: &machine.Restart{Policy: "no"},
		Services: []machine.Service{{Protocol: "tcp", InternalPort: port, Autostop: &stop, Hosts: []string{name},
			AutostopAfter: &machine.Duration{Duration: hour},
			Ports:         []machine.Port{{Port: new(80), Handlers: []string{"http"}}}}}}}
}

func (r *rig) launchMachine(ctx context.Context, l *machine.Launch) (*machine.Machine, error) {
	m, err := r.Client.Launch(ctx, live.App, l, client.LaunchOptions{})
	if err == nil && !l.SkipLaunch && m.State != machine.Started {
		err = fault.New(fault.Internal, fault.CodeBench,
			"a launch was answered %q, not started%s", m.State, m.Because())
	}
	return m, err
}

func hostOf(name string) string { return strings.ToLower(name) + ".localhost" }
