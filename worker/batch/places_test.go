package batch_test

import (
	"context"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/unixuser"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/fake"
	"github.com/soukhq/souk/store/journal/mem"
	"github.com/soukhq/souk/worker"
	"github.com/soukhq/souk/worker/batch"
)

var alice = cluster.UnixUser{Name: "alice", UID: 1001}

// hostUsers are the users of one host.
type hostUsers struct {
	mu  sync.Mutex
	has map[cluster.UnixUser]unixuser.Account
}

func (h *hostUsers) Find(_ context.Context, u cluster.UnixUser) (unixuser.Account, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	a, has := h.has[u]
	if !has {
		return a, fault.New(fault.NotFound, fault.CodeUnixUser, "this host has no user %s", u.Name)
	}
	return a, nil
}

// seen keeps the specs of starts.
type seen struct {
	*fake.Runtime
	mu    sync.Mutex
	specs []runtime.Spec
}

func (s *seen) Start(ctx context.Context, spec runtime.Spec) (runtime.Status, error) {
	s.mu.Lock()
	s.specs = append(s.specs, spec)
	s.mu.Unlock()
	return s.Runtime.Start(ctx, spec)
}

func (s *seen) starts() []runtime.Spec {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.specs)
}

// openHostOf makes a worker that runs tasks as the users of its host.
func openHostOf(t *testing.T, id cluster.WorkerID, users *hostUsers) (*host, *seen) {
	t.Helper()
	return openSeen(t, batch.RunnerOptions{Worker: id, Slots: 4, Users: users})
}

// openSeen makes a worker whose starts of tasks are seen.
func openSeen(t *testing.T, o batch.RunnerOptions) (*host, *seen) {
	t.Helper()
	rt := &seen{Runtime: fake.New(fake.Options{})}
	o.Runtime = rt
	h := &host{t: t, id: o.Worker, rt: rt.Runtime, j: mem.New(), runner: batch.NewRunner(o)}
	var err error
	h.Worker, err = worker.New(t.Context(), worker.Options{ID: o.Worker, Region: "local", Dir: t.TempDir(),
		Capacity: twoAtOnce, Journal: h.j, Runtime: rt.Runtime, Tasks: h.runner, Offer: worker.Offer{
			Attributes: cluster.Attributes{cluster.UnixUsersAttribute: cluster.Text("all")}}})
	if err != nil {
		t.Fatal(err)
	}
	return h, rt
}

// specOf is a job of a Unix user, with a umask and limits.
func specOf(u cluster.UnixUser, tasks int, argv ...string) jobs.Spec {
	s := spec(tasks, argv...)
	umask := uint32(0o27)
	s.Owner, s.Umask = jobs.Owner{User: &u}, &umask
	s.Limits = map[string]int64{"nofile": 333, "core": jobs.Unlimited}
	return s
}

// TestTasksRunAsTheUserOfTheirJob: with his groups, home, umask and limits, only where the worker has him, and others
// have users of their own as before.
func TestTasksRunAsTheUserOfTheirJob(t *testing.T) {
	account := unixuser.Account{UnixUser: alice, GID: 1001, Groups: []uint32{1001, 2000}, Home: "/home/alice",
		Shell: "/bin/bash"}
	has := &hostUsers{has: map[cluster.UnixUser]unixuser.Account{alice: account}}
	lacks := &hostUsers{has: map[cluster.UnixUser]unixuser.Account{{Name: "alice", UID: 1002}: account}}
	a, runs := openHostOf(t, "w1", has)
	b, idle := openHostOf(t, "w2", lacks)
	s := openShop(t, mem.New(), t.TempDir(), "boot", a, b)
	a.run()
	b.run()
	if j := s.submit(job1, specOf(alice, 6, "sh", "-c", "exit 0")); j.Succeeded != 6 {
		t.Fatalf("%+v", j)
	}
	umask := uint32(0o27)
	want := &runtime.As{UID: 1001, GID: 1001, Groups: []uint32{1001, 2000}, Umask: &umask,
		Limits: []runtime.SoftLimit{{Resource: "core", Soft: math.MaxUint64}, {Resource: "nofile", Soft: 333}}}
	starts := runs.starts()
	if len(starts) != 6 || len(idle.starts()) != 0 {
		t.Fatalf("%d started where alice is, %d where she is not", len(starts), len(idle.starts()))
	}
	for _, x := range starts {
		if d := cmp.Diff(want, x.As); d != "" || x.Home || x.User != "" {
			t.Errorf("%+v\n%s", x, d)
		}
		for _, kv := range []string{"HOME=/home/alice", "USER=alice", "LOGNAME=alice", "SHELL=/bin/bash"} {
			if !slices.Contains(x.Env, kv) {
				t.Errorf("%s is missing in %q", kv, x.Env)
			}
		}
	}
	own := specOf(alice, 1, "sh", "-c", "exit 0")
	own.Env = map[string]string{"HOME": "/elsewhere"}
	s.submit("j0000000002", own)
	if x := runs.starts()[6]; !slices.Contains(x.Env, "HOME=/elsewhere") || slices.Contains(x.Env, "HOME=/home/alice") {
		t.Errorf("the job's own HOME: %q", x.Env)
	}
	s.submit("j0000000003", spec(4, "sh", "-c", "exit 0"))
	for _, x := range append(runs.starts()[7:], idle.starts()...) {
		if x.As != nil || !x.Home {
			t.Errorf("a job without an owner: %+v", x)
		}
	}
}

// TestJobWaitsForItsUser: and says why, until a worker has him.
func TestJobWaitsForItsUser(t *testing.T) {
	users := &hostUsers{has: map[cluster.UnixUser]unixuser.Account{}}
	h, runs := openHostOf(t, "w1", users)
	s := openShop(t, mem.New(), t.TempDir(), "boot", h)
	h.run()
	if _, err := s.Submit(t.Context(), job1, specOf(alice, 1, "sh", "-c", "exit 0")); err != nil {
		t.Fatal(err)
	}
	s.job(job1, "it says why it waits", func(j jobs.Job) bool {
		return strings.Contains(j.Why, "this host has no user alice")
	})
	if n := len(runs.starts()); n != 0 {
		t.Fatalf("%d starts", n)
	}
	users.mu.Lock()
	users.has[alice] = unixuser.Account{UnixUser: alice, GID: 1001, Groups: []uint32{1001}}
	users.mu.Unlock()
	h.runner.FindPlacesAgain()
	if j := s.end(job1); j.Succeeded != 1 {
		t.Errorf("%+v", j)
	}
	// A buyer that connects anew learns of users that were refused before.
	bob := cluster.UnixUser{Name: "bob", UID: 1003}
	if _, err := s.Submit(t.Context(), "j0000000002", specOf(bob, 1, "sh", "-c", "exit 0")); err != nil {
		t.Fatal(err)
	}
	says := func(j jobs.Job) bool { return strings.Contains(j.Why, "no user bob") }
	s.job("j0000000002", "it says why it waits", says)
	s.Detach(h.conn)
	s.job("j0000000002", "the worker is gone", func(j jobs.Job) bool { return !says(j) })
	s.attach(h.local())
	s.job("j0000000002", "it says why again", says)
}
