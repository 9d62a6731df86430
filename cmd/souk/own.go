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
	var err error
	if s.token, err = startServing(s.cmd, "souk dev", &s.ready, &s.ready.TokenFile); err != nil {
		s.kill()
		return err
	}
	s.cl = client.New(s.ready.Addr, s.token)
	return nil
}

// startServing starts a souk that serves, reads the line of JSON with which it says that it is ready, and then the file with
// its token, which that line names. Where it does not become ready, it may run.
func startServing(cmd *exec.Cmd, who string, said any, tokenFile *string) (token string, err error) {
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return "", fault.Wrap(err, fault.Internal, "own", "%s did not start", who)
	}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, said)
	}
	if err == nil {
		token, err = readLine(*tokenFile)
	}
	if err != nil {
		return "", fault.Wrap(err, fault.Internal, "own", "%s did not become ready", who)
	}
	return token, nil
}

// endServing ends a souk as ^C does, or kills it where that takes longer than patience, and gives how it ended.
func endServing(cmd *exec.Cmd, patience time.Duration) error {
	err := cmd.Process.Signal(syscall.SIGTERM)
	late := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	return errors.Join(err, cmd.Wait())
}

// kill ends souk at once, as kill -9 does. Its machines go on.
func (s *ownSouk) kill() {
	if s.cmd == nil {
		return
	}
	if s.cmd.Process != nil { // it was started
		_ = s.cmd.Process.Kill() // it may have ended by itself
		_ = s.cmd.Wait()
	}
	s.cmd = nil
}

// stop ends souk as ^C does and gives how it ended. Its machines go on.
func (s *ownSouk) stop() error {
	if s.cmd == nil {
		return nil
	}
	err := endServing(s.cmd, 20*time.Second)
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
	endReapers(s.state)
}

// endReapers ends the reapers below a directory. It is a clean-up: what fails is passed over.
func endReapers(dir string) {
	for _, pid := range reapersBelow(dir) {
		_ = syscall.Kill(pid, syscall.SIGTERM)
	}
}

// souk makes a command of this program that talks to it.
func (s *ownSouk) souk(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, s.exe, args...)
	cmd.Env = append(os.Environ(), "SOUK_ADDR="+s.ready.Addr, "SOUK_TOKEN="+s.token)
	return cmd
}

// reapersBelow gives the reapers of a directory: the processes whose command line says so and names one below it.
func reapersBelow(dir string) []int {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline") // the pattern is well-formed
	var pids []int
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if err != nil {
			continue // it has ended meanwhile
		}
		argv := strings.Split(string(raw), "\x00")
		if len(argv) > 2 && argv[1] == "reaper" && strings.HasPrefix(argv[2], dir+"/") {
			if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(f))); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// processes gives souk and its reapers.
func (s *ownSouk) processes() []int { return append(reapersBelow(s.state), s.cmd.Process.Pid) }

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
