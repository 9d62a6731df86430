package faults

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/core/jobs"
)

// endedJob is a job, as its keeper and its tasks show it.
type endedJob struct {
	job   jobs.Job
	tasks []jobs.Task
	ran   []attempt
}

// ended is a job with the tasks 1 to 3 that has ended well: its task 3 has failed, as it should.
func ended() (*submitted, *endedJob) {
	no, yes := failCode, 0
	j := &submitted{id: "j0123456789", at: &member{id: "m1"}, spec: jobs.Spec{First: 1, Last: 3}, accepted: true,
		shown: map[int]sight{}}
	return j, &endedJob{jobs.Job{Member: "m1", State: jobs.Failed, Succeeded: 2, Failed: 1}, []jobs.Task{
		{Index: 1, State: "succeeded", Attempt: 1, ExitCode: &yes, Worker: "m1"},
		{Index: 2, State: "succeeded", Attempt: 2, ExitCode: &yes, Worker: "m2"},
		{Index: 3, State: "failed", Attempt: 1, ExitCode: &no, Worker: "m1"}},
		[]attempt{{1, 0, 1, "m1"}, {2, 0, 1, "m1"}, {2, 0, 2, "m2"}, {3, 0, 1, "m1"}}}
}

// TestViolationsOfJobsAreFound: each promise that a job can break is one sentence, and a job that keeps all has none.
func TestViolationsOfJobsAreFound(t *testing.T) {
	code := 127
	for _, c := range []struct {
		want  string // "": nothing is wrong
		spoil func(*endedJob)
	}{
		{"", func(*endedJob) {}},
		{"attempt 1 of task 2 in epoch 0 was begun twice, first at m1, then at m3", func(c *endedJob) {
			c.ran = append(c.ran, attempt{2, 0, 1, "m3"})
		}},
		{"", func(c *endedJob) { c.ran = append(c.ran, attempt{2, 1, 1, "m3"}) }}, // another keeper's
		{"task 2 has the result of attempt 2 at m2, which never began", func(c *endedJob) {
			c.ran = c.ran[:2]
		}},
		{"of 3 tasks 2 are listed", func(c *endedJob) {
			c.tasks = c.tasks[1:]
		}},
		{"and 2 counted as ended", func(c *endedJob) { c.job.Succeeded-- }},
		{"its task 2 is running", func(c *endedJob) {
			c.tasks[1].State = "running"
		}},
		{"its task 3 is cancelled, which nobody asked for", func(c *endedJob) {
			c.tasks[2].State = "cancelled"
		}},
		{"exit code 127 (), not 0", func(c *endedJob) {
			c.tasks[0].ExitCode = &code
		}},
		{"is succeeded without an exit code", func(c *endedJob) {
			c.tasks[0].ExitCode = nil
		}},
	} {
		j, x := ended()
		c.spoil(x)
		j.verify(&x.job, x.tasks, x.ran, false, false)
		expectWrong(t, j, c.want)
	}
}

// TestChangesOfEndedTasksAreFound: what was shown of a task or a job that has ended is compared with what is shown later.
func TestChangesOfEndedTasksAreFound(t *testing.T) {
	for _, c := range []struct {
		want  string
		spoil func(*endedJob)
	}{
		{"", func(*endedJob) {}},
		{"1 was shown succeeded in attempt 1 at \"m1\", by m1 in epoch 0, and later \"running\"", func(c *endedJob) {
			c.tasks[0].State, c.tasks[0].Attempt = "running", 2
		}},
		{"task 1 was shown succeeded in attempt 1 at \"m1\", by m1 in epoch 0, and later \"\"", func(c *endedJob) {
			c.tasks = c.tasks[1:]
		}},
		{"its task 1 is listed twice", func(c *endedJob) { c.tasks = append(c.tasks, c.tasks[0]) }},
		{"it was shown failed with 2 tasks succeeded", func(c *endedJob) {
			c.job.State, c.job.Succeeded = jobs.Running, 1
		}},
	} {
		j, x := ended()
		j.compare(&x.job, x.tasks, time.Now(), &absences{})
		_, x = ended()
		c.spoil(x)
		j.compare(&x.job, x.tasks, time.Now(), &absences{cut: true}) // it excuses nothing: the keeper is the same
		expectWrong(t, j, c.want)
	}
}

// TestResultsOfTwoKeepersMayBeReplaced: after a cut, or while a keeper was away, another member's results count; at no
// other time. A new keeper may learn later which attempt of a cancelled task ran.
func TestResultsOfTwoKeepersMayBeReplaced(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		want string
		why  *absences
	}{
		{"", &absences{cut: true}},
		{"", &absences{away: []span{{now.Add(-time.Second), now}}}},
		{"its task 1 was shown succeeded in attempt 1 at \"m1\"", &absences{}},
		{"its task 1 was shown succeeded in attempt 1 at \"m1\"", &absences{away: []span{{now.Add(-time.Hour),
			now.Add(-time.Minute)}}}},
	} {
		j, x := ended()
		j.compare(&x.job, x.tasks, now, c.why)
		x.job.Epoch++
		x.tasks[0].Worker = "m2"
		j.compare(&x.job, x.tasks, now, c.why)
		expectWrong(t, j, c.want)
	}
	j, x := ended()
	x.tasks[0] = jobs.Task{Index: 1, State: "cancelled"}
	j.compare(&x.job, x.tasks, now, &absences{})
	x.tasks[0].Attempt, x.tasks[0].Worker = 1, "m2"
	j.compare(&x.job, x.tasks, now, &absences{})
	expectWrong(t, j, "")
	j, x = ended()
	x.ran = append(x.ran, attempt{2, 0, 1, "m3"})
	j.verify(&x.job, x.tasks, x.ran, false, true)
	expectWrong(t, j, "")
	x.ran = append(x.ran, attempt{2, 0, 1, "m3"})
	j.verify(&x.job, x.tasks, x.ran, false, true)
	expectWrong(t, j, "was begun twice, first at m3, then at m3")
}

func expectWrong(t *testing.T, j *submitted, want string) {
	t.Helper()
	got := strings.Join(j.wrong, "\n")
	if !strings.Contains(got, want) || (want == "") != (got == "") {
		t.Errorf("it is said %q, which is to have %q", got, want)
	}
}

// TestProcessesOfTasksAreSeen: a task lives while a process of it has its lock, and its attempts are read from its file.
func TestProcessesOfTasksAreSeen(t *testing.T) {
	s, j := &submitter{dir: t.TempDir()}, &submitted{id: "j0123456789"}
	if lives, err := s.lives(j); lives || err != nil {
		t.Errorf("a task that never began lives: %v, %v", lives, err)
	}
	f, err := os.Create(filepath.Join(s.dir, j.id+".lock"))
	if err == nil {
		err = unix.Flock(int(f.Fd()), unix.LOCK_SH)
	}
	if err != nil {
		t.Fatal(err)
	}
	if lives, err := s.lives(j); !lives || err != nil {
		t.Errorf("a task that lives does not: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if lives, err := s.lives(j); lives || err != nil {
		t.Errorf("a task that has ended lives: %v, %v", lives, err)
	}
	if err := os.WriteFile(filepath.Join(s.dir, j.id+".begun"), []byte("1 4 2 m3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if ran, err := attemptsOf(s.dir, j.id); err != nil || len(ran) != 1 || ran[0] != (attempt{1, 4, 2, "m3"}) {
		t.Errorf("the attempts are %v, %v", ran, err)
	}
}
