package stalls

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/node"
	"github.com/soukhq/souk/runtime/process"
	"github.com/soukhq/souk/runtime/reaper/proc"
	"github.com/soukhq/souk/worker"
)

var (
	long  = flag.Bool("long", false, "take the real times of souk, which is several minutes")
	write = flag.String("write", "", "write the table into this file")
)

// haste is by how much all times are shorter than souk's own without -long.
const haste = 10

const (
	envNode  = "SOUK_STALLS_NODE"  // the directory of the souk that this process is to be
	envHaste = "SOUK_STALLS_HASTE" // by how much its times are shorter
	token    = "the token of this test"
)

// TestMain lets this test binary be the reaper and souk itself, which are to be stopped.
func TestMain(m *testing.M) {
	process.ReaperHook()
	if dir := os.Getenv(envNode); dir != "" {
		if err := serve(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// pace returns the times of a souk that is in haste.
func pace(by int) worker.Pace {
	return worker.Pace{Patience: 20 * time.Second / time.Duration(by), Pulse: time.Second / time.Duration(min(by, 4)),
		Haste: by}
}

// serve is one souk: it says its address and runs until it is told to end.
func serve(dir string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	by, err := strconv.Atoi(os.Getenv(envHaste))
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	n, err := node.New(ctx, node.Options{Dir: dir, Token: token, Region: "local", Log: log,
		Build: cluster.Build{Version: "test"},
		Workers: []node.Worker{{ID: "w1", Dir: dir,
			Capacity: cluster.Resources{CPU: 64_000, Memory: 64_000, Disk: 100_000, Ports: 100}}},
		Pace: pace(by),
		Runtime: func(_ node.Worker, dir string) (node.Runtime, error) {
			return process.Open(process.Options{Dir: dir, ReaperCommand: []string{os.Args[0]}, Log: log})
		}})
	if err != nil {
		return err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return errors.Join(err, n.Close())
	}
	fmt.Println(ln.Addr())
	return errors.Join(n.Run(ctx, ln), n.Close())
}

// souk is one that runs in a process of its own.
type souk struct {
	t     *testing.T
	dir   string
	addr  string
	cmd   *exec.Cmd
	haste int
}

func start(t *testing.T, by int) *souk {
	t.Helper()
	s := &souk{t: t, dir: t.TempDir(), haste: by}
	t.Cleanup(s.end)
	s.begin()
	return s
}

// begin starts the process, also once it has ended.
func (s *souk) begin() {
	t, by := s.t, s.haste
	t.Helper()
	s.cmd = exec.Command(os.Args[0])
	s.cmd.Env = append(os.Environ(), envNode+"="+s.dir, envHaste+"="+strconv.Itoa(by))
	said, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer said.Close()
	s.cmd.Stderr = said
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b, _ := os.ReadFile(said.Name())
		t.Fatalf("souk did not begin: %v\n%s", err, b)
	}
	s.addr = strings.TrimSpace(line)
}

// end ends souk, the machines that are left, and the reaper.
func (s *souk) end() {
	_ = s.cmd.Process.Signal(syscall.SIGCONT)
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	_ = s.cmd.Wait() // its exit is of no interest, its log is
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	r, err := process.Open(process.Options{Dir: filepath.Join(s.dir, "run"), ReaperCommand: []string{os.Args[0]}})
	if err != nil {
		s.t.Error(err)
		return
	}
	all, err := r.List(ctx)
	for _, m := range all {
		err = errors.Join(err, r.Remove(ctx, m.Machine))
	}
	if err := errors.Join(err, r.StopReaper(ctx)); err != nil {
		s.t.Error(err)
	}
	if s.t.Failed() {
		b, _ := os.ReadFile(filepath.Join(s.dir, "log"))
		s.t.Logf("souk said:\n%s", b[max(0, len(b)-20_000):])
	}
}

// reaper returns the reaper's process id.
func (s *souk) reaper() int {
	s.t.Helper()
	all, err := proc.All()
	if err != nil {
		s.t.Fatal(err)
	}
	for _, p := range all {
		env, err := proc.Environ(p.PID)
		if err == nil && p.State != 'Z' && slices.Contains(env, "SOUK_REAPER_DIR="+filepath.Join(s.dir, "run")) {
			return p.PID
		}
	}
	s.t.Fatal("there is no reaper")
	return 0
}

// stall stops a process with SIGSTOP, and continues it after d. Then it closes the channel.
func (s *souk) stall(pid int, d time.Duration) <-chan struct{} {
	s.t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		s.t.Fatal(err)
	}
	over := make(chan struct{})
	time.AfterFunc(d, func() {
		defer close(over)
		if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
			s.t.Error(err)
		}
	})
	return over
}

// seen is what is there of a machine, seen from outside.
type seen struct {
	processes int // of its main program
	frozen    bool
	version   string // of the config that the program has
	pid       int
}

// look finds a machine's main processes by their environment.
func look(t *testing.T, id string) (v seen) {
	t.Helper()
	all, err := proc.All()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		env, err := proc.Environ(p.PID)
		if err != nil || p.State == 'Z' || p.State == 'X' || p.Session != p.PID ||
			!slices.Contains(env, "SOUK_MACHINE="+id) || !slices.Contains(env, "WITNESS=main") {
			continue
		}
		v.processes++
		v.pid = p.PID
		for _, kv := range env {
			if x, ok := strings.CutPrefix(kv, "VERSION="); ok {
				v.version = x
			}
		}
		v.frozen = frozen(p.PID)
	}
	return v
}

// frozen reports whether a process's cgroup is frozen, or the process was stopped.
func frozen(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(b)) {
		path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::")
		if !ok {
			continue
		}
		for _, root := range []string{"/sys/fs/cgroup/unified", "/sys/fs/cgroup"} {
			if b, err := os.ReadFile(filepath.Join(root, path, "cgroup.freeze")); err == nil {
				return strings.TrimSpace(string(b)) == "1"
			}
		}
	}
	st, err := proc.Read(pid)
	return err == nil && st.State == 'T'
}
