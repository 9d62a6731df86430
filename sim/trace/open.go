package trace

import (
	"archive/zip"
	"bufio"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"

	"github.com/soukhq/souk/fault"
)

// The codes of this package's errors.
const (
	codeShape fault.Code = "shape" // no load has this shape
	CodeTrace fault.Code = "trace" // the trace cannot be read or written
)

// Open opens a trace by the suffix of its name: .tr, .swf or .csv, each also with .gz, .xz or .zst, or as the only
// file of a .zip; .ndjson and a folder of them are souk's decision log. A .csv with task_events in its name is one
// part of Google's table of 2011; a folder is all of Google's trace, with task_events and, optionally, job_events in
// it.
func Open(path string) (Source, io.Closer, error) {
	if name, ok := strings.CutSuffix(path, ".zip"); ok {
		return openZip(path, name)
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		if logs, err := filepath.Glob(filepath.Join(path, "decisions-*.ndjson.zst")); err == nil && len(logs) > 0 {
			return openDecisions(path, logs)
		}
		return openGoogle(path)
	}
	r, name, err := OpenFile(path)
	if err != nil {
		return nil, nil, err
	}
	return byName(path, name, r), r, nil
}

// OpenFile opens a file that may be compressed, and returns its name without the compression suffix.
func OpenFile(path string) (io.ReadCloser, string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, "", fault.Wrap(err, fault.NotFound, CodeTrace, "the trace %s cannot be opened", path)
	}
	var r io.Reader
	name, kind := path, ""
	switch filepath.Ext(path) {
	case ".gz":
		name, kind = strings.TrimSuffix(path, ".gz"), "gzip"
		r, err = gzip.NewReader(bufio.NewReaderSize(f, 1<<16))
	case ".xz":
		name, kind = strings.TrimSuffix(path, ".xz"), "xz"
		r, err = xz.NewReader(bufio.NewReaderSize(f, 1<<16))
	case ".zst":
		name, kind = strings.TrimSuffix(path, ".zst"), "zstd"
		r, err = zstd.NewReader(f, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(1<<27))
	default:
		return f, path, nil
	}
	if err != nil {
		f.Close()
		return nil, "", fault.Wrap(err, fault.Invalid, CodeTrace, "%s is not compressed with %s as its name says", path,
			kind)
	}
	return readCloser{r, f}, name, nil
}

// openDecisions opens souk's own decision log, file after file.
func openDecisions(dir string, names []string) (Source, io.Closer, error) {
	var files closers
	var all []io.Reader
	for _, n := range names {
		r, _, err := OpenFile(n)
		if err != nil {
			files.Close()
			return nil, nil, err
		}
		files, all = append(files, r), append(all, r)
	}
	return NewDecisions(dir, all...), files, nil
}

type readCloser struct {
	io.Reader
	io.Closer
}

type closers []io.Closer

func (c closers) Close() error {
	var all error
	for _, x := range c {
		all = errors.Join(all, x.Close())
	}
	return all
}

// openGoogle opens the tables in a folder: files that begin with the table's name, or the parts in a folder of that
// name.
func openGoogle(dir string) (Source, io.Closer, error) {
	var files closers
	table := func(name string) (names []string, readers []io.Reader, err error) {
		for _, spelt := range []string{name, strings.ReplaceAll(name, "_", "-")} {
			for _, pattern := range []string{spelt + "*.csv*", filepath.Join(spelt, "*.csv*")} {
				found, err := filepath.Glob(filepath.Join(dir, pattern))
				if err != nil {
					return nil, nil, fault.Wrap(err, fault.Invalid, CodeTrace, "the folder %s cannot be searched", dir)
				}
				names = append(names, found...)
			}
		}
		slices.Sort(names)
		for _, n := range names {
			r, _, err := OpenFile(n)
			if err != nil {
				return nil, nil, err
			}
			files, readers = append(files, r), append(readers, r)
		}
		return names, readers, nil
	}
	taskNames, tasks, err := table("task_events")
	if err == nil && len(tasks) == 0 {
		err = fault.New(fault.NotFound, CodeTrace,
			"the folder %s has no task_events; a folder is taken for Google's trace of 2011", dir)
	}
	var jobNames []string
	var jobs []io.Reader
	if err == nil {
		jobNames, jobs, err = table("job_events")
	}
	if err != nil {
		files.Close()
		return nil, nil, err
	}
	return NewGoogle(taskNames, tasks, jobNames, jobs), files, nil
}

// byName makes the reader for a file's name; path is for errors.
func byName(path, name string, r io.Reader) Source {
	base := filepath.Base(name)
	switch {
	case strings.HasSuffix(base, ".swf"):
		return NewSWF(path, r)
	case strings.Contains(strings.ReplaceAll(base, "-", "_"), "task_events"):
		return NewGoogle([]string{path}, []io.Reader{r}, nil, nil)
	case strings.HasSuffix(base, ".ndjson"):
		return NewDecisions(path, r)
	case strings.HasSuffix(base, ".csv"):
		return NewCSV(path, r)
	}
	return NewTR(path, r)
}

func openZip(path, name string) (Source, io.Closer, error) {
	z, err := zip.OpenReader(path)
	if err != nil {
		return nil, nil, fault.Wrap(err, fault.Invalid, CodeTrace, "the trace %s cannot be opened as a zip file", path)
	}
	if len(z.File) != 1 {
		z.Close()
		return nil, nil, fault.New(fault.Invalid, CodeTrace,
			"%s has %d files; a trace is the only file of its zip", path,
			len(z.File))
	}
	r, err := z.File[0].Open()
	if err != nil {
		z.Close()
		return nil, nil, fault.Wrap(err, fault.Invalid, CodeTrace, "the file in %s cannot be read", path)
	}
	if inside := z.File[0].Name; strings.Contains(inside, ".") {
		name = inside
	}
	return byName(path, name, r), z, nil
}
