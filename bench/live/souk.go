// Package live starts souks that are processes of their own, with real machines, for measurements and tests: a souk dev
// (Souk), or a cluster of agents (Agents).
package live

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime/reaper/proc"
)

// Souk is a souk dev in a process of its own, for measurements and tests.
type Souk struct {
	Exe    string
	State  string // its --dir
	Args   []string
	Env    []string // in addition to this program's environment
	Stderr io.Writer
	Ready  struct {
		Addr      string `json:"addr"`
		TokenFile string `json:"token_file"`
	}
	Token  string
	Cmd    *exec.Cmd
	Client *client.Client
}

// Start starts this program as souk dev on any free port, and returns when it is ready.
func Start(state string, stderr io.Writer, args ...string) (*Souk, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, fault.Wrap(err, fault.Internal, codeOwn, "the path of this program is not known")
	}
	s := &Souk{Exe: exe, State: state, Args: args, Stderr: stderr}
	return s, s.Start()
}

// Start starts souk, or starts it again after Kill.
func (s *Souk) Start() error {
	s.Cmd = exec.Command(s.Exe, append([]string{"dev", "--json", "--dir", s.State, "--addr", "127.0.0.1:0"},
		s.Args...)...)
	s.Cmd.Stderr, s.Cmd.Env = s.Stderr, append(os.Environ(), s.Env...)
	var err error
	if s.Token, err = startServing(s.Cmd, "souk dev", &s.Ready, &s.Ready.TokenFile); err != nil {
		s.Kill()
		return err
	}
	s.Client = client.New(s.Ready.Addr, s.Token)
	return nil
}

// startServing starts a souk server, reads the JSON line that says it is ready, and then its token from the file that
// the line names. On an error the process may still run.
func startServing(cmd *exec.Cmd, who string, said any, tokenFile *string) (token string, err error) {
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return "", fault.Wrap(err, fault.Internal, codeOwn, "%s did not start", who)
	}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, said)
	}
	if err == nil {
		var raw []byte
		raw, err = os.ReadFile(*tokenFile)
		token = strings.TrimSpace(string(raw))
	}
	if err != nil {
		return "", fault.Wrap(err, fault.Internal, codeOwn, "%s did not become ready", who)
	}
	return token, nil
}

// endServing ends a souk as ^C does, or kills it after patience, and returns how it ended.
func endServing(cmd *exec.Cmd, patience time.Duration) error {
	err := cmd.Process.Signal(syscall.SIGTERM)
	late := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	return errors.Join(err, cmd.Wait())
}

// Kill ends souk at once, as kill -9 does. Its machines go on.
func (s *Souk) Kill() {
	if s.Cmd == nil {
		return
	}
	if s.Cmd.Process != nil { // it was started at least once
		_ = s.Cmd.Process.Kill() // it may have ended by itself
		_ = s.Cmd.Wait()
	}
	s.Cmd = nil
}

// Stop ends souk as ^C does and returns how it ended. Its machines go on.
func (s *Souk) Stop() error {
	if s.Cmd == nil {
		return nil
	}
	err := endServing(s.Cmd, 20*time.Second)
	s.Cmd = nil
	return err
}

// End ends the machines, then souk, then its reapers. It is a clean-up: errors are ignored.
func (s *Souk) End() {
	if s.Cmd == nil {
		_ = s.Start() // only souk knows all processes of its machines
	}
	if s.Client != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		destroyApps(ctx, s.Client)
	}
	_ = s.Stop()
	EndReapers(s.State)
}

// EndReapers ends the reapers below a directory. It is a clean-up: errors are ignored.
func EndReapers(dir string) {
	for _, pid := range ReapersBelow(dir) {
		_ = syscall.Kill(pid, syscall.SIGTERM)
	}
}

// Command returns a command of this program that talks to this souk.
func (s *Souk) Command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, s.Exe, args...)
	cmd.Env = append(os.Environ(), "SOUK_ADDR="+s.Ready.Addr, "SOUK_TOKEN="+s.Token)
	return cmd
}

// ReapersBelow returns the reapers of a directory: the processes whose command line is a reaper's and names a directory
// below it. It excludes children that have not executed their program yet, which still have the reaper's command line.
func ReapersBelow(dir string) []int {
	all, err := proc.All()
	if err != nil {
		return nil
	}
	reapers := map[int]proc.Stat{}
	for _, st := range all {
		argv := proc.Command(st.PID)
		if len(argv) > 2 && argv[1] == "reaper" && strings.HasPrefix(argv[2], dir+"/") {
			reapers[st.PID] = st
		}
	}
	var pids []int
	for pid, st := range reapers {
		if _, forked := reapers[st.Parent]; !forked {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return pids
}

// Processes returns souk and its reapers.
func (s *Souk) Processes() []int { return append(ReapersBelow(s.State), s.Cmd.Process.Pid) }

// destroyApps destroys all apps with their machines: destroying only a service's machines would have them replaced. It
// is a clean-up: errors are ignored.
func destroyApps(ctx context.Context, cl *client.Client) {
	apps, _ := cl.Apps(ctx)
	var g errgroup.Group
	g.SetLimit(16)
	for _, a := range apps {
		g.Go(func() error { return cl.DestroyApp(ctx, a.Name) })
	}
	_ = g.Wait()
	_ = DestroyAll(ctx, cl, "")
}

// DestroyAll destroys every machine of an app, or of all apps.
func DestroyAll(ctx context.Context, cl *client.Client, app string) error {
	ms, err := cl.AllMachines(ctx, client.ListOptions{})
	if err != nil {
		return err
	}
	var g errgroup.Group
	g.SetLimit(16)
	for _, m := range ms {
		if app != "" && m.App != app {
			continue
		}
		g.Go(func() error {
			if _, err := cl.Destroy(ctx, m.App, m.ID, "", true); !fault.Is(err, fault.NotFound) {
				return err
			}
			return nil
		})
	}
	return g.Wait()
}
