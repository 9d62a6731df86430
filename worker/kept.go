package worker

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/reaper/output"
)

// Bounds of the kept output of destroyed machines. It is kept as long as the worker keeps the machine, at most
// lifecycle.KeepDestroyed.
const (
	KeptOutputs = 64        // machines of services, and as many others
	keptBytes   = 64 << 10  // of each machine, the newest: bytes of output
	keptLines   = 1000      // of each machine
	maxKeptFile = 512 << 10 // bytes of its file: JSON takes up to six for each of 64 KiB, and has other fields
)

// kept is the last output of machines that were destroyed: a file of lines of JSON for each, below the worker's
// directory. It survives a restart of souk. It is not synced: a power loss may lose it.
type kept struct {
	dir     string
	runtime runtime.Runtime
	full    func() error
	log     *slog.Logger

	mu  sync.Mutex
	ids map[bool][]string // oldest first; true: of services, which other machines do not displace
}

func newKept(o *Options) *kept {
	return &kept{dir: filepath.Join(o.Dir, "outputs"), runtime: o.Runtime, full: o.Full, log: o.Log,
		ids: map[bool][]string{}}
}

const keptSuffix = ".jsonl"

func (k *kept) path(id string) string { return filepath.Join(k.dir, id+keptSuffix) }

// recoverKept recovers the files kept before the start of souk. of returns a machine, or nil if the worker no longer
// keeps it.
func (k *kept) recoverKept(of func(id string) *machine.Machine) {
	es, err := os.ReadDir(k.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		k.log.Warn("the kept output of destroyed machines cannot be read", "dir", k.dir, "err", err)
	}
	slices.SortFunc(es, func(a, b os.DirEntry) int {
		return cmp.Or(writtenAt(a).Compare(writtenAt(b)), strings.Compare(a.Name(), b.Name()))
	})
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, e := range es {
		id, is := strings.CutSuffix(e.Name(), keptSuffix)
		m := of(id)
		if !is || m == nil {
			k.deleteFile(filepath.Join(k.dir, e.Name()))
			continue
		}
		k.addFile(id, m.Replica != nil)
	}
}

func writtenAt(e os.DirEntry) time.Time {
	st, err := e.Info()
	if err != nil {
		return time.Time{} // it has just been removed
	}
	return st.ModTime()
}

// keepOutput keeps the last output of a machine that is about to be removed. Errors are only logged, so the removal
// continues. It may be called again, even after the machine has gone from the runtime.
func (k *kept) keepOutput(ctx context.Context, m *machine.Machine) {
	if k.full() != nil { // the machine is removed to make room
		return
	}
	tail := keptLines
	var lines []machine.LogLine
	size := 0
	err := k.runtime.Logs(ctx, m.ID, machine.LogQuery{Tail: &tail}, func(l machine.LogLine) error {
		lines = append(lines, l)
		for size += keptSize(&l); size > keptBytes; lines = lines[1:] {
			size -= keptSize(&lines[0])
		}
		return nil
	})
	if len(lines) == 0 || err != nil {
		if err != nil && !fault.Is(err, fault.NotFound) {
			k.log.Warn("the output of a destroyed machine is not kept", "machine", m.ID, "err", err)
		}
		return
	}
	var text bytes.Buffer
	to := json.NewEncoder(&text)
	to.SetEscapeHTML(false)
	for i := range lines {
		if err := to.Encode(&lines[i]); err != nil {
			panic("worker: a line of output does not encode: " + err.Error()) // plain data: cannot fail
		}
	}
	if err := k.writeKept(m.ID, text.Bytes()); err != nil {
		k.log.Warn("the output of a destroyed machine is not kept", "machine", m.ID, "err", err)
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.addFile(m.ID, m.Replica != nil)
}

// keptSize returns how many bytes of output a line has.
func keptSize(l *machine.LogLine) int { return max(len(l.Text), len(l.Bytes)) + 1 }

// writeKept writes a file under a temporary name and renames it.
func (k *kept) writeKept(id string, text []byte) error {
	if err := os.Mkdir(k.dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	part := k.path(id) + ".part" // recoverKept removes leftovers
	if err := os.WriteFile(part, text, 0o600); err != nil {
		return errors.Join(err, os.Remove(part))
	}
	return os.Rename(part, k.path(id))
}

// addFile counts a file, and deletes the oldest ones beyond the bound. k.mu is held.
func (k *kept) addFile(id string, service bool) {
	list := append(slices.DeleteFunc(k.ids[service], func(old string) bool { return old == id }), id)
	for len(list) > KeptOutputs {
		k.deleteFile(k.path(list[0]))
		list = list[1:]
	}
	k.ids[service] = list
}

// forgetMachine deletes the output of a machine that the worker no longer keeps.
func (k *kept) forgetMachine(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for service, list := range k.ids {
		if i := slices.Index(list, id); i >= 0 {
			k.ids[service] = slices.Delete(list, i, i+1)
			k.deleteFile(k.path(id))
		}
	}
}

func (k *kept) deleteFile(path string) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		k.log.Warn("the kept output of a machine cannot be removed", "file", path, "err", err)
	}
}

