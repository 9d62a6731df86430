package faults

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime/reaper"
	"github.com/soukhq/souk/runtime/reaper/cgroup"
	"github.com/soukhq/souk/test/netns"
)

// Ports of a member on its host.
const (
	apiAddr    = "127.0.0.1:4280"
	wirePort   = ":4281"
	gossipPort = ":4282"
)

// Timeouts: of a member until its API serves; of a command (doctor waits twice for agreeIn and once for holds).
const (
	startPatience   = 30 * time.Second
	commandPatience = 2*agreeIn + 90*time.Second
)

// member is one agent on one host.
type member struct {
	id   string
	exe  string // the program of its agent
	dir  string
	host *netns.Host
	o    *Options
	cl   *client.Client
	http *http.Client // the HTTP client of cl
	log  *os.File
	pids string // the agent's pids cgroup; "": none was made
	boot string // file of its own boot id; "": that of all hosts

	// the host where cl finds the member: its own, or that of the copy that lives instead
	api atomic.Pointer[netns.Host]

	mu     sync.Mutex
	wanted bool // restart it when it ends by itself, like a service manager
	cmd    *exec.Cmd
	ended  chan struct{} // closed when cmd has ended
	exits  int           // how often it ended by itself
}

// souk runs a command of the program on the member's host.
func (m *member) souk(ctx context.Context, argv ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, commandPatience)
	defer cancel()
	cmd := exec.CommandContext(ctx, m.exe, argv...)
	cmd.WaitDelay = time.Second
	cmd.Env = append(os.Environ(), "SOUK_ADDR="+apiAddr, "SOUK_TOKEN="+m.token(), "XDG_STATE_HOME="+m.o.Dir)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := m.host.Do(cmd.Run)
	if err != nil {
		err = fault.Wrap(err, fault.Internal, codeSouk, "souk %s: %s", strings.Join(argv[:1], " "),
			strings.TrimSpace(errs.String()))
	}
	return strings.TrimSpace(out.String()), err
}

func (m *member) token() string {
	raw, err := os.ReadFile(filepath.Join(m.o.Dir, "m1", "token")) // the first member's token is valid at all
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(raw))
}

// start starts the agent, and restarts it whenever it ends by itself.
func (m *member) start() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wanted = true
	return m.launch()
}

// launch starts the agent's process. The caller holds the lock.
func (m *member) launch() error {
	if m.cmd != nil {
		return nil
	}
	argv := []string{m.exe, "agent", "--dir", m.dir, "--addr", apiAddr, "--wire", m.host.Addr + wirePort, "--gossip",
		m.host.Addr + gossipPort, "--cpus", "1000", "--memory", fmt.Sprint(m.o.Slots*slotMB + keptMemory), "--log",
		"info"}
	argv = append(argv, m.o.Flags...)
	var err error
	if m.boot != "" {
		if argv, err = netns.AnotherBoot(m.boot, argv...); err != nil {
			return err
		}
	}
	if m.pids != "" {
		argv = append([]string{"sh", "-c", `echo $$ > "$0/cgroup.procs" && exec "$@"`, m.pids}, argv...)
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = m.log, m.log
	if err := m.host.Do(cmd.Start); err != nil {
		return fault.Wrap(err, fault.Internal, codeAgent, "the agent of %s cannot be started", m.id)
	}
	m.cmd, m.ended = cmd, make(chan struct{})
	go m.wait(cmd, m.ended)
	return nil
}

func (m *member) wait(cmd *exec.Cmd, ended chan struct{}) {
	_ = cmd.Wait() // its log says how it ended
	m.mu.Lock()
	m.cmd = nil
	again := m.wanted
	if again {
		m.exits++
	}
	m.mu.Unlock()
	close(ended)
	if !again {
		return
	}
	time.Sleep(500 * time.Millisecond) // like a service manager
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.wanted {
		_ = m.launch() // the next start tries again
	}
}

// kill ends the agent with SIGKILL and waits until it has ended; with its reaper if hard.
func (m *member) kill(hard bool) {
	m.mu.Lock()
	m.wanted = false
	cmd, ended := m.cmd, m.ended
	m.mu.Unlock()
	if cmd != nil {
		_ = cmd.Process.Kill() // it may have ended by itself
		<-ended
	}
	if hard {
		m.signal("reaper", syscall.SIGKILL)
	}
}

// signal sends a signal to the host's souk processes of a kind: "agent" or "reaper". Ended processes are ignored.
func (m *member) signal(kind string, sig syscall.Signal) {
	for _, pid := range m.processes(kind) {
		_ = syscall.Kill(pid, sig) // it may have ended meanwhile
	}
}

// processes lists the host's souk processes of a kind.
func (m *member) processes(kind string) (out []int) {
	for _, pid := range m.host.Processes() {
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if argv := strings.Split(string(raw), "\x00"); err == nil && len(argv) > 1 && argv[1] == kind {
			out = append(out, pid)
		}
	}
	return out
}

// powerOff kills all processes of the host, including containers, which are in other network namespaces.
func (m *member) powerOff() {
	m.kill(false)
	m.host.PowerOff()
	dir, err := filepath.EvalSymlinks(filepath.Join(m.dir, "worker", "run"))
	if err != nil {
		return // it never ran
	}
	tree := reaper.TreeName(dir)
	for range 100 { // killed processes may be visible for a moment
		pids := inGroups(tree)
		if len(pids) == 0 {
			break
		}
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended meanwhile
		}
		time.Sleep(10 * time.Millisecond)
	}
	_ = os.RemoveAll(filepath.Join(reaper.ContainersDir, tree)) // if not empty yet, it is by its next use
}

