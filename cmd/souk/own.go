package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/fault"
)

// ownSouk is a souk dev in a process of its own, for measurements and tests.
type ownSouk struct {
	exe   string
	state string // its --dir
	args  []string
	err   io.Writer
	ready ready
	token string
	cmd   *exec.Cmd
	cl    *client.Client
}

// startOwn starts this program as souk dev on any free port, and answers when it is ready.
func startOwn(state string, stderr io.Writer, args ...string) (*ownSouk, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, fault.Wrap(err, fault.Internal, "own", "the path of this program is not known")
	}
	s := &ownSouk{exe: exe, state: state, args: args, err: stderr}
	return s, s.start()
}

// start starts it, or starts it again after kill.
func (s *ownSouk) start() error {
	s.cmd = exec.Command(s.exe, append([]string{"dev", "--json", "--dir", s.state, "--addr", "127.0.0.1:0"}, s.args...)...)
	s.cmd.Stderr = s.err
	out, err := s.cmd.StdoutPipe()
	if err == nil {
		err = s.cmd.Start()
	}
	if err != nil {
		return fault.Wrap(err, fault.Internal, "own", "souk dev did not start")
	}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &s.ready)
	}
	if err == nil {
		s.token, err = readLine(s.ready.TokenFile)
	}
	if err != nil {
		s.kill()
		return fault.Wrap(err, fault.Internal, "own", "souk dev did not become ready")
	}
	s.cl = client.New(s.ready.Addr, s.token)
	return nil
}

// kill ends souk at once, as kill -9 does. Its machines go on.
func (s *ownSouk) kill() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill() // it may have ended by itself
	_ = s.cmd.Wait()
	s.cmd = nil
}

// stop ends souk as ^C does and gives how it ended. Its machines go on.
func (s *ownSouk) stop() error {
	if s.cmd == nil {
		return nil
	}
	err := s.cmd.Process.Signal(syscall.SIGTERM)
	late := time.AfterFunc(20*time.Second, func() { _ = s.cmd.Process.Kill() })
	defer late.Stop()
	err = errors.Join(err, s.cmd.Wait())
	s.cmd = nil
	return err
}

// end ends the machines, then souk, then its reapers. It is a clean-up: what fails is passed over.
func (s *ownSouk) end() {
	if s.cmd == nil {
		_ = s.start() // only souk itself knows all processes of its machines
	}
	if s.cl != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_ = destroyAll(ctx, s.cl, "")
	}
	_ = s.stop()
	for _, pid := range s.reapers() {
		_ = syscall.Kill(pid, syscall.SIGTERM)
	}
}

// souk makes a command of this program that talks to it.
func (s *ownSouk) souk(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, s.exe, args...)
	cmd.Env = append(os.Environ(), "SOUK_ADDR="+s.ready.Addr, "SOUK_TOKEN="+s.token)
	return cmd
}

// reapers gives its reapers: the processes whose command line says so and names its directory.
func (s *ownSouk) reapers() []int {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline") // the pattern is well-formed
	var pids []int
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if err != nil {
			continue // it has ended meanwhile
		}
		argv := strings.Split(string(raw), "\x00")
		if len(argv) > 2 && argv[1] == "reaper" && strings.HasPrefix(argv[2], s.state+"/") {
			if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(f))); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// processes gives souk and its reapers.
func (s *ownSouk) processes() []int { return append(s.reapers(), s.cmd.Process.Pid) }

// destroyAll destroys every machine of an app, or of all apps.
func destroyAll(ctx context.Context, cl *client.Client, app string) error {
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
			if err := cl.Destroy(ctx, m.App, m.ID, "", true); !fault.Is(err, fault.NotFound) {
				return err
			}
			return nil
		})
	}
	return g.Wait()
}
