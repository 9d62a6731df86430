package reaper

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/fault"
)

// An upgrade executes another program in the reaper's place with exec(2): the process id stays, and with it all
// children, the lock and, passed on by number, the pipes. Everything else that the next image needs is in the lives
// file already, except environments, which are never on disk: it reads them from the processes. Nothing else is handed
// over, so that two builds have little to agree on.

// EnvResume names the descriptor of the handover. Only a process that is being upgraded has it.
const EnvResume = "SOUK_REAPER_RESUME"

// handover is what one image passes to the next.
type handover struct {
	Lock  int               `json:"lock"`
	Pipes map[string][2]int `json:"pipes"` // machine -> stdout, stderr; -1: none
}

const quietPatience = 5 * time.Second

// upgradeTo executes argv in the reaper's place. It returns only if that failed; then everything is as before.
func (r *Reaper) upgradeTo(argv []string) error {
	if len(argv) == 0 {
		return fault.New(fault.Invalid, fault.CodeUpgrade, "no program is named that is to replace the reaper")
	}
	if err := syscall.Access(argv[0], 1); err != nil { // X_OK
		return fault.Wrap(err, fault.Precondition, fault.CodeUpgrade, "the program %s cannot replace the reaper",
			argv[0])
	}
	if err := r.lockGateIfIdle(); err != nil {
		return err
	}
	defer r.gate.Unlock()
	r.forkMu.Lock() // from here on nothing is forked or waited for
	defer r.forkMu.Unlock()
	lives := r.runningLives()
	for _, l := range lives {
		l.stopPumps()
	}
	resume := func() {
		for _, l := range lives {
			l.goOn()
		}
	}
	fd, err := r.writeHandover(lives)
	if err != nil {
		resume()
		return fault.Wrap(err, fault.Unavailable, fault.CodeUpgrade, "the reaper cannot be upgraded now")
	}
	env := append(os.Environ(), EnvResume+"="+strconv.Itoa(fd))
	for i, kv := range env { // the worker's directory may have been moved
		if strings.HasPrefix(kv, EnvDir+"=") {
			env[i] = EnvDir + "=" + argv[len(argv)-1]
		}
	}
	err = syscall.Exec(argv[0], argv, env)
	_ = unix.Close(fd)
	r.keepPipes(lives, true)
	resume()
	return fault.Wrap(err, fault.Unavailable, fault.CodeUpgrade, "the program %s cannot replace the reaper", argv[0])
}

// lockGateIfIdle locks the gate once no request is in progress, no command runs and no life is being cleaned up.
func (r *Reaper) lockGateIfIdle() error {
	deadline := time.Now().Add(quietPatience)
	for {
		r.gate.Lock()
		r.mu.Lock()
		busy := ""
		for _, p := range r.procs {
			if _, ok := p.(*execution); ok {
				busy = "a command runs in a machine"
			}
		}
		for _, m := range r.machines {
			if m.life != nil && m.life.ended && !m.life.over && !m.life.isAsleep() {
				busy = "machine " + m.id + " is ending"
			}
		}
		r.mu.Unlock()
		if busy == "" {
			return nil
		}
		r.gate.Unlock()
		if time.Now().After(deadline) {
			return fault.New(fault.Unavailable, fault.CodeBusy,
				"the reaper cannot be upgraded while %s: it is tried again with the next start of souk", busy)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (r *Reaper) runningLives() []*life {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []*life
	for _, m := range r.machines {
		if m.life != nil && !m.life.over {
			out = append(out, m.life)
		}
	}
	return out
}

// stopPumps stops the pumps. What they have read is then in the log, an unfinished line as a part.
func (l *life) stopPumps() {
	for _, s := range l.streams {
		if s != nil {
			s.resting.Store(true)
			// an error means that the pipe was closed, and then it has no pump either
			_ = s.file.SetReadDeadline(time.Unix(1, 0))
		}
	}
	<-l.pumps.whenRested()
	for _, s := range l.streams {
		if s != nil {
			s.sink.Cut(time.Now())
		}
	}
}

// goOn undoes stopPumps.
func (l *life) goOn() {
	for _, s := range l.streams {
		if s != nil && s.resting.Swap(false) && !s.ended {
			_ = s.file.SetReadDeadline(time.Time{})
			l.pumps.startPump(s)
		}
	}
}

// writeHandover writes the handover into an anonymous memory file, and clears close-on-exec of all that is handed over.
func (r *Reaper) writeHandover(lives []*life) (int, error) {
	h := handover{Lock: int(r.held.Fd()), Pipes: make(map[string][2]int)}
	for _, l := range lives {
		fds := [2]int{-1, -1}
		for i, s := range l.streams {
			if s != nil && !s.ended {
				fds[i] = s.fd
			}
		}
		h.Pipes[l.m.id] = fds
	}
	b, err := json.Marshal(h)
	if err != nil {
		return 0, fmt.Errorf("encode the handover: %w", err)
	}
	fd, err := unix.MemfdCreate("souk-reaper", 0) // without MFD_CLOEXEC: the next image reads it
	if err != nil {
		return 0, fmt.Errorf("make the handover: %w", err)
	}
	if _, err := unix.Pwrite(fd, b, 0); err != nil {
		return 0, errors.Join(fmt.Errorf("write the handover: %w", err), unix.Close(fd))
	}
	r.keepPipes(lives, false)
	return fd, nil
}

// keepPipes sets or clears close-on-exec of all that is handed over.
func (r *Reaper) keepPipes(lives []*life, closeOnExec bool) {
	flag := 0
	if closeOnExec {
		flag = unix.FD_CLOEXEC
	}
	set := func(fd int) { _, _ = unix.FcntlInt(uintptr(fd), unix.F_SETFD, flag) }
	set(int(r.held.Fd()))
	for _, l := range lives {
		for _, s := range l.streams {
			if s != nil && !s.ended {
				set(s.fd)
			}
		}
	}
}

// takeOver reads what the previous image handed over. ok is false for a reaper that was not upgraded.
func takeOver() (h handover, ok bool, err error) {
	n, err := strconv.Atoi(os.Getenv(EnvResume))
	if err != nil {
		return h, false, nil
	}
	if err := os.Unsetenv(EnvResume); err != nil {
		return h, false, err
	}
	f := os.NewFile(uintptr(n), "handover")
	defer f.Close()
	if err := json.NewDecoder(io.NewSectionReader(f, 0, 64<<20)).Decode(&h); err != nil {
		return h, false, fmt.Errorf("read the handover: %w", err)
	}
	return h, true, nil
}
