package reaper

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/reaper/output"
	"github.com/soukhq/souk/runtime/reaper/proc"
	"github.com/soukhq/souk/runtime/reaper/users"
)

// maxExits bounds how many ended attempts of one machine may wait for their acknowledgement.
const maxExits = 64

// machine is all the reaper knows of one machine. op is held by whoever changes it; the fields are under Reaper.mu.
type machine struct {
	id string
	op sync.Mutex

	uid   int // of its own; 0: none yet. Under op, as owned
	owned int // whose its directory is; 0: root's or not known

	seen    uint64    // the highest attempt that was started
	started time.Time // when that was
	intent  uint64    // the attempt whose program is about to run; 0: none
	meant   time.Time // when that was begun
	life    *life     // the latest, nil when none was started since the reaper began
	exits   map[uint64]runtime.Exit
	gone    bool

	watchMu  sync.Mutex
	watchers map[chan struct{}]bool // true while somebody is told when the log grows; nil when nobody is
}

// life is one attempt of a machine. The fields below the line are under Reaper.mu.
type life struct {
	m       *machine
	attempt uint64
	rec     lifeRecord
	owner   *owner
	env     []string // in memory only; nil for a life that was adopted
	child   bool     // of this process; else it was adopted
	slot    slot     // its cgroup; empty without cgroups

	// slotMu is held by whoever acts on the slot's group as a whole. When slotGone is set the group is another life's.
	slotMu   sync.Mutex
	slotGone bool
	log      *output.Log
	streams  [2]*stream
	pumps    pumps
	done     chan struct{} // closed when the life is over and its exit is announced
	saved    chan error    // says, once, what came of its checkpoint; has room for it
	refusals int           // of its checkpoint, in a row; under machine.op
	// ---
	ended bool // the main process has ended, the rest is being cleared away, unless it sleeps
	over  bool // done is closed
	shot  bool // souk has sent SIGKILL: its end is not the kernel's doing
	code  int  // how it ended, once it is over
}

func (l *life) statusNow() runtime.Status {
	s := runtime.Status{Machine: l.m.id, Attempt: l.attempt, StartedAt: l.rec.StartedAt}
	switch {
	case !l.over && l.isAsleep():
		s.Running, s.Paused, s.OnDisk = true, true, true
		return s
	case !l.over:
		s.PID, s.Running, s.Paused = l.rec.PID, true, l.rec.Paused
		return s
	}
	if x, ok := l.m.exits[l.attempt]; ok {
		s.Exit = &x
	}
	return s
}

// statusLocked tells of the machine's latest attempt.
func (m *machine) statusLocked() runtime.Status {
	if m.life != nil {
		return m.life.statusNow()
	}
	s := runtime.Status{Machine: m.id, Attempt: m.seen, StartedAt: m.started}
	if x, ok := m.exits[m.seen]; ok {
		s.Exit = &x
		if s.StartedAt.IsZero() {
			s.StartedAt = x.At
		}
	}
	return s
}

// notifyWatchers tells the watchers that there is more log. It never waits.
func (m *machine) notifyWatchers() {
	m.watchMu.Lock()
	defer m.watchMu.Unlock()
	for c := range m.watchers {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// watchLog gives a channel that gets a value when the log has grown, and is closed when the machine is removed.
func (m *machine) watchLog() (c chan struct{}, stop func()) {
	c = make(chan struct{}, 1)
	m.watchMu.Lock()
	defer m.watchMu.Unlock()
	if m.watchers == nil {
		m.watchers = make(map[chan struct{}]bool)
	}
	m.watchers[c] = true
	return c, func() {
		m.watchMu.Lock()
		defer m.watchMu.Unlock()
		delete(m.watchers, c)
	}
}

func (m *machine) endWatches() {
	m.watchMu.Lock()
	defer m.watchMu.Unlock()
	for c := range m.watchers {
		close(c)
	}
	m.watchers = nil
}

// CheckID refuses machine ids that could be anything but a plain file name.
func CheckID(id string) error {
	odd := func(c rune) bool { return (c < 'a' || c > 'z') && (c < '0' || c > '9') }
	if id == "" || len(id) > 64 || strings.ContainsFunc(id, odd) {
		return fault.New(fault.Invalid, runtime.CodeMachineID,
			"%.80q is not a machine id: use 1 to 64 lower-case letters and digits", id)
	}
	return nil
}

// Dirs of a worker and of one machine.
func machinesDir(dir string) string { return filepath.Join(dir, "machines") }
func logsDir(dir string) string     { return filepath.Join(dir, "logs") }

// RootDir is where a machine works: its current directory, its files, its mounts.
func RootDir(dir, id string) string { return filepath.Join(machinesDir(dir), id) }

// LogDir is where a machine's output is kept, once there is any. The machine cannot write it.
func LogDir(dir, id string) string { return filepath.Join(logsDir(dir), id) }

// findMachine gives a machine that was prepared.
func (r *Reaper) findMachine(id string) (*machine, error) {
	if err := CheckID(id); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := r.machines[id]; m != nil {
		return m, nil
	}
	return nil, fault.New(fault.NotFound, runtime.CodeUnknownMachine,
		"the process runtime does not know a machine %s: it was never prepared here, or was removed", id)
}

// lockMachine takes the machine for a change, unless it is removed meanwhile.
func (r *Reaper) lockMachine(m *machine) error {
	m.op.Lock()
	r.mu.Lock()
	defer r.mu.Unlock()
	if m.gone {
		m.op.Unlock()
		return fault.New(fault.NotFound, runtime.CodeUnknownMachine, "the machine %s has just been removed", m.id)
	}
	return nil
}

// prepareMachine makes the machine's directories.
func (r *Reaper) prepareMachine(id string) error {
	if err := CheckID(id); err != nil {
		return err
	}
	r.mu.Lock()
	_, there := r.machines[id]
	r.mu.Unlock()
	uid, err := r.stock.makeMachineDir(id)
	if err != nil {
		return fault.Wrap(err, fault.Unavailable, runtime.CodeDirectory,
			"the directory of machine %s cannot be made", id)
	}
	if there {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.machines[id] == nil {
		r.machines[id] = &machine{id: id, uid: uid, owned: uid}
	}
	return nil
}

// listStatuses tells of every machine, in order of id.
func (r *Reaper) listStatuses() []runtime.Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]runtime.Status, 0, len(r.machines))
	for _, m := range r.machines {
		out = append(out, m.statusLocked())
	}
	slices.SortFunc(out, func(a, b runtime.Status) int {
		if a.Machine < b.Machine {
			return -1
		}
		return 1
	})
	return out
}

