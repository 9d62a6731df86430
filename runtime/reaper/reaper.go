// Package reaper is the small process that is the parent of every machine of one worker.
//
// It outlives souk: it waits for the machines, takes in their output, and keeps how they ended until souk has
// journalled it. There is one reaper a worker, not one a machine, so that a thousand machines cost little memory.
// souk asks it over a unix socket (package frame). It decides nothing by itself and reads no configuration.
//
// When the reaper itself is killed, machines go on: their pipes are open at both ends on their side, so they see no
// EPIPE; the next reaper finds them by pid and start time, opens the pipes again, and learns by pidfd how they end.
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
	Dir       string        // of the worker's process runtime; absolute
	NoCgroups bool          // behave as on a host where none can be written
	Build     string        // names the program, so that a newer one can tell
	Ready     func()        // called once the socket listens; may be nil
	Idle      time.Duration // how long it stays with nothing to do; 0: a minute
	Log       *slog.Logger

	// At is called where a kill -9 of the reaper would hurt most, for tests; may be nil.
	At func(Point)
}

// Point is a place in a start.
type Point string

// The points that Options.At is told.
const (
	PointIntent Point = "intent" // the attempt is written down, and its program does not run yet
	PointForked Point = "forked" // the program runs, and nothing of it is written down yet
)

// Reaper is the running state. Locks are taken in this order: gate, machine.op, forkMu, compact, mu.
type Reaper struct {
	dir     string
	home    home
	build   string
	log     *slog.Logger
	ctx     context.Context
	tree    *cgroup.Tree // nil: no cgroups
	slots   *slots       // nil without tree
	threads *threads     // that fork; nil only in tests: any does
	apart   *apart
	lacks   []string
	lives   *lives
	out     *outputs
	stock   *stock
	young   *young
	null    *os.File
	held    *os.File // the lock of the directory
	old     handover // of the image before, when there was one
	at      func(Point)

	gate       sync.RWMutex // held for reading by requests, for writing by an upgrade
	forkMu     sync.Mutex   // held over fork+register and over wait: no child is waited for before it is registered
	compact    sync.RWMutex
	rewrite    chan struct{}
	pool       *workerPool
	turns      turns
	containers *containers
	namespaces *namespaces
	keeper     *keeper.Keeper      // of the near ends of terminals
	kept       map[string]*os.File // what it had of the reaper before, by life; only while this one begins
	leaving    atomic.Bool         // souk has left, and expects nothing to go on
	idle       chan struct{}       // it may have nothing to do any more, and is leaving
	startSlots chan struct{}       // one is held by each start that is under way, see maxStarting

	forkPatience time.Duration // see there

	mu       sync.Mutex
	machines map[string]*machine
	procs    map[int]any // pid -> *life or *execution, children only
	subs     map[*conn]bool
	conns    map[*conn]bool
	places   map[string]int // conns by what they are for
}

// EnvDir is set to the directory for every reaper.
const EnvDir = "SOUK_REAPER_DIR"

// Names of the files in the directory.
const (
	SocketFile = "reaper.sock"
	LockFile   = "reaper.lock"
	LogFile    = "reaper.log"
)

// Run is the reaper. It returns when ctx ends or it cannot begin; machines go on in either case. It also returns when
// there is nothing to do for it any more.
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
	hup := make(chan os.Signal, 1) // caught, not ignored: machines must not inherit an ignored signal
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

// openKeeper finds what a reaper before this one had of terminals.
func openKeeper(r *Reaper) {
	dir := filepath.Join(r.dir, "terminals")
	command := os.Args[:max(1, len(os.Args)-1)] // what this process was started by, but for its directory
	var err error
	r.keeper, r.kept, err = keeper.Open(dir, command, []string{EnvDir + "=" + dir}, startApart(r))
	if err != nil {
		r.log.Error("the terminals of machines are not known", "err", err)
	}
}

// dropKept lets go of the terminals of lives that are over.
func dropKept(r *Reaper) {
	for name, near := range r.kept {
		r.keeper.Drop(name)
		_ = near.Close()
	}
	r.kept = nil
}

// startApart starts a program that is no machine's. It is waited for as all children are. Whoever asks may be on a
// thread that is in a mount namespace of its own, which the program would keep in being.
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

// settleProcess makes the process what a parent of machines must be.
func (r *Reaper) settleProcess(o Options) error {
	// Machines inherit what the reaper has, which is to be the same whoever started souk.
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
	if r.tree != nil {
		r.slots = newSlots(r.tree, r.threads)
	}
	return nil
}

// settleTree finds the cgroups that machines are put in.
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
		r.tree = nil // without it a thread could not leave a machine's group again
		return nil
	}
	go func() {
		clearAbandoned(r.ctx, r.log, mounts, isTreeName, abandonedPatience)
		clearTables(r.ctx, r.log, mounts, abandonedPatience)
	}()
	return nil
}

// TreeName names the cgroups of a worker's directory.
func TreeName(dir string) string {
	return fmt.Sprintf("souk-%x", sha256.Sum256([]byte(dir)))[:len("souk-")+12]
}

// isTreeName reports whether TreeName may have given a name.
func isTreeName(name string) bool {
	hex, ok := strings.CutPrefix(name, "souk-")
	return ok && len(hex) == 12 && strings.Trim(hex, "0123456789abcdef") == ""
}

// rewriteLives puts what is true now in place of the history.
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
		if m.intent != 0 { // before the life, which fulfils it
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

// announceExit tells everyone who listens of an exit.
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