// inGroups lists the processes in the cgroups of a reaper.
func inGroups(tree string) (pids []int) {
	files, _ := filepath.Glob("/proc/[0-9]*/cgroup") // the pattern is well-formed
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if err != nil || !strings.Contains(string(raw), "/"+tree+"/") && !strings.Contains(string(raw), "/"+tree+"\n") {
			continue // it has ended, or is elsewhere
		}
		if pid, err := strconv.Atoi(strings.Split(f, "/")[2]); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// ready waits until the member's API serves.
func (m *member) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	for {
		if _, err := m.cl.Version(ctx); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fault.New(fault.Timeout, codeAgent, "%s does not serve after %v; its log is %s", m.id, startPatience,
				m.log.Name())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// hasToken waits until the first start of the first member has made the API's token.
func (m *member) hasToken(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	for m.token() == "" {
		if err := wait(ctx, 5*time.Millisecond); err != nil {
			return fault.New(fault.Timeout, codeAgent, "the first member has made no token after %v; its log is %s",
				startPatience,
				m.log.Name())
		}
	}
	return nil
}

// dump makes the agent write its goroutines to its log, which ends it.
func (m *member) dump() {
	m.mu.Lock()
	m.wanted = false
	cmd, ended := m.cmd, m.ended
	m.mu.Unlock()
	if cmd == nil {
		return
	}
	_ = cmd.Process.Signal(syscall.SIGQUIT) // it may have ended by itself
	select {
	case <-ended:
	case <-time.After(5 * time.Second): // it does not even react to SIGQUIT
	}
}

// connect makes the member's API client.
func (m *member) connect() {
	m.api.Store(m.host)
	m.http = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 32,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			return m.api.Load().Dial(ctx, network, addr)
		}}}
	m.cl = client.WithHTTP(apiAddr, m.token(), m.http)
}

// build makes a cluster of members that know each other.
func build(ctx context.Context, o *Options, hosts netns.Hosts) ([]*member, error) {
	var ms []*member
	if o.Fault == PowerLoss {
		if err := shareMounts(o.Dir); err != nil {
			return nil, err
		}
	}
	for i, h := range hosts {
		m := &member{id: fmt.Sprintf("m%d", i+1), host: h, o: o, exe: o.Exe}
		if o.Fault == Mixed && i%2 == 0 { // also the first: a cluster begun by a newer build takes no older member
			m.exe = o.Old
		}
		m.dir = filepath.Join(o.Dir, m.id)
		var err error
		if m.log, err = os.Create(m.dir + ".log"); err != nil {
			return nil, fault.Wrap(err, fault.Internal, fault.CodeLog, "a log cannot be made in %s", o.Dir)
		}
		ms = append(ms, m)
		if o.Fault == DiskFull && i == len(hosts)-1 {
			if err := smallDisk(m.dir); err != nil {
				return ms, err
			}
		}
		if o.Fault == PowerLoss {
			if err := volatileDisk(ctx, m.dir); err != nil {
				return ms, err
			}
		}
		if i == 0 {
			_, err = m.souk(ctx, "init", "--dir", m.dir, "--id", m.id)
		} else {
			var token string
			if token, err = ms[0].souk(ctx, "token", "join", "--dir", ms[0].dir); err == nil {
				_, err = m.souk(ctx, "join", ms[0].host.Addr+wirePort, "--dir", m.dir, "--id", m.id, "--token", token)
			}
		}
		if err == nil {
			err = m.start()
		}
		if err != nil {
			return ms, err
		}
		if err := m.hasToken(ctx); err != nil {
			return ms, err
		}
		m.connect()
		if i > 0 {
			continue // this fault starts all members at once
		}
		if err := m.ready(ctx); err != nil {
			return ms, err
		}
	}
	for _, m := range ms {
		if err := m.ready(ctx); err != nil {
			return ms, err
		}
	}
	return ms, nil
}

// end ends everything on all hosts and removes what the kernel keeps of it.
func end(ms []*member) {
	var trees []string
	for _, m := range ms {
		m.powerOff()
		_ = m.log.Close()
		if dir, err := filepath.EvalSymlinks(filepath.Join(m.dir, "worker", "run")); err == nil {
			trees = append(trees, reaper.TreeName(dir), reaper.TreeName(dir)+agentGroup)
		}
		bigDisk(m.dir)
	}
	if len(ms) > 0 && ms[0].o.Fault == PowerLoss {
		bigDisk(ms[0].o.Dir)
	}
	mounts, _ := cgroup.Mounts() // on an error there are no cgroups
	for range 100 {              // processes stay in their cgroups until they are reaped
		trees = slices.DeleteFunc(trees, func(name string) bool { return removeGroups(mounts, name) })
		if len(trees) == 0 {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// removeGroups removes the cgroups of an ended reaper, and reports whether none is left.
func removeGroups(mounts []cgroup.Mount, name string) bool {
	gone := true
	for _, m := range mounts {
		tree := filepath.Join(m.Dir, name)
		groups, err := os.ReadDir(tree)
		if err != nil {
			continue // it has none here
		}
		for _, g := range groups {
			if g.IsDir() {
				_ = os.Remove(filepath.Join(tree, g.Name())) // fails while in use; then the tree stays, too
			}
		}
		gone = os.Remove(tree) == nil && gone
	}
	return gone
}

// copyTree copies a directory as it is now.
func copyTree(from, to string) error { return command("cp", "-a", "--", from, to) }

// lockedWriter is a writer for several goroutines.
type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}
