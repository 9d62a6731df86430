package jobs

import (
	"path"
	"slices"
	"strings"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
)

// Files says where the tasks of a job run, what they read, and where what they write is kept. The zero value: each task
// starts in an empty directory of its own without input, and the end of its output is kept with the job.
type Files struct {
	// Dir is the directory that the tasks start in, absolute; "": each has one of its own, which is removed after its
	// end. Only a worker that has Dir, where the task's user may enter it, runs tasks of the job.
	Dir string `json:"dir,omitempty"`
	// Stdin, Stdout and Stderr are files that the task's streams are, opened as its user: absolute, or below the
	// directory that it starts in. They may have the patterns of ExpandPattern. "": no input; the output is kept with
	// the job. Stderr goes with Stdout unless it is set.
	Stdin  string `json:"stdin,omitempty"`
	Stdout string `json:"stdout,omitempty"`
	Stderr string `json:"stderr,omitempty"`
	// Append has each task append to Stdout and Stderr; otherwise its start truncates them.
	Append bool `json:"append,omitempty"`
	// Sent are what each task finds in its directory, read-only.
	Sent []Sent `json:"sent,omitempty"`
	// Keep are which of the files that a task leaves in its directory are kept by its worker until they are fetched:
	// paths below it, each part a pattern of path.Match. A directory is kept whole.
	Keep []string `json:"keep,omitempty"`
}

// Sent is a file or directory that was sent to a member before its job was submitted.
type Sent struct {
	Name   string `json:"name"`   // in the task's directory; StdinName: it is what the task reads as its input
	Digest string `json:"digest"` // of its archive: see package sent
	Bytes  int64  `json:"bytes"`  // of its archive
	// At are members that have it. The gateway sets it.
	At []cluster.WorkerID `json:"at,omitempty"`
}

// StdinName is the name of what is sent to be the tasks' input. It is not in their directories.
const StdinName = "-"

// Bounds of Files.
const (
	MaxSent    = 64
	MaxKeep    = 64
	maxPathLen = 4000 // bytes of a path or pattern
)

// IsZero reports whether tasks need none of it.
func (f *Files) IsZero() bool {
	return f.Dir == "" && f.Stdin == "" && f.Stdout == "" && f.Stderr == "" && !f.Append && len(f.Sent) == 0 &&
		len(f.Keep) == 0
}

// sentInput returns what was sent to be the tasks' input; nil: nothing.
func (f *Files) sentInput() *Sent {
	if i := slices.IndexFunc(f.Sent, func(s Sent) bool { return s.Name == StdinName }); i >= 0 {
		return &f.Sent[i]
	}
	return nil
}

// needsOwnDir reports whether the tasks find or leave something in a directory of their own.
func (f *Files) needsOwnDir() bool {
	return len(f.Keep) > 0 || slices.ContainsFunc(f.Sent, func(s Sent) bool { return s.Name != StdinName })
}

// checkFiles refuses what no worker could do.
func (f *Files) checkFiles() error {
	no := func(format string, args ...any) error {
		return fault.New(fault.Invalid, fault.CodeJob, format, args...)
	}
	if d := f.Dir; d != "" && (!path.IsAbs(d) || path.Clean(d) != d || !isPath(d)) {
		return no("tasks start in a directory that is named by its absolute path, such as /srv/data, not in %.80q", d)
	}
	if f.Dir != "" && f.needsOwnDir() {
		return no("files are sent to tasks, and kept of them, in a directory of their own, and these start in %.80q: "+
			"leave the directory out, or name the files there", f.Dir)
	}
	for _, p := range []string{f.Stdin, f.Stdout, f.Stderr} {
		if p != "" && !isPath(p) {
			return no("%.80q names no file that a task can read or write", p)
		}
		if err := checkPattern(p); err != nil {
			return err
		}
	}
	for _, p := range []string{f.Stdout, f.Stderr} {
		if p != "" && !path.IsAbs(p) && f.Dir == "" && len(f.Keep) == 0 {
			return no("the output file %.80q would be removed with the directory of its own that a task starts in: "+
				"name it by its absolute path, say which directory the tasks start in (--chdir), or keep the file "+
				"(--out)", p)
		}
	}
	if f.Append && f.Stdout == "" && f.Stderr == "" {
		return no("output is appended to a file: name one (--stdout)")
	}
	if f.Stdin != "" && f.sentInput() != nil {
		return no("tasks have one input, not both a file (%.80q) and what was sent", f.Stdin)
	}
	return f.checkLists()
}

// StartInSharedDir has the tasks start where the job was submitted, if hosts share that directory and the job says
// nothing else.
func (s *Spec) StartInSharedDir() {
	if s.Dir == "" && !s.needsOwnDir() {
		s.Dir = s.SharedDir
	}
	s.SharedDir = ""
}

// checkLists refuses lists of files that no worker could use.
func (f *Files) checkLists() error {
	no := func(format string, args ...any) error {
		return fault.New(fault.Invalid, fault.CodeJob, format, args...)
	}
	if len(f.Sent) > MaxSent || len(f.Keep) > MaxKeep {
		return no("at most %d files and directories are sent, and %d patterns of files are kept, not %d and %d; use "+
			"directories", MaxSent, MaxKeep, len(f.Sent), len(f.Keep))
	}
	names := map[string]bool{}
	for _, s := range f.Sent {
		switch {
		case s.Name != StdinName && (!isPath(s.Name) || s.Name == "." || s.Name == ".." || path.Base(s.Name) != s.Name):
			return no("%.80q cannot name what is sent in a task's directory", s.Name)
		case names[s.Name]:
			return no("two of the files that are sent have the name %.80q; rename one", s.Name)
		case !isDigest(s.Digest) || s.Bytes < 0:
			return no("what is sent has the digest of its archive, sha256: and 64 hexadecimal digits, not %.80q",
				s.Digest)
		}
		names[s.Name] = true
	}
	for _, p := range f.Keep {
		if _, err := path.Match(p, ""); err != nil || !isPath(p) || path.IsAbs(p) || path.Clean(p) != p || p == "." ||
			p == ".." || strings.HasPrefix(p, "../") {
			return no("files are kept by patterns of paths below the task's directory, such as out.csv or "+
				"results/*.json, not by %.80q", p)
		}
	}
	return nil
}

func isPath(p string) bool {
	isControl := func(r rune) bool { return r < ' ' || r == 0x7f }
	return p != "" && len(p) <= maxPathLen && !strings.ContainsFunc(p, isControl)
}

// isDigest reports whether a text is a SHA-256 digest as archives have it.
func isDigest(s string) bool {
	hex, is := strings.CutPrefix(s, "sha256:")
	return is && len(hex) == 64 && strings.Trim(hex, "0123456789abcdef") == ""
}
