package batch

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// The codes of this package's errors.
const (
	codeGiven  fault.Code = "given"  // the file of tasks that were handed out cannot be used
	codeOutput fault.Code = "output" // the output of the task is not kept
)

// Bounds of what is kept of tasks' output, in bytes of files. At the bound of its namespace or of all, the output of
// ended jobs is dropped, the oldest first; output that still finds no room is dropped, and a request for it says so. A
// namespace may have as much as eight jobs, which is half of all, so that it leaves room for others.
const (
	maxJobOutput       = 256 << 20 // 4,096 tasks with the most output that is kept of one
	maxNamespaceOutput = 8 * maxJobOutput
	maxAllOutput       = 2 * maxNamespaceOutput
	maxOpen            = 32 // files open at once
)

// outputSuffix is the suffix of a job's file, after the job's ID.
const outputSuffix = ".ndjson"

// outputs are the files of tasks' output: one for each job, append-only. They are not fsynced: a power loss may cost
// output, never a result.
type outputs struct {
	dir  string
	self cluster.WorkerID // this member

	mu    sync.Mutex
	of    map[string]*outputFile // by job
	ended []*outputFile          // of jobs that have ended, oldest first
	space map[string]int64       // bytes by namespace
	all   int64
	open  map[string]*outputFile // open files, by job
}

type outputFile struct {
	job       string
	namespace string
	size      int64
	ended     bool     // its job has ended
	dropped   bool     // it was dropped to make room, and gets no more
	f         *os.File // nil: not open
}

// openOutputs makes the directory. restoreFiles counts the files in it.
func openOutputs(dir string, self cluster.WorkerID) (*outputs, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, fault.CodeDir,
			"the directory %s of jobs' output cannot be made", dir)
	}
	return &outputs{dir: dir, self: self, of: map[string]*outputFile{}, space: map[string]int64{},
		open: map[string]*outputFile{}}, nil
}

// restoreFiles restores the files of existing jobs, and removes those of jobs that are no longer kept.
func (o *outputs) restoreFiles(list []jobs.Job) error {
	sizes, err := o.fileSizes()
	if err != nil {
		return fault.Wrap(err, fault.Unavailable, fault.CodeDir,
			"the directory %s of jobs' output cannot be read", o.dir)
	}
	var ended []jobs.Job
	for i := range list {
		j := &list[i]
		o.addJob(j.ID, j.Spec.Namespace, sizes[j.ID])
		delete(sizes, j.ID)
		if j.State.Final() {
			o.of[j.ID].dropped = o.of[j.ID].size == 0
			ended = append(ended, *j)
		}
	}
	slices.SortStableFunc(ended, func(a, b jobs.Job) int { return a.Ended.Compare(*b.Ended) })
	for i := range ended {
		o.endJobs([]string{ended[i].ID})
	}
	for job := range sizes {
		if err := os.Remove(o.path(job)); err != nil {
			return fault.Wrap(err, fault.Unavailable, fault.CodeDir,
				"the output of job %s, which is kept no longer, cannot "+
					"be removed", job)
		}
	}
	return nil
}

// fileSizes returns the sizes of the files, by job.
func (o *outputs) fileSizes() (map[string]int64, error) {
	files, err := os.ReadDir(o.dir)
	sizes := map[string]int64{}
	for _, e := range files {
		if job, is := strings.CutSuffix(e.Name(), outputSuffix); is && jobs.ValidID(job) {
			st, err := e.Info()
			if err != nil {
				return nil, err
			}
			sizes[job] = st.Size()
		}
	}
	return sizes, err
}

// addJob adds a job, whose file has size bytes already. Output is kept only for added jobs.
func (o *outputs) addJob(job, namespace string, size int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.of[job] == nil {
		o.of[job] = &outputFile{job: job, namespace: cmp.Or(namespace, cluster.DefaultNamespace)}
		o.addBytes(o.of[job], size)
	}
}

// endJobs records that jobs have ended, in this order: their output may be dropped for others'.
func (o *outputs) endJobs(ids []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, job := range ids {
		if f := o.of[job]; f != nil && !f.ended {
			f.ended = true
			o.ended = append(o.ended, f)
		}
	}
}

func (o *outputs) path(job string) string { return filepath.Join(o.dir, job+outputSuffix) }

// addBytes adds n bytes to a file's size; n may be negative.
func (o *outputs) addBytes(f *outputFile, n int64) {
	f.size += n
	o.all += n
	if o.space[f.namespace] += n; o.space[f.namespace] == 0 {
		delete(o.space, f.namespace)
	}
}

