package jobs

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/jobs"
)

func busyJob() *jobs.Job {
	return &jobs.Job{State: jobs.Running, Spec: jobs.Spec{Name: "sweep", Last: 199, CPUs: 1, MemoryMB: 256},
		Tasks: 200, Waiting: 139, Running: 30, Succeeded: 28, Failed: 3, Elapsed: 6000, PerSecond: 5,
		Took: &jobs.Span{LowMS: 800, HighMS: 1300}, Left: &jobs.Span{LowMS: 3700, HighMS: 7800}}
}

// TestProgressBarStaysOnOneLine: the bar fits its line at any width, with failures and without.
func TestProgressBarStaysOnOneLine(t *testing.T) {
	for width := 2; width <= 200; width++ {
		var out bytes.Buffer
		b := &bar{w: &out, on: true, width: func() int { return width }}
		for _, failed := range []int{0, 3, 30} {
			j := busyJob()
			j.Failed = failed
			b.show(j)
			j.Running, j.Left, j.Why = 0, nil, "no worker is connected"
			b.show(j)
		}
		for _, line := range strings.Split(out.String(), "\r") {
			if cli.TextWidth(line) >= width {
				t.Fatalf("at %d columns: %q", width, line)
			}
		}
	}
	want := "[####..........................] 31 of 200, 3 failed, 30 running, 3.7 to 7.8 s left"
	if got := barText(busyJob(), 200); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestJobProgressPrintsNoUnmeasuredEstimate: the progress of a job prints no estimate before a task has ended.
func TestJobProgressPrintsNoUnmeasuredEstimate(t *testing.T) {
	told := func(j *jobs.Job) string {
		var out bytes.Buffer
		printJob(&cli.Env{Out: &out, Getenv: func(string) string { return "" }}, j)
		return out.String()
	}
	j := busyJob()
	j.Succeeded, j.Failed, j.PerSecond, j.Took, j.Left, j.TaskMS = 0, 0, 0, nil, nil, 1000
	if text := told(j); strings.Contains(text, "left") || strings.Contains(text, "takes") ||
		strings.Contains(text, "tasks/s") {
		t.Errorf("nothing has ended, and it says:\n%s", text)
	}
	if text := told(busyJob()); !strings.Contains(text, "left        3.7 to 7.8 s, if as many go on running") ||
		!strings.Contains(text, "a task takes 800 ms to 1.3 s") {
		t.Error(text)
	}
	j = busyJob()
	j.FirstFail = &jobs.FirstFail{Index: 7, ExitCode: 143, Error: "it ran for longer than --timeout allows"}
	if text := told(j); !strings.Contains(text, "task 7 first, with exit code 143: it ran for longer than --timeout "+
		"allows; its output: souk job logs sweep 7") {
		t.Error(text)
	}
}

func TestTimeSpansAreRoundedForReading(t *testing.T) {
	for _, x := range []struct {
		low, high time.Duration
		want      string
	}{
		{0, 0, "less than 1 ms"},
		{0, 20 * time.Second, "at most 20 s"},
		{3 * time.Minute, 5 * time.Minute, "3 to 5 min"},
		{1900 * time.Millisecond, 1920 * time.Millisecond, "about 1.9 s"},
		{40 * time.Second, 4 * time.Hour, "40 s to 4 h"},
	} {
		if got := spanText(jobs.Span{LowMS: x.low.Seconds() * 1000, HighMS: x.high.Seconds() * 1000}); got != x.want {
			t.Errorf("%v to %v: %q, want %q", x.low, x.high, got, x.want)
		}
	}
}

// TestStatusNamesTheMembersOfAJob: the one that keeps it and the one with a copy; of an unfinished job also that there is
// none.
func TestStatusNamesTheMembersOfAJob(t *testing.T) {
	for _, x := range []struct {
		member, heir cluster.WorkerID
		state        jobs.JobState
		want         string
	}{
		{"a", "b", jobs.Running, "  kept by     member a\n  copy at     member b\n"},
		{"a", "b", jobs.Failed, "  kept by     member a\n  copy at     member b\n"},
		{"a", "", jobs.Waiting,
			"  kept by     member a\n  copy at     no member: it is lost with that member's disk\n"},
		{"a", "", jobs.Failed, "  kept by     member a\n"},
		{"", "", jobs.Running, ""},
	} {
		var out bytes.Buffer
		j := busyJob()
		j.Member, j.Heir, j.State = x.member, x.heir, x.state
		printJob(&cli.Env{Out: &out, Getenv: func(string) string { return "" }}, j)
		if _, after, _ := strings.Cut(out.String(), "command     \n"); !strings.HasPrefix(after, x.want+"  tasks ") {
			t.Errorf("%+v: got\n%s", x, out.String())
		}
	}
}
