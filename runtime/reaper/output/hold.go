package output

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// A machine's output may be meant for one reader, as with "souk run --attach > file". Then the machine waits for the
// reader, as on a pipe, and no file is deleted before it is read. Writer and reader are separate processes, and either
// may be killed, so they coordinate only through the log's directory: a reader locks the file that it reads, and the
// kernel releases the lock when it dies; a marker file says that there is a reader, or will be one.

// marker is the name of the marker file.
const marker = "reader"

// absence is how long a reader may be missing, at the start or later, before the log counts as having none.
const absence = 30 * time.Second

// Expect marks the log in dir as having a reader. It is called before the first Open.
func Expect(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("mark a log as read: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, marker), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("mark a log as read: %w", err)
	}
	return f.Close()
}

// hasReader reports whether the log in dir is marked as having a reader.
func hasReader(dir string) bool {
	_, err := os.Lstat(filepath.Join(dir, marker))
	return err == nil
}

// lockShared takes a shared lock for a reader, or an exclusive one if shared is false. It returns false if the lock is
// taken.
func lockShared(f *os.File, shared bool) bool {
	how := unix.LOCK_EX | unix.LOCK_NB
	if shared {
		how = unix.LOCK_SH // blocks: the writer holds its lock only for a moment
	}
	for {
		if err := unix.Flock(int(f.Fd()), how); !errors.Is(err, unix.EINTR) {
			return err == nil
		}
	}
}

// ErrAgain ends a reading that holds files back: the reader must read again from its last line on.
var ErrAgain = errors.New("the log is read on behind the last line")

// held is the file at which a reading begins, locked: this file and all later ones are kept. Data on its way to the
// reader may be megabytes, and is lost if a connection breaks; so the lock does not advance with the data read here.
// Instead the reader starts a new reading after two files, whose start shows what it has received.
type held struct {
	on    bool
	first uint64
	file  *os.File
}

// takeFile locks a file and keeps it open if it is the first of the reading. It returns whether it did.
func (h *held) takeFile(gen uint64, f *os.File) bool {
	if !h.on || h.file != nil {
		return false
	}
	lockShared(f, true)
	h.first, h.file = gen, f
	return true
}

// needsReread reports whether a reading that has reached the end of a file must be started again.
func (h *held) needsReread(gen uint64) bool { return h.file != nil && gen > h.first }

// isLocked reports whether a reader holds the file.
func isLocked(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close() // releases the lock
	return !lockShared(f, false)
}

// unreadLocked reports whether the oldest of several files must be kept for the reader. gens is sorted. The caller
// holds l.mu.
func (l *Log) unreadLocked(gens []uint64, now time.Time) bool {
	if !l.read || len(gens) < 2 {
		return false
	}
	for i, g := range gens {
		if isLocked(filepath.Join(l.dir, fileName(g))) {
			l.absent = time.Time{}
			return i == 0
		}
	}
	switch {
	case l.absent.IsZero():
		l.absent = now
	case now.Sub(l.absent) >= absence:
		l.read = false
		_ = os.Remove(filepath.Join(l.dir, marker)) // so that the next process does not wait again
	}
	return l.read
}

// Full reports whether the writer should wait for the reader. A writer that does not wait makes the log longer.
func (l *Log) Full() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil || !l.read || l.kept < l.files || l.kept == l.files && l.size+2*batch <= l.maxBytes {
		return false
	}
	gens, err := l.trimLocked()
	return err == nil && len(gens) >= l.files && l.unreadLocked(gens, time.Now())
}

// trimLocked deletes the oldest files beyond the limit, and returns the remaining ones.
func (l *Log) trimLocked() ([]uint64, error) {
	gens, err := listGenerations(l.dir)
	if err != nil {
		return nil, fmt.Errorf("rotate a log: %w", err)
	}
	for len(gens) > l.files && !l.unreadLocked(gens, time.Now()) {
		if err := os.Remove(filepath.Join(l.dir, fileName(gens[0]))); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("rotate a log: %w", err)
		}
		gens = gens[1:]
	}
	l.kept = len(gens)
	return gens, nil
}
