// Package kept keeps the files that tasks leave, at their workers, until they are fetched.
//
//	DIR/promised/TASK   which files of a task that runs are to be kept
//	DIR/files/TASK      what a task that has ended left
package kept

import (
	"archive/tar"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/fault"
)

// Bounds of what is kept.
const (
	KeepFor    = 7 * 24 * time.Hour
	keepShort  = 24 * time.Hour // at least so long it is not removed for what comes later
	share      = 5              // of the disk, in fifths: one
	MaxEntries = 100_000        // files and directories of one task
	sweepEvery = time.Hour
)

// Options are what a store is made of.
type Options struct {
	Dir string       // made if it does not exist; on the file system with the tasks' directories
	Max int64        // bytes of all files; 0: a fifth of the disk
	Log *slog.Logger // nil: nothing is logged
}

// Store keeps files of tasks. Its methods may be called from many goroutines, but for one task by one at a time.
type Store struct {
	o   Options
	log *slog.Logger

	mu    sync.Mutex
	sizes map[string]int64 // bytes by task
	all   int64
	noted map[string]bool // tasks with a promise
}

// Open opens a store.
func Open(o Options) (*Store, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Store{o: o, log: o.Log, sizes: map[string]int64{}, noted: map[string]bool{}}
	files := filepath.Join(o.Dir, "files")
	err := errors.Join(os.MkdirAll(filepath.Join(o.Dir, "promised"), 0o700), os.MkdirAll(files, 0o700))
	tasks, readErr := os.ReadDir(files)
	notes, notesErr := os.ReadDir(filepath.Join(o.Dir, "promised"))
	if err = errors.Join(err, readErr, notesErr); err != nil {
		return nil, fault.Wrap(err, fault.Precondition, fault.CodeDir,
			"the directory %s of the files that tasks leave cannot be used", o.Dir)
	}
	if s.o.Max == 0 {
		var st unix.Statfs_t
		if err := unix.Statfs(o.Dir, &st); err == nil {
			s.o.Max = int64(st.Blocks) * st.Bsize / share //nolint:gosec // less than 8 EiB
		}
	}
	for _, n := range notes {
		s.noted[n.Name()] = true
	}
	for _, t := range tasks {
		s.sizes[t.Name()] = 0 // until CountFiles
	}
	return s, nil
}

