// Package reaper is the small process that is the parent of every machine of one worker.
//
// It survives souk: it reaps the machines, logs their output, and keeps their exits until souk has journalled them.
// There is one reaper per worker, not one per machine, so that a thousand machines cost little memory. souk sends it
// requests over a unix socket (package frame). It decides nothing itself and reads no configuration.
//
// When the reaper itself is killed, machines keep running: they have both ends of their pipes open, so they get no
// EPIPE. The next reaper finds them by pid and start time, reopens the pipes, and learns of their ends by pidfd.
package reaper

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/internal/unixsock"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/reaper/cgroup"
	"github.com/soukhq/souk/runtime/reaper/keeper"
	"github.com/soukhq/souk/runtime/reaper/proc"
)

// Options of a reaper.
type Options struct {
	Dir       string        // the directory of the worker's process runtime; absolute
	NoCgroups bool          // behave as on a host without cgroups
	Build     string        // identifies the program, so that a newer one notices the difference
	Ready     func()        // called once the socket listens; may be nil
	Idle      time.Duration // how long it stays when idle; 0: a minute
	Log       *slog.Logger

	// At is called where a kill -9 of the reaper would do the most damage, for tests; may be nil.
	At func(Point)
}

// Point is a place in a start.
type Point string

// The points at which Options.At is called.
const (
	PointIntent Point = "intent" // the attempt is recorded, and its program does not run yet
	PointForked Point = "forked" // the program runs, and is not recorded yet
)

// Reaper is the state of a running reaper. Locks are taken in this order: gate, machine.op, forkMu, compact, mu.
type Reaper struct {
	dir      string
	home     home
	build    string
	log      *slog.Logger
	ctx      context.Context
	tree     *cgroup.Tree // nil: no cgroups
	slots    *slots       // nil if tree is nil
	threads  *threads     // the threads that fork; nil only in tests: any thread forks
	openings *openings    // for programs of the host
	apart    *apart
	lacks    []string
	lives    *lives
	out      *outputs
	stock    *stock
	young    *young
	null     *os.File
	relay    *os.File // see package relay; nil: there is none on this host
	proc     *os.File // /proc of the host; nil only in tests
	held     *os.File // the lock file of the directory
	old      handover // from the program before an upgrade; zero: there was none
	at       func(Point)

	gate sync.RWMutex // read-locked by requests, write-locked by an upgrade
	// held for fork and registration, and for reaping: no child is reaped before it is registered
	forkMu     sync.Mutex
	compact    sync.RWMutex
	rewrite    chan struct{}
	pool       *workerPool
	turns      turns
	containers *containers
	namespaces *namespaces
	keeper     *keeper.Keeper      // keeps near ends of terminals
	kept       map[string]*os.File // the earlier reaper's terminals, by life; only during the start
	leaving    atomic.Bool         // souk has left for good
	idle       chan struct{}       // signals that a reaper that souk has left may be idle now
	startSlots chan struct{}       // a semaphore for starts in progress, see maxStarting

	forkPatience time.Duration // see the constant forkPatience

	mu       sync.Mutex
	machines map[string]*machine
	procs    map[int]any // *life, *execution, *unexecuted or *doomed by pid, children only
	subs     map[*conn]bool
	conns    map[*conn]bool
	places   map[string]int // number of connections by operation
}

// EnvDir is the environment variable with the directory of a reaper.
const EnvDir = "SOUK_REAPER_DIR"

// Names of the files in the directory.
const (
	SocketFile = "reaper.sock"
	LockFile   = "reaper.lock"
	LogFile    = "reaper.log"
)

// Run runs a reaper. It returns when ctx ends, when it cannot start, or when it has been idle for long enough; machines
// keep running in any case.
func Run(ctx context.Context, o Options) error {
	proc.RestoreSignals()
	old, upgraded, err := takeOver()
	if err != nil {
		return err
	}
	lock, err := lockDir(o.Dir, old, upgraded)
	if err != nil {
		return err
	}
	defer lock.Close()
	r := &Reaper{
		dir: o.Dir, home: findHome(o.Dir), build: o.Build, log: o.Log, ctx: ctx, held: lock, old: old,
		machines: make(map[string]*machine), procs: make(map[int]any),
		subs: make(map[*conn]bool), conns: make(map[*conn]bool), places: make(map[string]int),
		rewrite: make(chan struct{}, 1), idle: make(chan struct{}, 1),
		startSlots: make(chan struct{}, maxStarting), pool: newWorkerPool(), at: o.At,
		forkPatience: forkPatience,
	}
	if r.at == nil {
		r.at = func(Point) {}
	}
	if err := r.settleProcess(o); err != nil {
		return err
	}
	r.containers, r.namespaces = newContainers(r), &namespaces{make: r.userNamespace}
	openKeeper(r)
	children := make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)
	defer signal.Stop(children)
	hup := make(chan os.Signal, 1) // caught, not ignored: machines would inherit an ignored signal
	signal.Notify(hup, syscall.SIGHUP, syscall.SIGPIPE)
	defer signal.Stop(hup)
	if err := r.adoptAll(); err != nil {
		return err
	}
	dropKept(r)
	ln, err := unixsock.Listen(filepath.Join(r.dir, SocketFile))
	if err != nil {
		return err
	}
	r.log.Info("reaper listens", "dir", r.dir, "pid", os.Getpid(), "machines", len(r.machines), "lacks", r.lacks,
		"upgraded", upgraded)
	r.stock.makeMissing(r.pool)
	swept := r.containers.sweepAll()
	go r.accept(ln)
	if o.Ready != nil {
		o.Ready()
	}
	return newIdleness(r, ln, o.Idle).tendChildren(ctx, swept, children, hup)
}

