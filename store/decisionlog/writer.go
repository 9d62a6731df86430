package decisionlog

import (
	"cmp"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/decision"
	"github.com/soukhq/souk/fault"
)

// writer is the log's only writer, in its own goroutine.
type writer struct {
	l         *Log
	pack      *zstd.Encoder
	fileBytes int64 // a file is ended before it exceeds this size
	keepBytes int64 // bound of the other files together

	file    *os.File
	size    int64
	number  int
	encoder *decision.LineEncoder // for this file; nil before its first line
	lines   []byte                // of the frame being filled
	count   uint64                // decisions in it
	first   int64
	last    int64
	marks   map[uint32]bool
	packed  []byte
	trouble bool  // the last write failed, and was logged
	lost    error // why the last frame was lost; nil: it is written
}

func newWriter(l *Log, maxBytes int64) (*writer, error) {
	pack, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1),
		zstd.WithLowerEncoderMem(true))
	if err != nil {
		return nil, fault.Wrap(err, fault.Internal, codeDecisionLog, "the compressor cannot be made")
	}
	each := maxBytes / filesPerLog
	w := &writer{l: l, pack: pack, fileBytes: each, keepBytes: maxBytes - each - min(frameBytes, each),
		marks: map[uint32]bool{}}
	return w, w.dropOldest()
}

// run writes until the queue is closed. It writes a frame when the frame is full or old, or when a caller waits.
func (w *writer) run(queue <-chan item) {
	tick := time.NewTicker(flushAfter)
	defer tick.Stop()
	for {
		select {
		case it, open := <-queue:
			if !open {
				_ = w.flushFrame() // it has logged and counted an error
				w.endFile()
				return
			}
			w.takeItem(it)
		case <-tick.C:
			_ = w.flushFrame()
		}
	}
}

func (w *writer) takeItem(it item) {
	switch {
	case it.flushed != nil:
		it.flushed <- w.flushFrame()
	case it.end != nil:
		w.appendLine(decision.Line{End: it.end})
		w.noteAbout(it.end.At, it.end.App, it.end.Machine)
	default:
		w.writeDecision(it.decision)
	}
	if len(w.lines) >= int(min(frameBytes, w.fileBytes/2)) || len(w.marks) >= maxMarks/2 {
		_ = w.flushFrame()
	}
}

func (w *writer) writeDecision(d *decision.Decision) {
	if w.encoder == nil {
		w.encoder = decision.NewLineEncoder()
	}
	// The second pass repeats records that the first has displaced from the readers' caches: an old version that this
	// decision refers to beside newer ones of the same worker.
	if w.writeRecords(d.Records) {
		w.writeRecords(d.Records)
	}
	w.appendLine(decision.Line{Decision: d})
	w.noteAbout(d.At, d.Request.App, d.Request.Machine)
	w.count++
}

// writeRecords writes the records that readers lack, and reports whether there was one.
func (w *writer) writeRecords(rs []*cluster.Record) (told bool) {
	for _, r := range rs {
		if line, fresh := w.encoder.Line(r); fresh {
			w.appendLine(line)
			told = true
		}
	}
	return told
}

// appendLine appends one line to the frame.
func (w *writer) appendLine(l decision.Line) {
	lines, err := decision.AppendLine(w.lines, &l)
	if err != nil {
		w.logFailure(err)
		return
	}
	w.lines = append(lines, '\n')
}

// noteAbout adds a line's app, machine and time to the frame's header.
func (w *writer) noteAbout(at time.Time, app, machine string) {
	ms := at.UnixMilli()
	if len(w.marks) == 0 {
		w.first, w.last = ms, ms
	}
	w.first, w.last = min(w.first, ms), max(w.last, ms)
	w.marks[nameMark(app)], w.marks[nameMark(machine)] = true, true
}