// readKept emits a machine's kept output: the lines after the query's cursor, or else the last ones. There is never
// more, so Follow has no effect. false: nothing is kept.
func (k *kept) readKept(id string, q machine.LogQuery, emit func(machine.LogLine) error) (bool, error) {
	text, err := os.ReadFile(k.path(id))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read the kept output of machine %s: %w", id, err)
	}
	var lines []machine.LogLine
	in := bufio.NewScanner(bytes.NewReader(text))
	in.Buffer(nil, maxKeptFile)
	for in.Scan() {
		var l machine.LogLine
		if json.Unmarshal(in.Bytes(), &l) == nil { // a damaged line is skipped: the rest is still useful
			lines = append(lines, l)
		}
	}
	switch {
	case q.Cursor != "":
		at := slices.IndexFunc(lines, func(l machine.LogLine) bool { return l.Cursor == q.Cursor })
		if at < 0 && len(lines) > 0 {
			lines[0].Lost += max(0, bytesBetween(q.Cursor, &lines[0]))
		}
		lines = lines[at+1:]
	case q.Tail != nil:
		lines = lines[max(0, len(lines)-*q.Tail):]
	}
	for _, l := range lines {
		if err := emit(l); err != nil {
			return true, err
		}
	}
	return true, nil
}

// bytesBetween returns how many bytes of output are between a cursor and a line; 0: unknown.
func bytesBetween(cursor string, l *machine.LogLine) int64 {
	from, known := output.Total(cursor)
	to, also := output.Total(l.Cursor)
	if !known || !also {
		return 0
	}
	return to - int64(len(l.Raw())) - from
}

// awaitChange waits until a machine's state is another one, or ctx ends, and returns the machine.
func (w *Worker) awaitChange(ctx context.Context, from *machine.Machine) (m *machine.Machine, err error) {
	err = w.Watch(ctx, from.App, from.ID, func(now *machine.Machine) bool {
		m = now
		return now.State == from.State
	})
	return m, err
}

// readLogs implements Worker.Logs. For a destroyed machine it reads the kept output, also if the machine is destroyed
// while it is followed.
func (w *Worker) readLogs(ctx context.Context, m *machine.Machine, q machine.LogQuery,
	emit func(machine.LogLine) error) error {
	if m.State != machine.Destroyed {
		err := w.o.Runtime.Logs(ctx, m.ID, q, func(l machine.LogLine) error {
			q.Cursor, q.Tail = l.Cursor, nil
			return emit(l)
		})
		gone := fault.Is(err, fault.NotFound) || err == nil && q.Follow && ctx.Err() == nil
		if !gone || q.Hold {
			return err
		}
		if there, kerr := w.loop.kept.readKept(m.ID, q, emit); there || kerr != nil {
			return kerr
		}
		if !fault.Is(err, fault.NotFound) || m.State != machine.Creating && m.State != machine.Starting {
			return err
		}
		// its runtime has not got it yet, so it has written nothing
		if !q.Follow {
			return nil
		}
		if m, err = w.awaitChange(ctx, m); err != nil || ctx.Err() != nil {
			return err
		}
		return w.readLogs(ctx, m, q, emit)
	}
	there, err := w.loop.kept.readKept(m.ID, q, emit)
	if !there && err == nil {
		return fault.New(fault.NotFound, fault.CodeOutputGone,
			"machine %s was destroyed at %s, and no output of it is kept: it printed nothing, or others were "+
				"destroyed after it (a worker keeps the output of %d machines of services and %d others for %d hours)",
			m.ID, m.UpdatedAt, KeptOutputs, KeptOutputs,
			int(lifecycle.KeepDestroyed.Hours()))
	}
	return err
}