// forgetExit forgets an exit.
func (r *Reaper) forgetExit(id string, attempt uint64) error {
	if err := CheckID(id); err != nil {
		return err
	}
	r.mu.Lock()
	m := r.machines[id]
	if m == nil || m.exits == nil {
		r.mu.Unlock()
		return nil
	}
	_, ok := m.exits[attempt]
	r.mu.Unlock()
	if !ok {
		return nil
	}
	return r.recordLine(line{Kind: lineAck, Machine: id, Attempt: attempt}, func() { delete(m.exits, attempt) })
}

// recordLine writes a line of the lives file and applies the same change to memory (under Reaper.mu), so that a rewrite
// of the file sees both or neither.
func (r *Reaper) recordLine(n line, apply func()) error {
	r.compact.RLock()
	err := r.lives.appendLine(n)
	r.mu.Lock()
	if err == nil && apply != nil {
		apply()
	}
	full := r.lives.needsRewrite(len(r.machines))
	r.mu.Unlock()
	r.compact.RUnlock()
	if err != nil {
		return fault.Wrap(err, fault.Unavailable, fault.CodeLives,
			"the reaper cannot write its file of lives; free space in %s", r.dir)
	}
	if full {
		select {
		case r.rewrite <- struct{}{}:
		default:
		}
	}
	return nil
}

// killMachine ends all processes of a machine and waits until its life is over.
func (r *Reaper) killMachine(id string) error {
	if err := CheckID(id); err != nil {
		return err
	}
	r.mu.Lock()
	m := r.machines[id]
	var l *life
	if m != nil && m.life != nil && !m.life.over {
		l = m.life
	}
	sleeps := l != nil && l.isAsleep()
	r.mu.Unlock()
	if l == nil {
		return nil
	}
	if sleeps {
		return endAsleep(r, l, runtime.Exit{Code: 128 + int(syscall.SIGKILL), Signal: int(syscall.SIGKILL)})
	}
	r.killAll(l)
	return l.waitUntilOver(killPatience)
}

const killPatience = 10 * time.Second

func (l *life) waitUntilOver(d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-l.done:
		return nil
	case <-t.C:
		return fault.New(fault.Unavailable, codeUnkillable,
			"machine %s was sent SIGKILL %s ago and has not ended: it waits in the kernel, most often for a disk or "+
				"a network file system", l.m.id, d)
	}
}

// lifePIDs lists the running processes of a life.
func (r *Reaper) lifePIDs(l *life) []int {
	if r.tree != nil {
		return l.slot.group.PIDs()
	}
	reaper := 0
	if l.child {
		reaper = os.Getpid()
	}
	pids := proc.Below(l.rec.PID, reaper, r.apart.dirOf(l))
	if l.child {
		return pids
	}
	all, err := proc.All() // what the reaper before this one was the parent of is anybody's child now
	if err != nil {
		return pids
	}
	for _, s := range all {
		if s.State != 'Z' && !slices.Contains(pids, s.PID) && l.hasProcess(s.PID) {
			pids = append(pids, s.PID)
		}
	}
	return pids
}

// hasProcess reports whether a process is one of the life's for certain, wherever it went: nobody else has its user, or
// it still has the environment that the machine was given.
func (l *life) hasProcess(pid int) bool {
	if l.owner != nil && users.Is(l.owner.uid) {
		return proc.User(pid) == l.owner.uid
	}
	return proc.Has(pid, runtime.EnvMachine+"="+l.m.id)
}

func (l *life) String() string { return fmt.Sprintf("%s/%d", l.m.id, l.attempt) }
