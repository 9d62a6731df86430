package wal

import (
	"errors"
	"io"
	"os"
	"syscall"

	"github.com/soukhq/souk/store/journal"
)

// logFile is one log. It is appended to by one goroutine at a time.
type logFile struct {
	f          *os.File
	generation uint64
	size       int64
	end        int64  // where the next frame goes
	number     uint64 // of the next frame
	buf        []byte // for the next frame
	written    int64  // bytes behind end that are written and not synced: one frame at most
}

// keptBuffer is how large a buffer is kept from one write to the next.
const keptBuffer = 256 << 10

// createLog makes a log, durably, in place of what lies at path: an empty one, or one whose content the journal has.
func createLog(path string, generation uint64, size int64) (*logFile, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, openError(err, path)
	}
	l := &logFile{f: f, size: size}
	if err := errors.Join(f.Truncate(size), l.reuseFor(generation), journal.SyncDir(path)); err != nil {
		return nil, errors.Join(openError(err, path), f.Close())
	}
	return l, nil
}

// reuseFor makes the log empty and gives it a generation. Zeros first, the header when they are on disk: a log is never
// seen with an old frame behind a new header.
func (l *logFile) reuseFor(generation uint64) error {
	zeros := make([]byte, 256<<10)
	for at := int64(0); at < l.size; at += int64(len(zeros)) {
		if _, err := l.f.WriteAt(zeros[:min(int64(len(zeros)), l.size-at)], at); err != nil {
			return err
		}
	}
	if err := l.f.Sync(); err != nil {
		return err
	}
	if _, err := l.f.WriteAt(encodeHeader(generation), 0); err != nil {
		return err
	}
	l.generation, l.end = generation, headerSize
	return l.syncData()
}

func (l *logFile) freeBytes() int64 { return l.size - l.end }

// writeFrame appends one frame, which is to be committed.
func (l *logFile) writeFrame(bodies [][]byte) error {
	b := appendFrame(l.buf[:0], bodies, l.number)
	if cap(b) <= keptBuffer {
		l.buf = b
	}
	if _, err := l.f.WriteAt(b, l.end); err != nil {
		return err
	}
	l.written = int64(len(b))
	return nil
}

// commitFrame waits until the frame that was written is on disk.
func (l *logFile) commitFrame() error {
	if err := l.syncData(); err != nil {
		return err
	}
	l.end += l.written
	l.number++
	l.written = 0
	return nil
}

// syncData waits until what was written is on disk. The file's size and blocks never change, so data is all there is.
func (l *logFile) syncData() error {
	c, err := l.f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = c.Control(func(fd uintptr) {
		for failed = syscall.Fdatasync(int(fd)); failed == syscall.EINTR; { //nolint:errorlint // a plain errno
			failed = syscall.Fdatasync(int(fd))
		}
	})
	return errors.Join(err, failed)
}

func (l *logFile) readAll() ([]byte, error) {
	raw := make([]byte, l.size)
	_, err := io.ReadFull(io.NewSectionReader(l.f, 0, l.size), raw)
	return raw, err
}

func (l *logFile) close() error { return l.f.Close() }