// keepOutput appends one task's output, and cuts what does not fit.
func (o *outputs) keepOutput(job string, out []byte, cut bool) (offset int64, n int, cutNow bool) {
	if len(out) == 0 {
		return 0, 0, cut
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	f := o.of[job]
	if f == nil || !o.canGrow(f, int64(len(out))) || o.ensureOpen(f) != nil {
		return 0, 0, true
	}
	offset = f.size
	n, err := f.f.WriteAt(out, offset)
	o.addBytes(f, int64(n))
	if err != nil {
		return 0, 0, true
	}
	return offset, n, cut
}

// canGrow reports whether a file may grow by n, after dropping files of ended jobs if needed.
func (o *outputs) canGrow(f *outputFile, n int64) bool {
	if f.dropped || f.size+n > maxJobOutput {
		return false
	}
	for {
		own := o.space[f.namespace]+n > maxNamespaceOutput
		if !own && o.all+n <= maxAllOutput {
			return !f.dropped // the oldest may have been f itself
		}
		old := o.oldestEnded(f.namespace, own)
		if old == nil {
			return false
		}
		o.removeFile(old)
		old.dropped = true
	}
}

// oldestEnded returns the file to drop for a job of a namespace: the oldest of its ended jobs, or, unless own is set,
// of the namespace with the most output, if that is more; nil: none.
func (o *outputs) oldestEnded(namespace string, own bool) (old *outputFile) {
	for _, f := range o.ended {
		has := o.space[f.namespace]
		mine := f.namespace == namespace
		if f.size == 0 || !mine && (own || has <= o.space[namespace]) {
			continue
		}
		if old == nil || has > o.space[old.namespace] {
			old = f
		}
	}
	return old
}

// removeFile removes a job's file.
func (o *outputs) removeFile(f *outputFile) {
	o.closeFile(f)
	_ = os.Remove(o.path(f.job))
	o.addBytes(f, -f.size)
}

func (o *outputs) closeFile(f *outputFile) (err error) {
	if f.f != nil {
		err = f.f.Close()
		delete(o.open, f.job)
		f.f = nil
	}
	return err
}

// ensureOpen opens a file unless it is open.
func (o *outputs) ensureOpen(f *outputFile) (err error) {
	if f.f != nil {
		return nil
	}
	if len(o.open) >= maxOpen {
		for _, other := range o.open { // any: opening it again is cheap
			_ = o.closeFile(other)
			break
		}
	}
	if f.f, err = os.OpenFile(o.path(f.job), os.O_RDWR|os.O_CREATE, 0o600); err == nil {
		o.open[f.job] = f
	}
	return err
}

// readOutput emits the last tail lines of one task's output; nil: all.
func (o *outputs) readOutput(r *jobs.Result, job string, tail *int, emit func(machine.LogLine) error) error {
	switch {
	case r.OutputAt != "" && r.OutputAt != o.self:
		return fault.New(fault.NotFound, codeOutput, "the output of this task was kept by member %s, from which the "+
			"job was taken over before the output was copied", r.OutputAt)
	case r.Bytes > 0:
	case r.Cut:
		return fault.New(fault.NotFound, codeOutput,
			"the output of this task was not kept: %d MiB are kept for one job, %d MiB for a namespace's jobs, %d "+
				"MiB for all jobs, and no more than the disk has room for",
			maxJobOutput>>20, maxNamespaceOutput>>20, maxAllOutput>>20)
	default:
		return nil
	}
	o.mu.Lock()
	dropped := o.of[job] == nil || o.of[job].dropped
	o.mu.Unlock()
	if dropped {
		return fault.New(fault.NotFound, codeOutput, "the output of job %s was removed to make room for newer "+
			"output: %d MiB are kept for a namespace's jobs, and %d MiB for all jobs", job, maxNamespaceOutput>>20,
			maxAllOutput>>20)
	}
	raw, err := o.readRaw(r, job)
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, io.EOF):
		return fault.Wrap(err, fault.Unavailable, codeOutput,
			"the output of this task is lost: the host went down before it was on disk")
	case err != nil:
		return fault.Wrap(err, fault.Unavailable, codeOutput, "the output of job %s cannot be read", job)
	}
	lines := bytes.SplitAfter(raw, []byte("\n"))
	lines = lines[:len(lines)-1] // the part after the last newline is empty
	if tail != nil {
		lines = lines[max(0, len(lines)-*tail):]
	}
	for _, b := range lines {
		var l machine.LogLine
		if err := json.Unmarshal(b, &l); err != nil {
			return fault.Wrap(err, fault.Internal, codeOutput, "the output of job %s is damaged", job)
		}
		if err := emit(l); err != nil {
			return err
		}
	}
	return nil
}

func (o *outputs) readRaw(r *jobs.Result, job string) ([]byte, error) {
	raw := make([]byte, r.Bytes)
	f, err := os.Open(o.path(job))
	if err == nil {
		_, err = f.ReadAt(raw, r.Offset)
		_ = f.Close()
	}
	return raw, err
}

// rawOutput returns what a task wrote, as NDJSON of machine.LogLine; nil: nothing, or it is not here.
func (o *outputs) rawOutput(r *jobs.Result, job string) []byte {
	if r.Bytes == 0 || r.OutputAt != "" && r.OutputAt != o.self {
		return nil
	}
	o.mu.Lock()
	here := o.of[job] != nil && !o.of[job].dropped
	o.mu.Unlock()
	if !here {
		return nil
	}
	raw, err := o.readRaw(r, job)
	if err != nil {
		return nil // the result says where it should be
	}
	return raw
}

// namespaceOf returns the namespace of a job that was added.
func (o *outputs) namespaceOf(job string) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if f := o.of[job]; f != nil {
		return f.namespace
	}
	return ""
}

// purgeJobs removes the files of jobs that are no longer kept.
func (o *outputs) purgeJobs(ids []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, job := range ids {
		f := o.of[job]
		if f == nil {
			continue
		}
		o.removeFile(f)
		delete(o.of, job)
		o.ended = slices.DeleteFunc(o.ended, func(other *outputFile) bool { return other == f })
	}
}

func (o *outputs) close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	var errs []error
	for _, f := range o.open {
		errs = append(errs, o.closeFile(f))
	}
	return errors.Join(errs...)
}
