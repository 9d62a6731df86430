package batch_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/fake"
	"github.com/soukhq/souk/store/journal/mem"
	"github.com/soukhq/souk/store/kept"
	"github.com/soukhq/souk/store/sent"
	"github.com/soukhq/souk/worker"
	"github.com/soukhq/souk/worker/batch"
)

// leaving is a runtime whose machines each leave the file out.
type leaving struct{ *seen }

func (leaving) KeepFiles(_ context.Context, id string, patterns []string, to string) error {
	if !slices.Equal(patterns, []string{"out"}) {
		return fault.New(fault.Internal, "", "patterns %q", patterns)
	}
	return os.WriteFile(filepath.Join(to, "out"), []byte(id), 0o600)
}

// parcels has what jobs are sent, and counts what is in use.
type parcels struct {
	mu    sync.Mutex
	inUse int
	asked []sent.Key
	err   error
}

func (p *parcels) Tree(_ context.Context, k sent.Key, at []cluster.WorkerID) (string, func(), error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil || !slices.Equal(at, []cluster.WorkerID{"w9"}) {
		return "", nil, p.err
	}
	p.inUse++
	p.asked = append(p.asked, k)
	return "/trees/" + k.App + k.Digest, func() { p.mu.Lock(); p.inUse--; p.mu.Unlock() }, nil
}

// openFilesHost makes a worker whose runtime finds directories as dir says.
func openFilesHost(t *testing.T, id cluster.WorkerID, p *parcels, dir func(*runtime.As, string) error) (*host, *seen,
	*kept.Store) {
	t.Helper()
	rt := &seen{Runtime: fake.New(fake.Options{Dir: dir})}
	store, err := kept.Open(kept.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	h := &host{t: t, id: id, rt: rt.Runtime, j: mem.New(), runner: batch.NewRunner(batch.RunnerOptions{Worker: id,
		Slots: 4, Runtime: leaving{rt}, Sent: p, Kept: store})}
	h.Worker, err = worker.New(t.Context(), worker.Options{ID: id, Region: "local", Dir: t.TempDir(),
		Capacity: twoAtOnce, Journal: h.j, Runtime: rt.Runtime, Tasks: h.runner})
	if err != nil {
		t.Fatal(err)
	}
	return h, rt, store
}

// TestTasksStartInTheirDirectory: on the workers that have it alone, with the files whose names stand for the task.
func TestTasksStartInTheirDirectory(t *testing.T) {
	var lacks sync.Map
	lacks.Store("/srv/lab", true)
	no := fault.New(fault.Precondition, runtime.CodeNoDirectory, "it is not mounted")
	a, runs, _ := openFilesHost(t, "w1", nil, nil)
	b, idle, _ := openFilesHost(t, "w2", nil, func(_ *runtime.As, dir string) error {
		if _, is := lacks.Load(dir); is {
			return no
		}
		return nil
	})
	s := openShop(t, mem.New(), t.TempDir(), "boot", a, b)
	a.run()
	b.run()
	in := spec(6, "sh", "-c", "exit 0")
	in.Name, in.Dir, in.Stdin, in.Stdout = "sweep", "/srv/lab", "in-%a", "%x/o-%3a-%N"
	if j := s.submit(job1, in); j.Succeeded != 6 {
		t.Fatalf("%+v", j)
	}
	starts := runs.starts()
	if len(starts) != 6 || len(idle.starts()) != 0 {
		t.Fatalf("%d started where the directory is, %d where it is not", len(starts), len(idle.starts()))
	}
	for _, x := range starts {
		i := slices.IndexFunc(x.Env, func(kv string) bool { return strings.HasPrefix(kv, "SOUK_INDEX=") })
		index := strings.TrimPrefix(x.Env[i], "SOUK_INDEX=")
		want := runtime.Stdio{In: "in-" + index, Out: "sweep/o-00" + index + "-w1", Err: "sweep/o-00" + index + "-w1"}
		if x.Dir != "/srv/lab" || x.Stdio != want {
			t.Errorf("%+v in %q, not %+v", x.Stdio, x.Dir, want)
		}
	}
	// a job that no worker has the directory for waits, says why, and runs once one has it
	s.Detach(a.conn)
	if _, err := s.Submit(t.Context(), "j0000000002", in); err != nil {
		t.Fatal(err)
	}
	s.job("j0000000002", "it says why it waits", func(j jobs.Job) bool {
		return strings.Contains(j.Why, "directory /srv/lab: it is not mounted")
	})
	lacks.Delete("/srv/lab")
	b.runner.FindPlacesAgain()
	if j := s.end("j0000000002"); j.Succeeded != 6 || len(idle.starts()) != 6 {
		t.Errorf("%+v", j)
	}
}

// TestTasksFindWhatTheirJobWasSent: and what they leave is kept, and said in their results.
func TestTasksFindWhatTheirJobWasSent(t *testing.T) {
	p := &parcels{}
	h, runs, store := openFilesHost(t, "w1", p, nil)
	s := openShop(t, mem.New(), t.TempDir(), "boot", h)
	h.run()
	digest := "sha256:" + strings.Repeat("0a", 32)
	in := spec(3, "sh", "-c", "exit 0")
	in.Keep = []string{"out"}
	in.Sent = []jobs.Sent{{Name: "data", Digest: digest, At: []cluster.WorkerID{"w9"}},
		{Name: jobs.StdinName, Digest: digest, At: []cluster.WorkerID{"w9"}}}
	if j := s.submit(job1, in); j.Succeeded != 3 {
		t.Fatalf("%+v", j)
	}
	for _, x := range runs.starts() {
		tree := "/trees/app" + digest
		if !slices.Equal(x.Shown, []runtime.Shown{{Dir: tree}}) ||
			x.Stdio != (runtime.Stdio{In: tree + "/-", InByWorker: true}) {
			t.Errorf("%+v, %+v", x.Shown, x.Stdio)
		}
	}
	if p.inUse != 0 || len(p.asked) != 6 {
		t.Errorf("%d in use, asked for %v", p.inUse, p.asked)
	}
	tasks, _, err := s.Tasks(t.Context(), job1, jobs.TaskQuery{Limit: 10})
	if err != nil || len(tasks) != 3 {
		t.Fatal(tasks, err)
	}
	for _, x := range tasks {
		if x.Files == nil || x.Files.Files != 1 || x.Files.Bytes != int64(len(x.Files.Life)) || x.Files.Why != "" {
			t.Fatalf("%+v", x.Files)
		}
		l, is := jobs.ParseLife(x.Files.Life)
		var tar strings.Builder
		if err := h.runner.Files(t.Context(), l, &tar); !is || err != nil || !strings.Contains(tar.String(),
			x.Files.Life) {
			t.Errorf("%v, %v", is, err)
		}
	}
	if got := store.Tasks(); len(got) != 3 {
		t.Errorf("kept of %q", got)
	}

	// what cannot be had for the moment is tried again, and what is not there fails the task
	for id, err := range map[string]error{
		"j0000000002": fault.New(fault.NotFound, "", "nobody has it"),
		"j0000000003": fault.New(fault.Unavailable, fault.CodeLost, "they do not answer"),
	} {
		p.mu.Lock()
		p.err = err
		p.mu.Unlock()
		j := s.submit(id, in)
		if j.Failed != 3 || j.FirstFail.ExitCode != 127 || !strings.Contains(j.FirstFail.Error, err.Error()) ||
			(j.Lost > 0) != fault.Is(err, fault.Unavailable) {
			t.Errorf("%v: %+v", err, j)
		}
	}
}
