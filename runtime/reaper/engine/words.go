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

// Runtimes say in words alone why they make no container, each in its own. What follows tells four kinds apart: the
// program is at fault, the container is for what it is to be, the host never has what the runtime takes, and all else,
// which may be another thing the next time. Those of crun are of 1.8.1 and 1.21, of runc of 1.1.5 to 1.5.2, of runsc of
// 2022 on.

// aboutProgram are sentences about a program: its name, where they say one, and what is wrong with it.
var aboutProgram = []*regexp.Regexp{
	regexp.MustCompile(`exec: (".+?"|[^\s:]+): (.*)`),                      // runc
	regexp.MustCompile("(?:executable file|the path) `(.+?)` (.*)"),        // crun
	regexp.MustCompile("exec container process `(.+?)`: (.*)"),             // crun
	regexp.MustCompile(`open executable()?: (.*)`),                         // crun
	regexp.MustCompile(`failed to load ([^\s:]+): (.*)`),                   // runsc
	regexp.MustCompile(`error finding executable (".+?") in PATH.*: (.*)`), // runsc
}

// never are words for what a host lacks, or has, that keeps a runtime from making any container there.
var never = regexp.MustCompile(`cgroups in hybrid mode not supported|invalid cgroup mode|unknown cgroup version|` +
	`cgroup v1 (?:is )?not supported|cgroup mountpoint does not exist|mountpoint for \S+ not found|no cgroup mount found|` +
	`user namespaces (?:aren't|are not) enabled|unknown version`)

// passing are the words of errors that are the host's of this moment.
var passing = []string{"resource temporarily unavailable", "cannot allocate memory", "no space left",
	"too many open files", "device or resource busy", "input/output error", "interrupted", "timed out",
	"no buffer space"}

// lasting are those of errors that are of what a container is to be, where a runtime does not say who met them.
var lasting = []string{"not a directory", "is a directory", "no such file or directory", "permission denied",
	"operation not permitted", "invalid argument", "too many levels of symbolic links", "file exists",
	"function not implemented", "file name too long"}

func hasAny(text string, words []string) bool {
	text = strings.ToLower(text) // crun's begin as strerror has them
	return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(text, w) })
}

// The codes of errors in making a container.
const (
	codeInit   fault.Code = "engine_init"   // its OCI runtime, or first process, said what is wrong with it
	codeSilent fault.Code = "engine_silent" // its first process ended without a word
	CodeNever  fault.Code = "engine_never"  // the OCI runtime makes none on this host
)

// notReady is how runc says that a first process ended without a word, from 1.2 on; before, it says that there was no
// error.
const notReady = "procReady not received"

// loggedError makes what a runtime wrote into its log an error: what was wrong with the container, or the runtime's
// words.
func (e Engine) loggedError(log string, err error) error {
	all := errorsIn(log)
	if len(all) == 0 {
		return fault.Wrap(err, fault.Unavailable, runtime.CodeEngine,
			"the container runtime failed and does not say why")
	}
	for _, msg := range all {
		if strings.Contains(msg, "uids and gids must be in range") { // runc's; files may belong to any
			return fault.New(fault.Precondition, runtime.CodeUser,
				"the container runtime runs nobody with a number above 2147483647: give the machine another user")
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

// programError is what a sentence says of a program; nil: nothing that is known.
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

// refused is a container that was not made for what it is to be, as it seems.
type refused struct {
	why   string // without the number that each container has
	cause error
}

func (r *refused) Error() string { return r.cause.Error() }
func (r *refused) Unwrap() error { return r.cause }

// wrongInSpec is what a runtime said was wrong with what a container is to be; "": nothing. runc tells what a
// container's first process met; of others the first sentence is what happened, and those behind it what came of that.
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

// noDirectory are how runtimes say that there is no directory to begin in.
var noDirectory = []*regexp.Regexp{
	regexp.MustCompile(`^(?:mkdir|chdir to cwd) \(?"?([^":]+)"?\)?(?: set in config.json failed)?: (.*)$`), // runc
	regexp.MustCompile("^chdir `(.+?)`: (.*)$"),                                                            // crun
	regexp.MustCompile(`creating working directory "(.+?)": mkdir [^:]*: (.*)$`),                           // runsc
}

// Wrong reports whether a container was not made because of what it is to be, as it seems: Refused knows after a second
// try.
func Wrong(err error) bool { return fault.CodeOf(err) == codeInit }

// Refused says what is wrong with a container that cannot be made now or later: the same was said twice. Else it
// returns nil.
func Refused(first, second error) error {
	one, is := errors.AsType[*refused](first)
	two, again := errors.AsType[*refused](second)
	if !is || !again || one.why != two.why {
		return nil
	}
	for _, re := range noDirectory {
		if m := re.FindStringSubmatch(two.why); m != nil {
			return fault.New(fault.Precondition, runtime.CodeContainer,
				"the program cannot begin in the directory %s: %s; change the image's WORKDIR, or what is there", m[1],
				m[2])
		}
	}
	return fault.New(fault.Precondition, runtime.CodeContainer,
		"the container can be made neither now nor later: %s; change the image or the launch", two.why)
}

// EndedSilently reports whether a container was not made for no reason that its first process gave: it may be the next
// time. Its program has not been executed.
func EndedSilently(err error) bool { return fault.CodeOf(err) == codeSilent }

// errorsIn finds the errors in a log of JSON: what a container's first process has said comes before what that means.
// runsc writes several into a line.
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
				first, _, _ := strings.Cut(l.Msg, "\n") // runsc adds where in its program that was
				all = append(all, first)
			}
		}
	}
	return all
}
