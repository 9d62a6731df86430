package output

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Sink splits one stream into lines. It must not be used concurrently. It uses memory, and a file of the spool, only
// while a line is incomplete.
type Sink struct {
	log     *Log
	src     Source
	pending []byte // the incomplete line

	spool *Spool     // nil: output is kept in memory
	file  *spoolFile // contains the pending output, and what Take adds; nil if there is none
	from  int64      // offset of pending in file
	last  int64      // the last stamp; each write has a different one
}

// Sink returns a writer of a stream (stdout or stderr) that keeps output in memory.
func (l *Log) Sink(stream string) *Sink { return &Sink{log: l, src: Source{Stream: stream}} }

// Sink returns the writer of a stream; if s is nil, one that keeps output in memory. It first moves output of the
// stream that an earlier process left in the spool to the log; an error means that some of that is lost.
func (s *Spool) Sink(l *Log, src Source) (*Sink, error) {
	k := &Sink{log: l, src: src, spool: s}
	if s == nil {
		return k, nil
	}
	f := s.takeLeft(src)
	if f == nil {
		return k, nil
	}
	k.last = f.head.stamp
	n, err := l.loggedBytes(linePrefix(time.Unix(0, f.head.stamp), src.Stream))
	raw := make([]byte, f.end-f.head.start)
	if err == nil {
		err = f.readTail(raw)
	}
	if err != nil {
		s.giveBack(f)
		return k, fmt.Errorf("take up output that an earlier reaper left: %w", err)
	}
	n = min(n, int64(len(raw))) // never more than there is, whatever the log says
	k.file, k.from = f, f.head.start+n
	k.Write(raw[n:], time.Now())
	return k, nil
}

// Take moves data from the pipe to the log, at most len(buf) bytes. It returns EAGAIN if the pipe is empty, and io.EOF
// if it has no writer any more.
func (s *Sink) Take(pipe int, buf []byte) error {
	at := s.nextTime(time.Now())
	if s.claimFile(at); s.file == nil {
		return s.readDirect(pipe, buf, at)
	}
	n, err := s.file.moveFromPipe(pipe, len(buf))
	switch {
	case n > 0:
		if err := s.file.readTail(buf[:n]); err != nil {
			s.releaseFile()
			return err
		}
		s.Write(buf[:n], at)
		return nil
	case err == nil:
		err = io.EOF
	case errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR):
	default: // usually the disk is full
		if errors.Is(err, unix.EINVAL) {
			s.spool.off.Store(true)
		}
		s.releaseFile()
		return s.readDirect(pipe, buf, at)
	}
	s.releaseLogged()
	return err
}

// Full is Full of the log.
func (s *Sink) Full() bool { return s.log.Full() }

// readDirect is Take without a spool.
func (s *Sink) readDirect(pipe int, buf []byte, at time.Time) error {
	n, err := syscall.Read(pipe, buf)
	switch {
	case err != nil:
		return err
	case n == 0:
		return io.EOF
	}
	s.Write(buf[:n], at)
	return nil
}

// claimFile makes sure that the stream has a file of the spool, and records in it where the output that is not logged
// begins. If no file is available, s.file stays nil, and output is kept in memory.
func (s *Sink) claimFile(at time.Time) {
	switch {
	case s.file != nil && s.file.end > spoolBytes:
		s.moveOver(at)
	case s.file == nil && len(s.pending) == 0:
		if s.file = s.spool.takeFree(); s.file != nil {
			s.from = s.file.end
		}
	}
	s.commitStamp(at)
}

// moveOver moves the incomplete line to another file, so that this one can be truncated.
func (s *Sink) moveOver(at time.Time) {
	f := s.spool.takeFree()
	if f == nil {
		return
	}
	from := f.end
	if err := f.appendBytes(s.pending); err != nil {
		s.spool.giveBack(f)
		return
	}
	old := s.file
	s.file, s.from = f, from
	s.commitStamp(at) // of two files of one stream, the later stamp is valid
	s.spool.giveBack(old)
}

// commitStamp records in the file the stamp of the next lines, and the offset of their output.
func (s *Sink) commitStamp(at time.Time) {
	f, nanos := s.file, at.UnixNano()
	if f == nil || f.head.src.Machine != "" && f.head.start == s.from && f.head.stamp == nanos {
		return
	}
	h := head{src: s.src, start: s.from, stamp: nanos, bytes: s.log.maxBytes, files: s.log.files}
	if err := f.writeHead(h); err != nil {
		s.releaseFile()
	}
}

// releaseFile gives the file back: pending output is then only in memory.
func (s *Sink) releaseFile() {
	if s.file != nil {
		s.spool.giveBack(s.file)
		s.file = nil
	}
}

// releaseLogged gives the file back if everything in it has been logged.
func (s *Sink) releaseLogged() {
	if len(s.pending) == 0 {
		s.releaseFile()
	}
}

// nextTime returns a time that no line has yet.
func (s *Sink) nextTime(now time.Time) time.Time {
	s.last = max(s.last+1, now.UnixNano())
	return time.Unix(0, s.last)
}

// Write splits a piece of output into lines and logs them.
func (s *Sink) Write(p []byte, at time.Time) {
	if at.UnixNano() != s.last {
		at = s.nextTime(at)
	}
	head := linePrefix(at, s.src.Stream)
	out := make([]byte, 0, min(len(p)+len(p)/4+len(head), batch))
	raw := int64(0) // bytes of output in out
	flush := func() {
		if len(out) > 0 {
			s.commitStamp(at)
			s.log.writeLines(out, raw)
			s.from += raw
			out, raw = out[:0], 0
			at = s.nextTime(at)
			head = linePrefix(at, s.src.Stream)
		}
	}
	for len(p) > 0 {
		i := bytes.IndexByte(p, '\n')
		text, full := p, i >= 0
		if full {
			text = p[:i]
		}
		room := MaxPart - len(s.pending)
		switch {
		case len(text) > room: // a part is full
			out = appendLine(out, head, tagPart, append(s.pending, text[:room]...))
			raw += MaxPart
			s.pending, p = nil, p[room:]
		case full:
			if len(s.pending) > 0 {
				text = append(s.pending, text...)
			}
			out = appendLine(out, head, tagFull, text)
			raw += int64(len(text)) + 1
			s.pending, p = nil, p[i+1:]
		default:
			s.pending, p = append(s.pending, text...), nil
		}
		if len(out) >= batch-MaxPart {
			flush()
		}
	}
	flush()
	s.releaseLogged()
}

// Cut logs an incomplete line as a part, and releases all resources.
func (s *Sink) Cut(at time.Time) {
	if len(s.pending) > 0 {
		at = s.nextTime(at)
		s.commitStamp(at)
		s.log.writeLines(appendLine(nil, linePrefix(at, s.src.Stream), tagPart, s.pending), int64(len(s.pending)))
		s.pending = nil
	}
	s.releaseLogged()
}
