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
	"github.com/soukhq/souk/jobs"
)

// The size of the test of jobs over kill -9.
const (
	jobCrashTasks = 500
	jobCrashKills = 5
)

// TestJobsOverKill9 kills souk five times at random moments in the middle of 500 tasks. In the end each task has one
// recorded result, none is lost, no attempt of a task was begun twice, no room is taken and no process is left.
func TestJobsOverKill9(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a while")
	}
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
	spec := jobs.Spec{App: "default", Name: "crash", First: 1, Last: jobCrashTasks, Env: map[string]string{"RAN": ran},
		Command: []string{
			"/bin/sh",
			"-c",
			`echo "$SOUK_INDEX $SOUK_ATTEMPT" >> "$RAN"; echo "out $SOUK_INDEX"; exec sleep 0.05`,
		}}
	j, err := own.Client.SubmitJob(t.Context(), "j0123456789", spec)
	if err != nil {
		t.Fatal(err)
	}
	for kill := range jobCrashKills {
		// Not all of it may be done between two kills, or there is nothing left to be killed in.
		goal := (kill + 1) * jobCrashTasks / (jobCrashKills + 1)
		for j.Done() < goal {
			if j, err = own.Client.WaitJob(t.Context(), j.ID, goal-1, time.Minute); err != nil {
				t.Fatalf("%v\n%s", err, log.String())
			}
		}
		<-time.After(time.Duration(rng.Int64N(int64(60 * time.Millisecond)))) // a random moment of a task
		own.Kill()
		if kill%2 == 1 {
			<-time.After(100 * time.Millisecond) // what runs ends while nobody is there
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
	if j.State != jobs.Succeeded || j.Succeeded != jobCrashTasks {
		tasks, err := own.Client.JobTasks(t.Context(), "crash", "failed")
		t.Fatalf("%+v, failed: %+v (%v)\n%s", j, tasks, err, log.String())
	}
	checkRuns(t, own, ran)
	checkNothingLeft(t, own)
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
func checkRuns(t *testing.T, own *live.Souk, file string) {
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
	if len(tasks) != jobCrashTasks {
		t.Errorf("%d tasks are recorded, want %d", len(tasks), jobCrashTasks)
	}
	for i, task := range tasks {
		n := of[fmt.Sprint(task.Index)]
		if task.Index != i+1 || task.State != "succeeded" || task.ExitCode == nil || *task.ExitCode != 0 || n == 0 ||
			task.Output == 0 {
			t.Errorf("task %d: %+v, ran %d times", i+1, task, n)
		}
		again += n - 1
	}
	t.Logf("%d tasks ran %d times more than once over %d kills", jobCrashTasks, again, jobCrashKills)
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
	deadline := time.Now().Add(time.Minute) // they are removed behind their results
	for {
		left, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d directories of tasks are left, such as %s", len(left), left[0])
		}
		<-time.After(20 * time.Millisecond)
	}
}
