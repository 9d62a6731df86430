package jobs

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/core/jobs"
)

// printFiles prints where a job's tasks run, and what they read, write and leave.
func printFiles(c *cli.Env, s *jobs.Spec) {
	line := c.Field
	for _, x := range []struct{ name, value string }{{"image", s.Image}, {"starts in", s.Dir}, {"stdin", s.Stdin},
		{"output", outputText(s)}, {"keeps", strings.Join(s.Keep, ", ")}} {
		if x.value != "" {
			line(x.name, "%s", x.value)
		}
	}
	var sent []string
	for _, x := range s.Sent {
		name := x.Name
		if name == jobs.StdinName {
			name = "what each reads as its input"
		}
		sent = append(sent, fmt.Sprintf("%s (%s)", name, cli.Bytes(x.Bytes)))
	}
	if len(sent) > 0 {
		line("sent", "%s", strings.Join(sent, ", "))
	}
}

// outputText says which files on the workers tasks write to; "": what they write is kept with the job.
func outputText(s *jobs.Spec) string {
	switch {
	case s.Stdout == "" && s.Stderr == "":
		return ""
	case s.Stdout == "":
		return "stderr in " + s.Stderr + ", on the workers"
	case cmp.Or(s.Stderr, s.Stdout) == s.Stdout:
		return s.Stdout + ", on the workers"
	}
	return s.Stdout + ", stderr in " + s.Stderr + ", on the workers"
}

// taskText says of a task what its exit code does not: what went wrong, and which of its files are kept.
func taskText(t *jobs.Task) string {
	switch f := t.Files; {
	case t.Detail != "" || f == nil:
		return t.Detail
	case f.Why != "":
		return f.Why
	default:
		return fmt.Sprintf("%s kept (%s)", countOf(f.Files, "file", "files"), cli.Bytes(f.Bytes))
	}
}