// openKeeper connects to the keeper of terminals that an earlier reaper left.
func openKeeper(r *Reaper) {
	dir := filepath.Join(r.dir, "terminals")
	command := os.Args[:max(1, len(os.Args)-1)] // the command of this process, without its directory
	var err error
	r.keeper, r.kept, err = keeper.Open(dir, command, []string{EnvDir + "=" + dir}, startApart(r))
	if err != nil {
		r.log.Error("the terminals of machines are not known", "err", err)
	}
}

// dropKept drops the terminals of lives that are over.
func dropKept(r *Reaper) {
	for name, near := range r.kept {
		r.keeper.Drop(name)
		_ = near.Close()
	}
	r.kept = nil
}

// startApart starts a program that is not a machine's; it is reaped like all children. It forks from another goroutine,
// because the caller's thread may be in a mount namespace of its own, which the program would keep alive.
func startApart(r *Reaper) func(*exec.Cmd) (pid int, err error) {
	return func(cmd *exec.Cmd) (pid int, err error) {
		r.forkMu.Lock()
		defer r.forkMu.Unlock()
		started := make(chan struct{})
		go func() {
			defer close(started)
			if err = cmd.Start(); err == nil {
				pid = cmd.Process.Pid
				err = cmd.Process.Release()
			}
		}()
		<-started
		return pid, err
	}
}

// settleProcess prepares the process to be the parent of machines.
func (r *Reaper) settleProcess(o Options) error {
	// Machines inherit the reaper's attributes, which must not depend on the process that started souk.
	syscall.Umask(0o022)
	if err := unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		r.log.Warn("descriptors that souk was started with may reach machines", "err", err)
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become the parent of orphans: %w", err)
	}
	var err error
	r.young = &young{old: r.freeThread}
	if r.null, err = os.OpenFile(os.DevNull, os.O_RDWR, 0); err != nil {
		return fmt.Errorf("open %s: %w", os.DevNull, err)
	}
	if err := r.openRelay(); err != nil {
		return err
	}
	if err := makeApart(machinesDir(r.dir)); err != nil {
		return fmt.Errorf("make the machines' directories: %w", err)
	}
	if r.stock, err = openStock(machinesDir(r.dir)); err != nil {
		return fmt.Errorf("clear away directories that were never used: %w", err)
	}
	if r.apart = openApart(r.dir, r.log); r.apart.view == nil && os.Geteuid() == 0 {
		r.lacks = append(r.lacks, "mount namespaces")
	}
	if err := r.settleTree(o); err != nil {
		return err
	}
	r.threads = newThreads(r.ctx, r.tree, r.apart.view, r.log)
	r.openings = newOpenings(r.threads)
	if r.tree != nil {
		r.slots = newSlots(r.tree, r.threads)
	}
	return nil
}

// settleTree opens the cgroups for machines.
func (r *Reaper) settleTree(o Options) error {
	if o.NoCgroups {
		r.lacks = append(r.lacks, "cgroups are switched off")
		return nil
	}
	mounts, err := cgroup.Mounts()
	if err != nil {
		return err
	}
	tree, lacks := cgroup.Open(mounts, r.home.tree)
	if r.tree, r.lacks = tree, append(r.lacks, lacks...); tree == nil {
		return nil
	}
	if err := r.tree.Adopt(os.Getpid()); err != nil {
		r.lacks = append(r.lacks, "cgroups: "+err.Error())
		r.tree = nil // without it, a thread could not leave a machine's group
		return nil
	}
	go func() {
		clearAbandoned(r.ctx, r.log, mounts, isTreeName, abandonedPatience)
		clearTables(r.ctx, r.log, mounts, abandonedPatience)
	}()
	return nil
}

// TreeName returns the name of the cgroups of a worker's directory.
func TreeName(dir string) string {
	return fmt.Sprintf("souk-%x", sha256.Sum256([]byte(dir)))[:len("souk-")+12]
}

// isTreeName reports whether a name has the form of TreeName's.
func isTreeName(name string) bool {
	hex, ok := strings.CutPrefix(name, "souk-")
	return ok && len(hex) == 12 && strings.Trim(hex, "0123456789abcdef") == ""
}

// rewriteLives replaces the history in the lives file by the current state.
func (r *Reaper) rewriteLives() error {
	r.compact.Lock()
	defer r.compact.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lives.rewriteFile(r.linesLocked())
}

func (r *Reaper) linesLocked() []line {
	out := []line{r.home.bootLine()}
	for id, m := range r.machines {
		if m.seen > 0 {
			out = append(out, line{Kind: lineSeen, Machine: id, Attempt: m.seen, At: m.started})
		}
		if m.intent != 0 { // before the life, which completes the intent
			out = append(out, line{Kind: lineIntent, Machine: id, Attempt: m.intent, At: m.meant})
		}
		if l := m.life; l != nil && !l.over && (!l.ended || l.rec.Sleep != "") {
			rec := l.rec
			out = append(out, line{Kind: lineRun, Machine: id, Attempt: l.attempt, Life: &rec})
		}
		for _, x := range m.exits {
			out = append(out, line{Kind: lineExit, Machine: id, Attempt: x.Attempt, Exit: &x})
		}
	}
	return out
}

// announceExit sends an exit to all subscribed connections.
func (r *Reaper) announceExit(x runtime.Exit) {
	r.mu.Lock()
	var to []*conn
	for c := range r.subs {
		to = append(to, c)
	}
	r.mu.Unlock()
	for _, c := range to {
		c.sendExit(x)
	}
}

const sendPatience = 10 * time.Second
