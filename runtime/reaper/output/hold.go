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

// What a machine prints may be meant for one reader, as with "souk run --attach > file": then the machine waits for the
// reader, as on a pipe, and no file is deleted that he has not read. Both sides are processes of their own, and either
// may be killed, so they agree by the log's directory alone: a reader has a lock on the file that he reads, which ends
// with him, and a marker says that there is one, or will be.

// marker is the name of what says that the log has a reader.
const marker = "reader"

// absence is how long a log's reader may be missing, at its start or later, before it has none any more.
const absence = 30 * time.Second

// Expect says that the log in dir will have a reader. It is called before the first Open.
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

// hasReader reports whether the log in dir has a reader, or will.
func hasReader(dir string) bool {
	_, err := os.Lstat(filepath.Join(dir, marker))
	return err == nil
}

// lockShared takes a lock that several may have; shared is a reader's. false: it is another's.
func lockShared(f *os.File, shared bool) bool {
	how := unix.LOCK_EX | unix.LOCK_NB
	if shared {
		how = unix.LOCK_SH // the writer has his for a moment
	}
	for {
		if err := unix.Flock(int(f.Fd()), how); !errors.Is(err, unix.EINTR) {
			return err == nil
		}
	}
}

// ErrAgain ends a reading for which files are kept: the reader is to begin again behind the last line that he has.
var ErrAgain = errors.New("the log is read on behind the last line")

// held is the file at which a reading begins, with a lock on it: it and all behind it are kept. Megabytes may be on
// their way to who reads, on any number of connections, and are lost with them; so the lock does not follow what was
// read here. Who reads asks again after two files, and so says what he has.
type held struct {
	on    bool
	first uint64
	file  *os.File
}

// takeFile has the reading go on in a file, which is held's if it is the first.
func (h *held) takeFile(gen uint64, f *os.File) bool {
	if !h.on || h.file != nil {
		return false
	}
	lockShared(f, true)
	h.first, h.file = gen, f
	return true
}

// needsReread reports whether a reading that has come to the end of a file must begin again.
func (h *held) needsReread(gen uint64) bool { return h.file != nil && gen > h.first }

// isLocked reports whether a reader has the file.
func isLocked(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close() // and with it the lock
	return !lockShared(f, false)
}

// unreadLocked reports whether the oldest of several files must be kept for the reader. gens is sorted.
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
		_ = os.Remove(filepath.Join(l.dir, marker)) // else the next process waits once more
	}
	return l.read
}

// Full reports whether the reader must read on before more is written. Who goes on all the same makes the log longer.
func (l *Log) Full() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil || !l.read || l.kept < l.files || l.kept == l.files && l.size+2*batch <= l.maxBytes {
		return false
	}
	gens, err := l.trimLocked()
	return err == nil && len(gens) >= l.files && l.unreadLocked(gens, time.Now())
}

// trimLocked deletes the oldest files that are too many, and gives those that are left.
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
