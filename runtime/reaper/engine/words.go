package engine

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime"
)

// Runtimes report only in words why they cannot make a container, each in its own. The patterns below distinguish four
// kinds: the program is at fault, the container's specification is at fault, the host never provides what the runtime
// needs, and everything else, which a retry may resolve. The sentences are from crun 1.8.1 and 1.21, runc 1.1.5 to
// 1.5.2, and runsc since 2022.

// aboutProgram matches sentences about a program: its name, if the sentence has one, and the error.
var aboutProgram = []*regexp.Regexp{
	regexp.MustCompile(`exec: (".+?"|[^\s:]+): (.*)`),                      // runc
	regexp.MustCompile("(?:executable file|the path) `(.+?)` (.*)"),        // crun
	regexp.MustCompile("exec container process `(.+?)`: (.*)"),             // crun
	regexp.MustCompile(`open executable()?: (.*)`),                         // crun
	regexp.MustCompile(`failed to load ([^\s:]+): (.*)`),                   // runsc
	regexp.MustCompile(`error finding executable (".+?") in PATH.*: (.*)`), // runsc
}

// never matches errors about a property of the host that keeps a runtime from making any container.
var never = regexp.MustCompile(`cgroups in hybrid mode not supported|invalid cgroup mode|unknown cgroup version|` +
	`cgroup v1 (?:is )?not supported|cgroup mountpoint does not exist|mountpoint for \S+ not found|no cgroup mount found|` +
	`user namespaces (?:aren't|are not) enabled|unknown version`)

// passing lists errors that come from the host's momentary state.
var passing = []string{"resource temporarily unavailable", "cannot allocate memory", "no space left",
	"too many open files", "device or resource busy", "input/output error", "interrupted", "timed out",
	"no buffer space"}

// lasting lists errors that come from a container's specification, for runtimes that do not say where an error
// happened.
var lasting = []string{"not a directory", "is a directory", "no such file or directory", "permission denied",
	"operation not permitted", "invalid argument", "too many levels of symbolic links", "file exists",
	"function not implemented", "file name too long"}

func hasAny(text string, words []string) bool {
	text = strings.ToLower(text) // crun's errors begin with a capital letter, like strerror's
	return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(text, w) })
}

// The codes of errors in making a container.
const (
	codeInit   fault.Code = "engine_init"   // the OCI runtime, or the first process, reported an error
	codeSilent fault.Code = "engine_silent" // the first process ended without an error message
	CodeNever  fault.Code = "engine_never"  // the OCI runtime makes no containers on this host
)

// notReady is runc's message, since 1.2, for a first process that ended without an error message; before, it reported a
// nil error.
const notReady = "procReady not received"

// loggedError converts the errors in a runtime's log to one error: a known cause, or the runtime's own words.
func (e Engine) loggedError(log string, err error) error {
	all := errorsIn(log)
	if len(all) == 0 {
		return fault.Wrap(err, fault.Unavailable, runtime.CodeEngine,
			"the container runtime failed and does not say why")
	}
	for _, msg := range all {
		if strings.Contains(msg, "uids and gids must be in range") { // from runc; files may belong to such users
			return fault.New(fault.Precondition, runtime.CodeUser,
				"the container runtime accepts no user or group id above 2147483647: give the machine another user")
		}
		if wrong := programError(msg); wrong != nil {
			return wrong
		}
		if never.MatchString(msg) {
			return fault.New(fault.Precondition, CodeNever, "%s makes no containers on this host: %s; have another "+
				"OCI runtime make them (--containers), or change the host", filepath.Base(e.Path), msg)
		}
	}
	cause := fmt.Errorf("%s: %w", strings.Join(all, ": "), err)
	code, last := runtime.CodeEngine, all[len(all)-1]
	if strings.HasSuffix(last, "error during container init: %!w(<nil>)") || strings.HasSuffix(last, notReady) {
		code = codeSilent
	} else if why := e.wrongInSpec(all); why != "" {
		code, cause = codeInit, &refused{why, cause}
	}
	return fault.Wrap(cause, fault.Unavailable, code, "the container cannot be made now")
}

