package jobs

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/soukhq/souk/fault"
)

// ExpandPattern replaces what stands for a task in the name of its file, as sbatch does (filename pattern): %a its
// index, with zeros up to a width as in %3a; %A, %j and %J the job's ID; %x the job's name, or else its ID; %u its Unix
// user; %N its worker; %n and %t 0, since a task is on one worker; %% a percent sign. After a backslash anywhere
// nothing is replaced, and the backslashes are removed. Unlike with Slurm a job's ID is no number, so %A and %j have no
// width.
func (t *Terms) ExpandPattern(pattern string, index int, worker string) string {
	if strings.Contains(pattern, `\`) {
		return strings.ReplaceAll(pattern, `\`, "")
	}
	var out strings.Builder
	for rest := pattern; ; {
		before, after, found := strings.Cut(rest, "%")
		out.WriteString(before)
		if !found {
			return out.String()
		}
		width, letter, left := cutCode(after)
		rest = left
		switch letter {
		case '%':
			out.WriteByte('%')
		case 'a':
			fmt.Fprintf(&out, "%0*d", width, index)
		case 'n', 't':
			fmt.Fprintf(&out, "%0*d", width, 0)
		case 'A', 'j', 'J':
			out.WriteString(t.Job)
		case 'x':
			out.WriteString(t.nameOrID())
		case 'u':
			out.WriteString(t.User.Name)
		case 'N':
			out.WriteString(worker)
		}
	}
}

func (t *Terms) nameOrID() string {
	if t.Name == "" {
		return t.Job
	}
	return t.Name
}

// cutCode splits what follows a percent sign: a width, at most 10 as with Slurm, a letter, and the rest.
func cutCode(s string) (width int, letter byte, rest string) {
	digits := len(s) - len(strings.TrimLeft(s, "0123456789"))
	width, _ = strconv.Atoi(s[:min(digits, 3)])
	if digits == len(s) {
		return min(width, 10), 0, ""
	}
	return min(width, 10), s[digits], s[digits+1:]
}

// checkPattern refuses a pattern with a code that stands for nothing.
func checkPattern(pattern string) error {
	if strings.Contains(pattern, `\`) {
		return nil
	}
	for rest := pattern; ; {
		_, after, found := strings.Cut(rest, "%")
		if !found {
			return nil
		}
		_, letter, left := cutCode(after)
		if letter == 0 || !strings.ContainsRune("%aAjJxuNnt", rune(letter)) {
			return fault.New(fault.Invalid, fault.CodeJob, "%.80q has a %%%s that stands for nothing: use %%a for the "+
				"index, %%j for the job, %%x for its name, %%N for the worker, %%u for the user, and %%%% for a "+
				"percent sign", pattern, after[:min(len(after), 1)])
		}
		rest = left
	}
}
