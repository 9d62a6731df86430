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

// maxExits bounds the unacknowledged exits of one machine.
const maxExits = 64

// machine is the reaper's state of one machine. Code that changes the machine holds op; the fields are guarded by
// Reaper.mu.
type machine struct {
	id string
	op sync.Mutex

	uid   int // the machine's own user; 0: none yet. Guarded by op, like owned
	owned int // owner of its directory; 0: root or unknown

	seen    uint64    // the highest attempt started
	started time.Time // start of attempt seen
	intent  uint64    // the attempt whose program is about to run; 0: none
	meant   time.Time // start of attempt intent
	life    *life     // the latest life; nil if none was started since the reaper began
	exits   map[uint64]runtime.Exit
	gone    bool

	watchMu  sync.Mutex
	watchers map[chan struct{}]bool // channels to notify when the log grows; may be nil
}

// life is one attempt of a machine. The fields below the line are guarded by Reaper.mu.
type life struct {
	m       *machine
	attempt uint64
	rec     lifeRecord
	owner   *owner
	env     []string // in memory only; nil for an adopted life
	child   bool     // its process is a child of this process; else it was adopted
	slot    slot     // its cgroup; empty without cgroups

	// slotMu is held while acting on the slot's group as a whole. If slotGone is set, the group belongs to another
	// life.
	slotMu   sync.Mutex
	slotGone bool
	log      *output.Log
	streams  [2]*stream
	pumps    pumps
	done     chan struct{} // closed when the life is over and its exit is announced
	saved    chan error    // receives the result of its checkpoint, once; buffered
	refusals int           // consecutive refusals to restore its checkpoint; guarded by machine.op
	// ---
	ended bool // the main process has ended, and the rest is being cleared away, unless the life is on disk
	over  bool // done is closed
	shot  bool // souk has sent SIGKILL, so the end is not an OOM kill
	code  int  // exit code, once over is set
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

// statusLocked returns the status of the machine's latest attempt. The caller holds Reaper.mu.
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

// notifyWatchers notifies the watchers that the log has grown. It does not block.
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

// watchLog returns a channel that receives a value when the log has grown, and is closed when the machine is removed.
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

// CheckID refuses machine ids that are not plain file names.
func CheckID(id string) error {
	odd := func(c rune) bool { return (c < 'a' || c > 'z') && (c < '0' || c > '9') }
	if id == "" || len(id) > 64 || strings.ContainsFunc(id, odd) {
		return fault.New(fault.Invalid, runtime.CodeMachineID,
			"%.80q is not a machine id: use 1 to 64 lower-case letters and digits", id)
	}
	return nil
}

// The directories of a worker.
func machinesDir(dir string) string { return filepath.Join(dir, "machines") }
func logsDir(dir string) string     { return filepath.Join(dir, "logs") }

// RootDir is a machine's own directory: its current directory, its files, its mounts.
func RootDir(dir, id string) string { return filepath.Join(machinesDir(dir), id) }

// LogDir is the directory of a machine's log, once it has printed anything. The machine cannot write to it.
func LogDir(dir, id string) string { return filepath.Join(logsDir(dir), id) }

// findMachine returns a prepared machine.
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

// lockMachine locks the machine for a change, unless it has been removed meanwhile.
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

// listStatuses returns the status of every machine, by id.
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

// forgetExit drops an acknowledged exit.
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

// recordLine appends a line to the lives file and applies the change to memory (under Reaper.mu), so that a rewrite of
// the file sees both or neither.
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
			"the reaper cannot write its file of running programs; free space in %s", r.dir)
	}
	if full {
		select {
		case r.rewrite <- struct{}{}:
		default:
		}
	}
	return nil
}

// killMachine kills all processes of a machine and waits until its life is over.
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
	unfound := r.killAll(l)
	err := l.waitUntilOver(killPatience)
	if err != nil && unfound != nil {
		return fault.Wrap(unfound, fault.Unavailable, codeUnkillable,
			"the processes of machine %s cannot be found now, so that some of them may run on", id)
	}
	return err
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
	all, err := proc.All() // children of the previous reaper have another parent now
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

// hasProcess reports whether a process certainly belongs to the life, wherever it moved: it runs as the machine's own
// user, or still has the machine's environment.
func (l *life) hasProcess(pid int) bool {
	has, _ := l.ownsProcess(pid)
	return has
}

// ownsProcess is hasProcess with the error.
func (l *life) ownsProcess(pid int) (bool, error) {
	if l.owner != nil && users.Is(l.owner.uid) {
		uid, err := proc.UserOf(pid)
		return err == nil && uid == l.owner.uid, err
	}
	env, err := proc.Environ(pid)
	return slices.Contains(env, runtime.EnvMachine+"="+l.m.id), err
}

func (l *life) String() string { return fmt.Sprintf("%s/%d", l.m.id, l.attempt) }