// programError returns the error for a sentence about a program, nil if it matches no known sentence.
func programError(msg string) error {
	for _, re := range aboutProgram {
		m := re.FindStringSubmatch(msg)
		if m == nil {
			continue
		}
		name := m[1]
		if name == "" {
			name = "the program"
		}
		switch why := strings.ToLower(m[2]); {
		case strings.Contains(why, "not found"), strings.Contains(why, "no such file"):
			return fault.New(fault.Precondition, runtime.CodeNoProgram,
				"there is no program %s in the image: name one that it has, with its path or in its PATH", name)
		case strings.Contains(why, "permission denied"), strings.Contains(why, "is a directory"),
			strings.Contains(why, "not a regular file"), strings.Contains(why, "operation not permitted"):
			return fault.New(fault.Precondition, runtime.CodeNotExecutable,
				"%s in the image cannot be executed: it is a directory, or its user may not (chmod +x)", name)
		case strings.Contains(why, "exec format error"):
			return fault.New(fault.Precondition, runtime.CodeNotExecutable,
				"%s is not a program for this worker (another "+
					"architecture, or a script without a #! line)", name)
		}
	}
	return nil
}

// refused is a container that was probably refused because of its specification.
type refused struct {
	why   string // without the container's random number
	cause error
}

func (r *refused) Error() string { return r.cause.Error() }
func (r *refused) Unwrap() error { return r.cause }

// wrongInSpec returns the runtime's error about a container's specification, "" if there is none. runc marks errors of
// the container's first process; for others the first sentence is the cause, and later ones are consequences.
func (e Engine) wrongInSpec(all []string) string {
	why := all[0]
	if filepath.Base(e.Path) != "crun" && !e.Sandboxes() {
		for _, msg := range all {
			_, why, _ = strings.Cut(msg, "error during container init: ")
		}
		if why == "" {
			return ""
		}
	} else if !hasAny(why, lasting) {
		return ""
	}
	if hasAny(why, passing) {
		return ""
	}
	return containerNumber.ReplaceAllString(why, "")
}

var containerNumber = regexp.MustCompile(`-[0-9a-f]{8}\b`)

// noDirectory matches the runtimes' errors about a missing working directory.
var noDirectory = []*regexp.Regexp{
	regexp.MustCompile(`^(?:mkdir|chdir to cwd) \(?"?([^":]+)"?\)?(?: set in config.json failed)?: (.*)$`), // runc
	regexp.MustCompile("^chdir `(.+?)`: (.*)$"),                                                            // crun
	regexp.MustCompile(`creating working directory "(.+?)": mkdir [^:]*: (.*)$`),                           // runsc
}

// Wrong reports whether a container was probably refused because of its specification: Refused knows for certain after
// a second attempt.
func Wrong(err error) bool { return fault.CodeOf(err) == codeInit }

// Refused returns an error if two attempts failed with the same error of the specification, so that a further attempt
// is useless; otherwise nil.
func Refused(first, second error) error {
	one, is := errors.AsType[*refused](first)
	two, again := errors.AsType[*refused](second)
	if !is || !again || one.why != two.why {
		return nil
	}
	for _, re := range noDirectory {
		if m := re.FindStringSubmatch(two.why); m != nil {
			return fault.New(fault.Precondition, runtime.CodeContainer,
				"the program cannot begin in the directory %s: %s; change the image's WORKDIR, or the directory itself",
				m[1], m[2])
		}
	}
	return fault.New(fault.Precondition, runtime.CodeContainer,
		"the container can never be made: %s; change the image or the launch", two.why)
}

// EndedSilently reports whether a container's first process ended without an error message: a retry may succeed. Its
// program has not been executed.
func EndedSilently(err error) bool { return fault.CodeOf(err) == codeSilent }

// errorsIn returns the errors in a JSON log, in order: the first process's own errors come before the runtime's
// conclusions. runsc writes several entries into a line.
func errorsIn(file string) (all []string) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	for line := range bytes.Lines(raw) {
		for d := json.NewDecoder(bytes.NewReader(line)); ; {
			var l struct{ Level, Msg string }
			if d.Decode(&l) != nil {
				break
			}
			if l.Level == "error" || l.Level == "fatal" {
				first, _, _ := strings.Cut(l.Msg, "\n") // runsc appends a stack trace
				all = append(all, first)
			}
		}
	}
	return all
}
