package jobs_test

import (
	"strings"
	"testing"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/fault"
)

// TestNamesOfTasksFiles: as Slurm 22.05 expands them, but for %A and %j, which are no numbers here, and %a of a job
// that is no array, which is 4294967294 there.
func TestNamesOfTasksFiles(t *testing.T) {
	array := &jobs.Terms{Job: "j0000000057", Name: "sweep", User: cluster.UnixUser{Name: "alice", UID: 1001}}
	for _, c := range []struct {
		pattern string
		index   int
		want    string
	}{
		{"o-%a-%3a-%5a.txt", 7, "o-7-007-00007.txt"}, // Slurm: o-7-007-00057.txt has %5A, the job
		{"slurm-%A_%a.out", 0, "slurm-j0000000057_0.out"},
		{"%5A", 7, "j0000000057"},
		{"%x/%u-%N-%n%t-%j-%J.%%", 1, "sweep/alice-w1-00-j0000000057-j0000000057.%"},
		{"%15a", 7, "0000000007"}, // Slurm's widest is 10
		{`a\%a`, 7, "a%a"},
		{"one.txt", 3, "one.txt"},
		{"", 3, ""},
	} {
		if got := array.ExpandPattern(c.pattern, c.index, "w1"); got != c.want {
			t.Errorf("%q of task %d: %q, not %q", c.pattern, c.index, got, c.want)
		}
	}
	unnamed := &jobs.Terms{Job: "j0000000057"}
	if got := unnamed.ExpandPattern("%x-%u", 0, "w1"); got != "j0000000057-" {
		t.Errorf("a job without a name and a user: %q", got)
	}
}

// TestFilesAreChecked: before anything changes.
func TestFilesAreChecked(t *testing.T) {
	digest := "sha256:" + strings.Repeat("0a", 32)
	data := jobs.Sent{Name: "data", Digest: digest}
	for _, c := range []struct {
		files jobs.Files
		want  string // of the error; "": none
	}{
		{jobs.Files{}, ""},
		{jobs.Files{Dir: "/srv/data", Stdin: "in-%a", Stdout: "logs/%j-%a.out", Stderr: "/tmp/%x", Append: true}, ""},
		{jobs.Files{Sent: []jobs.Sent{data, {Name: jobs.StdinName, Digest: digest}}}, ""},
		{jobs.Files{Sent: []jobs.Sent{data}, Keep: []string{"out-*.csv", "a/b"}}, ""},
		{jobs.Files{Dir: "/srv", Sent: []jobs.Sent{{Name: jobs.StdinName, Digest: digest}}}, ""},
		{jobs.Files{Stdout: "out.txt", Keep: []string{"out.txt"}}, ""},
		{jobs.Files{Dir: "srv"}, "absolute path"},
		{jobs.Files{Dir: "/srv/../etc"}, "absolute path"},
		{jobs.Files{Dir: "/srv/\n"}, "absolute path"},
		{jobs.Files{Dir: "/srv", Keep: []string{"x"}}, "directory of their own"},
		{jobs.Files{Dir: "/srv", Sent: []jobs.Sent{data}}, "directory of their own"},
		{jobs.Files{Stdout: "out.txt"}, "would be removed"},
		{jobs.Files{Stdout: "/tmp/%q"}, "stands for nothing"},
		{jobs.Files{Stdout: "/tmp/%"}, "stands for nothing"},
		{jobs.Files{Stdout: "/tmp/%3"}, "stands for nothing"},
		{jobs.Files{Stdin: strings.Repeat("x", 4001)}, "names no file"},
		{jobs.Files{Append: true}, "appended to a file"},
		{jobs.Files{Stdin: "x", Sent: []jobs.Sent{{Name: jobs.StdinName, Digest: digest}}}, "one input"},
		{jobs.Files{Sent: []jobs.Sent{data, data}}, "have the name"},
		{jobs.Files{Sent: []jobs.Sent{{Name: "a/b", Digest: digest}}}, "cannot name"},
		{jobs.Files{Sent: []jobs.Sent{{Name: "..", Digest: digest}}}, "cannot name"},
		{jobs.Files{Sent: []jobs.Sent{{Name: "a", Digest: "sha256:../../etc"}}}, "digest"},
		{jobs.Files{Sent: []jobs.Sent{{Name: "a", Digest: "sha256:" + strings.Repeat("0A", 32)}}}, "digest"},
		{jobs.Files{Sent: make([]jobs.Sent, jobs.MaxSent+1)}, "at most 64"},
		{jobs.Files{Keep: []string{"/etc/passwd"}}, "below the task's directory"},
		{jobs.Files{Keep: []string{"../x"}}, "below the task's directory"},
		{jobs.Files{Keep: []string{"a/../../x"}}, "below the task's directory"},
		{jobs.Files{Keep: []string{"."}}, "below the task's directory"},
		{jobs.Files{Keep: []string{"[a"}}, "below the task's directory"},
	} {
		s := jobs.Spec{App: "a", Command: []string{"true"}, Files: c.files}
		err := s.Settle()
		if (err == nil) != (c.want == "") || err != nil && (!fault.Is(err, fault.Invalid) ||
			!strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: %v, not %q", c.files, err, c.want)
		}
	}
}

// TestTasksOfAnImage: need a worker that runs images, have no command if the image has one, and no files of the host.
func TestTasksOfAnImage(t *testing.T) {
	settle := func(s jobs.Spec) (jobs.Spec, error) {
		s.App, s.Owner.User = "a", &cluster.UnixUser{Name: "alice", UID: 1001}
		err := s.Settle()
		return s, err
	}
	s, err := settle(jobs.Spec{Image: "nginx:1.29"})
	if r := s.Request(); err != nil || r.UnixUser != "" || len(r.Scheduling.Require) != 1 ||
		r.Scheduling.Require[0].String() != "exists containers" {
		t.Errorf("%v, %+v", err, r)
	}
	s, err = settle(jobs.Spec{Image: "souk/host", Command: []string{"true"}})
	if r := s.Request(); err != nil || s.Image != "" || r.UnixUser != "alice" || len(r.Scheduling.Require) != 0 {
		t.Errorf("%v, %+v", err, s)
	}
	for want, s := range map[string]jobs.Spec{
		"needs a command": {Image: "souk/host"},
		"of the image":    {Image: "nginx", Files: jobs.Files{Dir: "/srv"}},
		"image":           {Image: "BAD IMAGE"},
	} {
		if _, err := settle(s); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", s, err)
		}
	}
}

// TestTasksStartWhereTheJobWasSubmitted: if hosts share that directory, and the job says nothing else.
func TestTasksStartWhereTheJobWasSubmitted(t *testing.T) {
	shared := jobs.Propagated{SharedDir: "/nfs/alice"}
	for _, c := range []struct {
		spec jobs.Spec
		want string
	}{
		{jobs.Spec{}, ""},
		{jobs.Spec{Propagated: shared}, "/nfs/alice"},
		{jobs.Spec{Propagated: shared, Files: jobs.Files{Dir: "/srv"}}, "/srv"},
		{jobs.Spec{Propagated: shared, Files: jobs.Files{Keep: []string{"x"}}}, ""},
	} {
		if c.spec.StartInSharedDir(); c.spec.Dir != c.want || c.spec.SharedDir != "" {
			t.Errorf("%+v", c.spec)
		}
	}
}
