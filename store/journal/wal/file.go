package wal

import (
	"errors"
	"io"
	"os"
	"syscall"

	"github.com/soukhq/souk/store/journal"
)

// logFile is one log. One goroutine at a time appends to it.
type logFile struct {
	f          *os.File
	generation uint64
	size       int64
	end        int64  // offset of the next frame
	number     uint64 // of the next frame
	buf        []byte // for the next frame
	written    int64  // bytes after end that are written but not synced: one frame at most
}

// keptBuffer bounds the buffer that is kept from one write to the next.
const keptBuffer = 256 << 10

// createLog makes an empty log, durably, and replaces an existing file at path: an empty log, or one whose content the
// journal has.
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

// reuseFor empties the log and gives it a generation. It writes zeros first, and the header once they are on disk: an
// old frame is never seen after a new header.
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

// writeFrame appends one frame; call commitFrame next.
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

// commitFrame waits until the written frame is on disk.
func (l *logFile) commitFrame() error {
	if err := l.syncData(); err != nil {
		return err
	}
	l.end += l.written
	l.number++
	l.written = 0
	return nil
}

// syncData waits until written data is on disk. The file's size and blocks never change, so fdatasync suffices.
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