// Promise notes, before a task begins, which of its files will be kept.
func (s *Store) Promise(task string, patterns []string) error {
	raw, err := json.Marshal(patterns)
	if err == nil {
		err = os.WriteFile(s.promisePath(task), raw, 0o600)
	}
	if err != nil {
		return fault.Wrap(err, fault.Unavailable, fault.CodeDisk, "it cannot be noted which files of the task are kept")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noted[task] = true
	return nil
}

func (s *Store) promisePath(task string) string { return filepath.Join(s.o.Dir, "promised", task) }

// promised returns which files of a task are to be kept, and whether there is such a task.
func (s *Store) promised(task string) (patterns []string, is bool) {
	s.mu.Lock()
	noted := s.noted[task]
	s.mu.Unlock()
	if !noted { // most tasks keep nothing, and touch no file for it
		return nil, false
	}
	raw, err := os.ReadFile(s.promisePath(task))
	return patterns, err == nil && json.Unmarshal(raw, &patterns) == nil
}

// Files counts what a task left.
type Files struct {
	Files int
	Bytes int64
	Why   string // why not all that was to be kept is; "": it is
}

// Keep keeps the promised files of a task that has ended; move moves those that match patterns into a directory, and
// gives the directory to the task's user. It may be repeated until Settle. Without a promise it does nothing, and returns false.
func (s *Store) Keep(task string, move func(patterns []string, to string) error) (f Files, promised bool) {
	patterns, is := s.promised(task)
	if !is {
		return f, false
	}
	to := s.dir(task)
	err := os.MkdirAll(to, 0o700)
	if err == nil {
		err = move(patterns, to)
	}
	f = s.countFiles(task)
	if err != nil {
		f.Why = err.Error()
	} else if f.Files == 0 && f.Why == "" {
		f.Why = "it left no file that matches " + strings.Join(patterns, " or ")
	}
	f = s.admit(task, f)
	if f.Files == 0 {
		s.Forget(task)
	}
	return f, true
}

// Settle forgets the promise of a task, once what it left will not be asked for again: until then Keep may be repeated,
// since souk may be killed between that and the recording of the task's result.
func (s *Store) Settle(task string) {
	s.mu.Lock()
	noted := s.noted[task]
	delete(s.noted, task)
	s.mu.Unlock()
	if !noted {
		return
	}
	if err := os.Remove(s.promisePath(task)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.log.Warn("the note of which files of a task are kept could not be removed", "task", task, "err", err)
	}
}

// SettleOthers is Settle of all tasks but the keys of but. Call it before any task begins.
func (s *Store) SettleOthers(but map[string]bool) {
	s.mu.Lock()
	all := slices.Collect(maps.Keys(s.noted))
	s.mu.Unlock()
	for _, task := range all {
		if _, stays := but[task]; !stays {
			s.Settle(task)
		}
	}
}

func (s *Store) dir(task string) string { return filepath.Join(s.o.Dir, "files", task) }

// countFiles counts a task's files, and removes what is neither a file nor a directory nor a symlink, and what others'
// rights keep from its user.
func (s *Store) countFiles(task string) (f Files) {
	root, err := os.OpenRoot(s.dir(task))
	if err != nil {
		return f
	}
	defer root.Close()
	entries, others, owner := 0, 0, ownerOf(root)
	_ = fs.WalkDir(root.FS(), ".", func(p string, d fs.DirEntry, err error) error {
		if entries++; err != nil || entries > MaxEntries {
			return fs.SkipAll // Pack says so
		}
		st, err := d.Info()
		switch {
		case err != nil || d.IsDir():
		case d.Type() == 0 && !mayRead(st, owner):
			others++
			_ = root.Remove(p) // Pack leaves it out
		case d.Type() == 0:
			f.Files++
			f.Bytes += st.Size()
		case d.Type() == fs.ModeSymlink:
			f.Files++
		default:
			_ = root.Remove(p) // Pack leaves it out
		}
		return nil
	})
	if others > 0 {
		f.Why = fmt.Sprintf("%d of the files that it left are not its user's own, and not readable for all", others)
	}
	return f
}

// ownerOf returns the user of the task whose files are in a directory: who moves them there gives the directory to the
// user; -1: unknown.
func ownerOf(root *os.Root) int {
	st, err := root.Stat(".")
	if err != nil {
		return -1
	}
	return uidOf(st)
}

func uidOf(st fs.FileInfo) int {
	if sys, is := st.Sys().(*syscall.Stat_t); is {
		return int(sys.Uid)
	}
	return -1
}

// mayRead reports whether the task's user may read a file. A hard link to another user's file may be among what a task
// leaves where the host lets users make one (fs.protected_hardlinks is 0).
func mayRead(st fs.FileInfo, owner int) bool { return uidOf(st) == owner || st.Mode()&0o004 != 0 }

// admit counts what a task left, after removing what is older if needed; what does not fit is removed.
func (s *Store) admit(task string, f Files) Files {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all += f.Bytes - s.sizes[task]
	s.sizes[task] = f.Bytes
	if s.all <= s.o.Max {
		return f
	}
	for _, old := range s.olderThan(time.Now().Add(-keepShort)) {
		if s.forget(old); s.all <= s.o.Max {
			return f
		}
	}
	s.forget(task)
	return Files{Why: "the files that it left, " + mib(f.Bytes) + ", are not kept: a worker keeps " + mib(s.o.Max) +
		" of them, and removes none within a day"}
}

// forget removes what a task left. s.mu is held.
func (s *Store) forget(task string) {
	if err := os.RemoveAll(s.dir(task)); err != nil {
		s.log.Warn("the files that a task left could not be removed", "task", task, "err", err)
		return
	}
	s.all -= s.sizes[task]
	delete(s.sizes, task)
}

// Forget removes what a task left.
func (s *Store) Forget(task string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(task)
}

// Tasks lists the tasks of which files are kept, sorted.
func (s *Store) Tasks() (out []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for task := range s.sizes {
		out = append(out, task)
	}
	slices.Sort(out)
	return out
}

// olderThan lists the tasks whose files are older than a time, the oldest first. s.mu is held.
func (s *Store) olderThan(at time.Time) (out []string) {
	type aged struct {
		task string
		at   time.Time
	}
	var all []aged
	for task := range s.sizes {
		if st, err := os.Stat(s.dir(task)); err == nil && st.ModTime().Before(at) {
			all = append(all, aged{task, st.ModTime()})
		}
	}
	slices.SortFunc(all, func(a, b aged) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.task, b.task)) })
	for _, x := range all {
		out = append(out, x.task)
	}
	return out
}

