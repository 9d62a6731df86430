package runtime

import (
	"context"
	"path"
	"strings"
	"unicode"

	"github.com/soukhq/souk/fault"
)

// Stdio names files of the host for the standard streams of a program of the host. Zero: nothing comes in, and the
// runtime keeps what is written.
//
// The files are opened before the program starts, with the rights, groups and umask of its user; symbolic links are
// followed, except those of /proc to a process's open files (so /dev/stdout is refused). A file is a regular file or a
// character device such as /dev/null. In must exist; Out and Err are created with mode 0666 without the umask. A path
// is looked up where the program sees it, so /tmp/x is the program's own /tmp/x.
//
// If a start is refused because of one of the files, no program has run and no file is truncated, but an Out that was
// missing may have been created.
type Stdio struct {
	// In, Out and Err are paths of at most 4096 bytes; a relative one is below the directory that the program starts
	// in. "": as without. Out and Err that name the same file share one open file, so that what the program writes
	// there keeps its order. What is written to a file is not in the log.
	In  string `json:"in,omitempty"`
	Out string `json:"out,omitempty"`
	Err string `json:"err,omitempty"`

	Append     bool `json:"append,omitempty"`       // Out and Err are appended to; otherwise each start truncates them
	InByWorker bool `json:"in_by_worker,omitempty"` // In is a file of the worker's own, absolute, opened as souk
}

// IsZero reports whether no file is named.
func (f *Stdio) IsZero() bool { return f.In == "" && f.Out == "" && f.Err == "" }

// DirFinder is a runtime that can look in advance for the directory that a program of the host is to start in.
type DirFinder interface {
	// FindDir returns nil if a program of that user could start in dir, which is absolute, now; otherwise the error of
	// the start. A nil as stands for a user of the machine's own. It takes at most about 10 s.
	FindDir(ctx context.Context, as *As, dir string) error
}

// Check refuses files and a directory (Spec.Dir) that are invalid on every host. container says that the machine is a
// container, kept that its streams are in use: it has a terminal, or its output waits for a reader (Spec.Attach).
//
// Errors: Invalid "stdio" or "path".
func (f *Stdio) Check(dir string, container, kept bool) error {
	switch {
	case dir == "" && *f == (Stdio{}):
		return nil
	case container:
		return fault.New(fault.Invalid, CodeStdio, "only a program of the host starts in a directory of the host and "+
			"reads and writes its files; a container has those of its image and its volumes: leave the directory "+
			"and the files out, or the image")
	case kept && !f.IsZero():
		return fault.New(fault.Invalid, CodeStdio, "the machine has a terminal or a reader for what it writes, and is "+
			"to use files instead: leave the files out, or the terminal and the reader")
	case dir != "" && (!path.IsAbs(dir) || !isPath(dir)):
		return fault.New(fault.Invalid, fault.CodePath, "a program starts in a directory that is named by its "+
			"absolute path, such as /srv, in at most %d bytes and without control characters, not in %.80q",
			maxDir, dir)
	case f.InByWorker && !path.IsAbs(f.In):
		return fault.New(fault.Invalid, CodeStdio, "the worker's own file for the program's input has no absolute "+
			"path (%.80q): name one", f.In)
	}
	for _, p := range []string{f.In, f.Out, f.Err} {
		if !isPath(p) {
			return fault.New(fault.Invalid, CodeStdio, "the path of a file for a program's input or output has at "+
				"most %d bytes and no control characters, unlike %.80q: name another", maxDir, p)
		}
	}
	return nil
}

// isPath reports whether a path has no more than maxDir bytes and no control characters.
func isPath(p string) bool { return len(p) <= maxDir && !strings.ContainsFunc(p, unicode.IsControl) }
