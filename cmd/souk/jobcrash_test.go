package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/soukhq/souk/bench/live"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/internal/wait/waittest"
)

// TestLongJobsOverKill9RunOnce kills souk five times at random moments in the middle of 500 tasks. In the end each task has one
// recorded result, none is lost, no attempt of a task was begun twice, no room is taken and no process is left.
func TestLongJobsOverKill9RunOnce(t *testing.T) {
	t.Parallel()
	jobsOverKill9(t, 500, 5)
}

// TestJobsOverKill9RunOnce: after two kills in the middle of 150 tasks each task has one result.
func TestJobsOverKill9RunOnce(t *testing.T) {
	t.Parallel()
	jobsOverKill9(t, 150, 2)
}

func jobsOverKill9(t *testing.T, tasks, kills int) {
	dir := t.TempDir()
	ran := filepath.Join(dir, "ran") // one short line for each life: O_APPEND keeps them whole
	if err := os.WriteFile(ran, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	openTo(t, ran)
	var log syncBuffer
	own := &live.Souk{
		Exe:    soukExe(t),
		State:  filepath.Join(dir, "state"),
		Stderr: &log,
		Args:   []string{"--workers", "3", "--cpus", "2", "--memory", "100000"},
	}
	if err := own.Start(); err != nil {
		t.Fatalf("%v\n%s", err, log.String())
	}
	defer own.End()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	nap := fmt.Sprintf("0.05%07d%d", os.Getpid(), tasks) // for sleep, and of this test alone
	spec := jobs.Spec{App: "default", Name: "crash", First: 1, Last: tasks, Env: map[string]string{"RAN": ran},
		Command: []string{
			"/bin/sh",
			"-c",
			`echo "$SOUK_INDEX $SOUK_ATTEMPT" | tee left >> "$RAN"; echo "out $SOUK_INDEX"; exec sleep ` + nap,
		}}
	spec.Keep = []string{"left"}
	j, err := own.Client.SubmitJob(t.Context(), "j0123456789", spec)
	if err != nil {
		t.Fatal(err)
	}
	for kill := range kills {
		// A random task's end, but not all of it may be done between two kills, or there is nothing left to be killed in.
		goal := kill*tasks/kills + 1 + rng.IntN(tasks/kills/2)
		for j.Done() < goal {
			if j, err = own.Client.WaitJob(t.Context(), j.ID, goal-1, time.Minute); err != nil {
				t.Fatalf("%v\n%s", err, log.String())
			}
		}
		killed := make(chan struct{})
		time.AfterFunc(time.Duration(rng.Int64N(int64(60*time.Millisecond))), func() { // at any moment of a task
			own.Kill()
			close(killed)
		})
		<-killed
		if kill%2 == 1 {
			waittest.See(t, "what runs has ended while souk is not there", func() int { return len(marked(t, nap)) },
				func(run int) bool { return run == 0 })
		}
		if err := own.Start(); err != nil {
			t.Fatalf("kill %d: %v\n%s", kill, err, log.String())
		}
	}
	for !j.State.Final() {
		if j, err = own.Client.WaitJob(t.Context(), j.ID, jobs.MaxTasks, time.Minute); err != nil {
			t.Fatalf("%v\n%s", err, log.String())
		}
	}
	if j.State != jobs.Succeeded || j.Succeeded != tasks {
		failed, err := own.Client.JobTasks(t.Context(), "crash", "failed")
		t.Fatalf("%+v, failed: %+v (%v)\n%s", j, failed, err, log.String())
	}
	checkRuns(t, own, ran, tasks)
	checkFiles(t, own)
	checkNothingLeft(t, own)
}

// checkFiles holds the files that the tasks left against which attempts are recorded.
func checkFiles(t *testing.T, own *live.Souk) {
	t.Helper()
	tasks, err := own.Client.JobTasks(t.Context(), "crash")
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range tasks {
		var b strings.Builder
		err := own.Client.TaskFiles(t.Context(), "crash", x.Index, &b)
		if want := fmt.Sprintf("%d %d\n", x.Index, x.Attempt); err != nil || !strings.Contains(b.String(), want) {
			t.Fatalf("task %d, attempt %d: its files have no %q: %v, %+v", x.Index, x.Attempt, want, err, x.Files)
		}
	}
}

// openTo lets machines, which have users of their own, write to a file in a directory of the test.
func openTo(t *testing.T, file string) {
	t.Helper()
	dir := filepath.Dir(file)
	err := errors.Join(os.Chmod(filepath.Dir(dir), 0o755), os.Chmod(dir, 0o755), os.Chmod(file, 0o666))
	if err != nil {
		t.Fatal(err)
	}
}

// checkRuns holds what ran against what is recorded.
func checkRuns(t *testing.T, own *live.Souk, file string, want int) {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lives, of := map[string]int{}, map[string]int{}
	for line := range strings.Lines(string(raw)) {
		index, _, _ := strings.Cut(line, " ")
		lives[line]++
		of[index]++
	}
	again := 0
	for life, n := range lives {
		if n > 1 {
			t.Errorf("attempt %q was begun %d times", life, n)
		}
	}
	tasks, err := own.Client.JobTasks(t.Context(), "crash")
	if err != nil {
		t.Fatal(err)
	}
	if len(tasks) != want {
		t.Errorf("%d tasks are recorded, want %d", len(tasks), want)
	}
	for i, task := range tasks {
		n := of[fmt.Sprint(task.Index)]
		if task.Index != i+1 || task.State != "succeeded" || task.ExitCode == nil || *task.ExitCode != 0 || n == 0 ||
			task.Output == 0 {
			t.Errorf("task %d: %+v, ran %d times", i+1, task, n)
		}
		again += n - 1
	}
	t.Logf("%d tasks ran %d times more than once", want, again)
}

// checkNothingLeft: the ledgers are empty, and the workers' runtimes know of no life any more.
func checkNothingLeft(t *testing.T, own *live.Souk) {
	t.Helper()
	ws, err := own.Client.Workers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range ws.Workers {
		if !w.Used.IsZero() {
			t.Errorf("worker %s has %v in use, and nothing runs", w.Worker, w.Used)
		}
	}
	pattern := filepath.Join(own.State, "workers", "*", "run", "machines", "t*")
	waittest.See(t, "no directory of a task is left", func() []string { // they are removed behind their results
		left, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		return left
	}, func(left []string) bool { return len(left) == 0 })
}
