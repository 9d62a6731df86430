package batch

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// Bounds of what is kept of tasks' output.
const (
	maxJobOutput = 256 << 20 // bytes of one job; what comes after is dropped, and the task says so
	maxOpen      = 32        // files open at once
)

// outputs are the files with what tasks wrote: one for each job, appended, never changed. They are not fsynced: a power
// loss may cost output, never a result.
type outputs struct {
	dir string

	mu   sync.Mutex
	open map[string]*outputFile
}

type outputFile struct {
	f    *os.File
	size int64
}

func openOutputs(dir string) (*outputs, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, "dir", "the directory %s of jobs' output cannot be made", dir)
	}
	return &outputs{dir: dir, open: map[string]*outputFile{}}, nil
}

func (o *outputs) path(job string) string { return filepath.Join(o.dir, job+".ndjson") }

// keep appends one task's output. What cannot be kept is cut.
func (o *outputs) keep(job string, out []byte, cut bool) (offset int64, n int, cutNow bool) {
	if len(out) == 0 {
		return 0, 0, cut
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	f, err := o.file(job)
	if err != nil || f.size+int64(len(out)) > maxJobOutput {
		return 0, 0, true
	}
	offset = f.size
	n, err = f.f.WriteAt(out, offset)
	f.size += int64(n)
	if err != nil {
		return 0, 0, true
	}
	return offset, n, cut
}

func (o *outputs) file(job string) (*outputFile, error) {
	if f := o.open[job]; f != nil {
		return f, nil
	}
	if len(o.open) >= maxOpen {
		for name, f := range o.open { // any: to open it again is cheap
			_ = f.f.Close()
			delete(o.open, name)
			break
		}
	}
	raw, err := os.OpenFile(o.path(job), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	st, err := raw.Stat()
	if err != nil {
		return nil, errors.Join(err, raw.Close())
	}
	f := &outputFile{f: raw, size: st.Size()}
	o.open[job] = f
	return f, nil
}

// read gives the lines of one task's output, the last tail of them; 0 is all.
func (o *outputs) read(job string, offset int64, n, tail int, emit func(machine.LogLine) error) error {
	f, err := os.Open(o.path(job))
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return fault.Wrap(err, fault.Unavailable, "output", "the output of job %s cannot be read", job)
	}
	defer f.Close()
	raw := make([]byte, n)
	if _, err := f.ReadAt(raw, offset); err != nil {
		return fault.Wrap(err, fault.Unavailable, "output",
			"the output of this task is not there any more; the host went down before it was on disk")
	}
	lines := bytes.SplitAfter(raw, []byte("\n"))
	lines = lines[:len(lines)-1] // what is behind the last newline is nothing
	if tail > 0 && len(lines) > tail {
		lines = lines[len(lines)-tail:]
	}
	for _, b := range lines {
		var l machine.LogLine
		if err := json.Unmarshal(b, &l); err != nil {
			return fault.Wrap(err, fault.Internal, "output", "the output of job %s is damaged", job)
		}
		if err := emit(l); err != nil {
			return err
		}
	}
	return nil
}

// purge removes the files of jobs that are kept no longer.
func (o *outputs) purge(jobs []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, job := range jobs {
		if f := o.open[job]; f != nil {
			_ = f.f.Close()
			delete(o.open, job)
		}
		_ = os.Remove(o.path(job))
	}
}

func (o *outputs) close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	var errs []error
	for name, f := range o.open {
		errs = append(errs, f.f.Close())
		delete(o.open, name)
	}
	return errors.Join(errs...)
}