// CountFiles counts the files from before the store was opened. Until then their bytes take no room of the bound: there
// may be so many tasks that a start of souk would wait long for it.
func (s *Store) CountFiles(ctx context.Context) {
	for _, task := range s.Tasks() {
		if ctx.Err() != nil {
			return
		}
		f := s.countFiles(task)
		s.mu.Lock()
		if was, there := s.sizes[task]; there && was == 0 {
			s.sizes[task] = f.Bytes
			s.all += f.Bytes
		}
		s.mu.Unlock()
	}
}

// Run counts the files, and removes what was kept for KeepFor, until ctx ends.
func (s *Store) Run(ctx context.Context) {
	s.CountFiles(ctx)
	t := time.NewTicker(sweepEvery)
	defer t.Stop()
	for {
		s.Sweep(time.Now())
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
}

// Sweep removes what was kept for KeepFor before now.
func (s *Store) Sweep(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, old := range s.olderThan(now.Add(-KeepFor)) {
		s.forget(old)
	}
}

// Pack writes what a task left as a tar stream, with paths as they were below the task's directory. NotFound: nothing
// is kept of it.
func (s *Store) Pack(ctx context.Context, task string, w io.Writer) error {
	root, err := os.OpenRoot(s.dir(task))
	if errors.Is(err, fs.ErrNotExist) {
		return fault.New(fault.NotFound, codeNotKept, "no files of this task are kept here any more: they are kept "+
			"for %d days, and removed earlier if the disk lacks room", int(KeepFor.Hours()/24))
	} else if err != nil {
		return fault.Wrap(err, fault.Unavailable, fault.CodeDisk, "the files of the task cannot be read")
	}
	defer root.Close()
	out := tar.NewWriter(w)
	entries, owner := 0, ownerOf(root)
	err = fs.WalkDir(root.FS(), ".", func(p string, d fs.DirEntry, err error) error {
		if err == nil {
			err = context.Cause(ctx)
		}
		if err != nil || p == "." {
			return err
		}
		if entries++; entries > MaxEntries {
			return fault.New(fault.Precondition, codeNotKept, "the task left more than %d files; pack them into "+
				"one", MaxEntries)
		}
		return packEntry(out, root, p, owner)
	})
	if err = errors.Join(err, out.Close()); err != nil {
		if _, is := errors.AsType[*fault.Error](err); is {
			return err
		}
		return fault.Wrap(err, fault.Unavailable, fault.CodeDisk, "the files of the task cannot be read")
	}
	return nil
}

func packEntry(out *tar.Writer, root *os.Root, p string, owner int) error {
	st, err := root.Lstat(p)
	if err != nil {
		return err
	}
	h := &tar.Header{Name: p, Mode: int64(st.Mode().Perm()), ModTime: st.ModTime(), Format: tar.FormatPAX}
	switch mode := st.Mode(); {
	case mode.IsDir():
		h.Typeflag, h.Name = tar.TypeDir, p+"/"
		return out.WriteHeader(h)
	case mode&fs.ModeSymlink != 0:
		h.Typeflag = tar.TypeSymlink
		if h.Linkname, err = root.Readlink(p); err != nil {
			return err
		}
		return out.WriteHeader(h)
	case !mode.IsRegular() || !mayRead(st, owner):
		return nil
	}
	f, err := root.OpenFile(p, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	h.Typeflag, h.Size = tar.TypeReg, st.Size()
	if err := out.WriteHeader(h); err != nil {
		return err
	}
	_, err = io.CopyN(out, f, h.Size)
	return err
}

func mib(n int64) string {
	if n >= 10<<30 {
		return fmt.Sprintf("%d GiB", n>>30)
	}
	return fmt.Sprintf("%d MiB", n>>20)
}