// flushFrame writes the frame being filled. A failed write is counted and its frame dropped. Without a frame it
// returns the error of the last one: a caller that waits for a decision may find that it was dropped before.
func (w *writer) flushFrame() error {
	if len(w.lines) == 0 {
		return w.lost
	}
	m := meta{plain: uint32(len(w.lines)), first: w.first, last: w.last}
	for x := range w.marks {
		m.marks = append(m.marks, x)
	}
	slices.Sort(m.marks)
	body := w.pack.EncodeAll(w.lines, w.packed[:0])
	w.packed = body
	m.packed, m.sum = uint32(len(body)), crc32.Checksum(body, castagnoliTable())
	frame := append(appendHeader(nil, kindFrame, m), body...)
	count := w.count
	w.lines, w.count = w.lines[:0], 0
	clear(w.marks)
	err := w.writeFrame(frame)
	if err != nil {
		w.l.failed.Add(count)
		w.logFailure(err)
		w.lost = fault.Wrap(err, fault.Unavailable, codeDecisionLog,
			"the decision log in %s cannot be written", w.l.dir)
		return w.lost
	}
	w.trouble, w.lost = false, nil
	w.l.recorded.Add(count)
	// A file is ended only between frames: the next file begins with a new encoder, which must encode its frames.
	if w.size >= w.fileBytes-frameBytes/4 || w.size+int64(len(frame)) > w.fileBytes {
		w.endFile()
	}
	return nil
}

func (w *writer) writeFrame(frame []byte) error {
	if w.file == nil {
		if err := w.beginFile(); err != nil {
			w.encoder = nil
			return err
		}
	}
	n, err := w.file.Write(frame)
	if err != nil {
		return errors.Join(err, w.leaveFile(n > 0))
	}
	w.size += int64(n)
	w.l.bytes.Add(int64(n))
	return nil
}

// leaveFile ends a file after a failed write, with the frames before, and removes it if there are none: the lost frame
// may have had what later lines refer to, so a new file is begun.
func (w *writer) leaveFile(torn bool) (err error) {
	if w.size == 0 {
		err = os.Remove(w.file.Name())
		w.l.files.Add(-1)
	} else if torn {
		err = w.file.Truncate(w.size)
	}
	err = errors.Join(err, w.file.Close())
	w.file, w.encoder = nil, nil
	return err
}

// beginFile makes the next file, after removing the oldest ones to make room.
func (w *writer) beginFile() error {
	if err := w.dropOldest(); err != nil {
		return err
	}
	for {
		w.number++
		name := fmt.Sprintf("decisions-%013d-%06d%s", time.Now().UnixMilli(), w.number, Suffix)
		f, err := os.OpenFile(filepath.Join(w.l.dir, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if errors.Is(err, os.ErrExist) {
			continue // terminates: the number grows
		}
		if err != nil {
			return err
		}
		w.file, w.size = f, 0
		w.l.files.Add(1)
		return nil
	}
}

// endFile closes the file with its end mark.
func (w *writer) endFile() {
	if w.file == nil {
		return
	}
	tail := appendHeader(nil, kindEnd, meta{})
	_, err := w.file.Write(tail)
	w.l.bytes.Add(int64(len(tail)))
	if err := cmp.Or(err, w.file.Sync(), w.file.Close()); err != nil {
		w.logFailure(err)
	}
	w.file, w.encoder = nil, nil
}

// dropOldest removes the oldest files until the rest and one more fit the bound.
func (w *writer) dropOldest() error {
	names, err := Files(w.l.dir)
	if err != nil {
		return err
	}
	sizes, total := make([]int64, len(names)), int64(0)
	for i, name := range names {
		if info, err := os.Stat(name); err == nil {
			sizes[i] = info.Size()
			total += sizes[i]
		}
	}
	gone := 0
	for gone < len(names) && total > w.keepBytes {
		if err := os.Remove(names[gone]); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fault.Wrap(err, fault.Unavailable, codeDecisionLog,
				"the old file %s of the decision log cannot be removed", names[gone])
		}
		total -= sizes[gone]
		gone++
	}
	w.l.bytes.Store(total)
	w.l.files.Store(int64(len(names) - gone))
	return nil
}

// logFailure logs a disk error, once until writing succeeds again.
func (w *writer) logFailure(err error) {
	if !w.trouble {
		w.trouble = true
		w.l.log.Error("the decision log cannot be written; decisions are counted and not recorded", "dir", w.l.dir,
			"error", err)
	}
}
