package testcluster_test

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/core/quota"
	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/mesh/gossip"
	"github.com/soukhq/souk/test/testcluster"
)

var timesFlag = flag.Int("times", 0, "how often TestLongAnswerIsConfirmedByEveryMember makes each noun; 0: 60")

// patientDeath is a pace at which nobody is taken for dead who is only slow, and who is dead is noticed in some seconds.
func patientDeath() gossip.Knobs {
	k := patient()
	k.Suspicion = 20
	return k
}

// TestAnswerIsConfirmedByEveryMember: what one member has answered, that member and any other confirm at once, for each noun and each verb, while
// all three live and while one has just died.
func TestAnswerIsConfirmedByEveryMember(t *testing.T) {
	t.Parallel()
	madeIsThere(t, 6)
}

// TestLongAnswerIsConfirmedByEveryMember does it more often.
func TestLongAnswerIsConfirmedByEveryMember(t *testing.T) {
	t.Parallel()
	madeIsThere(t, cmp.Or(*timesFlag, 60))
}

// aStep is one change and what every member is to answer once it was answered.
type aStep struct {
	verb string
	do   func(cl *client.Client) error
	then func(cl *client.Client) error
}

// lives returns the lives of things of each noun: the i-th of each.
type lives map[string]func(ctx context.Context, i int) []aStep

func madeIsThere(t *testing.T, times int) {
	c := testcluster.New(t, 3, testcluster.Options{Knobs: patientDeath()})
	if _, err := c.Client(0).CreateApp(t.Context(), app); err != nil {
		t.Fatal(err)
	}
	all := nounLives(c)
	live := func(members []int, from, to int) {
		t.Helper()
		var wait sync.WaitGroup
		var mu sync.Mutex
		failed := map[string]int{}
		for noun, life := range all {
			rng := rand.New(rand.NewPCG(uint64(len(noun)), uint64(from)))
			wait.Go(func() {
				for i := from; i < to; i++ {
					if err := lived(c, rng, members, life(t.Context(), i)); err != nil {
						mu.Lock()
						if failed[noun]++; failed[noun] <= 3 {
							t.Errorf("%s %d of members %v: %v", noun, i, members, err)
						}
						mu.Unlock()
					}
				}
			})
		}
		wait.Wait()
		for noun, n := range failed {
			t.Errorf("%s: %d of %d failed with members %v", noun, n, to-from, members)
		}
	}
	live([]int{0, 1, 2}, 0, times)
	volumeAt(t, c, 2) // which bars the end of its own app alone
	c.Kill(2)         // nobody has noticed when the next begin
	live([]int{0, 1}, times, 2*times)
}

// volumeAt makes volumes of the app until a member has one.
func volumeAt(t *testing.T, c *testcluster.Cluster, at int) {
	t.Helper()
	size := 1
	for i := range 20 {
		v, err := c.Client(0).CreateVolume(t.Context(), app, api.NewVolume{Name: fmt.Sprint("kept_", i), SizeGB: &size})
		if err != nil {
			t.Fatal(err)
		}
		if v.Worker == c.Worker(at) {
			return
		}
	}
	t.Fatal("none of 20 volumes is where one is to be")
}

// lived goes through one life: each step at a member that is drawn, and its outcome at the same one and at another.
func lived(c *testcluster.Cluster, rng *rand.Rand, members []int, life []aStep) error {
	for _, s := range life {
		at := members[rng.IntN(len(members))]
		if err := s.do(c.Client(at)); err != nil {
			return fmt.Errorf("%s at %d: %w", s.verb, at, err)
		}
		order := []int{at}
		for _, k := range rng.Perm(len(members)) {
			order = append(order, members[k])
		}
		if rng.IntN(2) == 0 { // the others may be asked first
			slices.Reverse(order)
		}
		for _, k := range order {
			if err := s.then(c.Client(k)); err != nil {
				return fmt.Errorf("%s at %d, then at %d: %w", s.verb, at, k, err)
			}
		}
	}
	return nil
}

// gone returns nil where an error says that there is no such thing.
func gone(err error) error {
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	return fmt.Errorf("it is still there: %w", errors.Join(err, errStill))
}

var errStill = errors.New("want not found")

// has checks whether a list has what it is to have.
func has[T any](list []T, err error, want bool, is func(T) bool) error {
	if err == nil && slices.ContainsFunc(list, is) != want {
		return fmt.Errorf("a list of %d has it: %v", len(list), !want)
	}
	return err
}

func nounLives(c *testcluster.Cluster) lives {
	return lives{
		"app": appLife, "volume": volumeLife, "secret": secretLife, "policy": policyLife, "namespace": namespaceLife,
		"machine": machineLife, "release": releaseLife, "job": jobLife,
		"token": func(ctx context.Context, i int) []aStep { return tokenLife(ctx, c, i) },
	}
}

func appLife(ctx context.Context, i int) []aStep {
	name := fmt.Sprint("app-", i)
	is := func(a api.App) bool { return a.Name == name }
	there := func(cl *client.Client) error {
		_, err := cl.App(ctx, name)
		list, listed := cl.Apps(ctx)
		return errors.Join(err, has(list, listed, true, is))
	}
	return []aStep{
		{"create", func(cl *client.Client) error { _, err := cl.CreateApp(ctx, name); return err }, there},
		{"launch in", func(cl *client.Client) error {
			m, err := cl.Launch(ctx, name, stopped(""), client.LaunchOptions{})
			if err == nil {
				_, err = cl.Destroy(ctx, name, m.ID, "", true)
			}
			return err
		}, there},
		{"disconnect", func(cl *client.Client) error { return cl.SetDisconnect(ctx, name, "fast") },
			func(cl *client.Client) error {
				got, err := cl.Disconnect(ctx, name)
				if err == nil && got != "fast" {
					err = fmt.Errorf("it is %q", got)
				}
				return err
			}},
		{"destroy", func(cl *client.Client) error { return cl.DestroyApp(ctx, name) },
			func(cl *client.Client) error {
				_, err := cl.App(ctx, name)
				list, listed := cl.Apps(ctx)
				return errors.Join(gone(err), has(list, listed, false, is))
			}},
	}
}

func volumeLife(ctx context.Context, i int) []aStep {
	var v machine.Volume
	var m *machine.Machine
	size, name := 1, fmt.Sprint("vol_", i)
	is := func(x machine.Volume) bool { return x.ID == v.ID && x.Name == name }
	listed := func(want bool) func(cl *client.Client) error {
		return func(cl *client.Client) error {
			list, err := cl.Volumes(ctx, app)
			return has(list, err, want, is)
		}
	}
	return []aStep{
		{"create", func(cl *client.Client) (err error) {
			v, err = cl.CreateVolume(ctx, app, api.NewVolume{Name: name, SizeGB: &size})
			return err
		}, listed(true)},
		{"snapshot", func(cl *client.Client) error { return cl.SnapshotVolume(ctx, app, v.ID) },
			func(cl *client.Client) error {
				list, err := cl.Snapshots(ctx, app, v.ID)
				return has(list, err, true, func(machine.Snapshot) bool { return true })
			}},
		{"extend", func(cl *client.Client) error { _, err := cl.ExtendVolume(ctx, app, v.ID, 2); return err },
			func(cl *client.Client) error {
				list, err := cl.Volumes(ctx, app)
				return has(list, err, true, func(x machine.Volume) bool { return x.ID == v.ID && x.SizeGB == 2 })
			}},
		{"run with", func(cl *client.Client) (err error) {
			l := stopped("")
			l.Config.Mounts = []machine.Mount{{Volume: v.ID, Path: "/data"}}
			m, err = cl.Launch(ctx, app, l, client.LaunchOptions{})
			return err
		}, func(cl *client.Client) error {
			list, err := cl.Volumes(ctx, app)
			return has(list, err, true, func(x machine.Volume) bool {
				return x.ID == v.ID && x.AttachedMachine != nil && *x.AttachedMachine == m.ID
			})
		}},
		{"let go of", func(cl *client.Client) error { _, err := cl.Destroy(ctx, app, m.ID, "", true); return err },
			listed(true)},
		{"destroy", func(cl *client.Client) error { _, err := cl.DestroyVolume(ctx, app, v.ID); return err },
			listed(false)},
	}
}

func secretLife(ctx context.Context, i int) []aStep {
	name, value := fmt.Sprint("SECRET_", i), fmt.Sprint("value ", i)
	is := func(s api.Secret) bool { return s.Name == name }
	listed := func(want bool) func(cl *client.Client) error {
		return func(cl *client.Client) error {
			list, err := cl.Secrets(ctx, app)
			return has(list, err, want, is)
		}
	}
	return []aStep{
		{"set", func(cl *client.Client) error {
			return cl.SetSecrets(ctx, app, map[string]*string{name: &value})
		}, listed(true)},
		{"unset", func(cl *client.Client) error {
			return cl.SetSecrets(ctx, app, map[string]*string{name: nil})
		}, listed(false)},
	}
}

func policyLife(ctx context.Context, i int) []aStep {
	name := fmt.Sprint("policy-", i)
	text := func(weight int) string {
		return fmt.Sprintf("name = %q\n[[score]]\nname = 'x'\nweight = %d.0\nexpr = \"1.0\"\n", name, weight)
	}
	version := 0
	apply := func(weight int) func(cl *client.Client) error {
		return func(cl *client.Client) error {
			out, err := cl.ApplyPolicy(ctx, text(weight))
			version = out.Policy.Version
			return err
		}
	}
	applied := func(weight int) func(cl *client.Client) error {
		return func(cl *client.Client) error {
			got, err := cl.Policy(ctx, name, 0)
			if err == nil && (got.Text != text(weight) || got.Version != version) {
				err = fmt.Errorf("version %d is in force, want %d", got.Version, version)
			}
			return err
		}
	}
	return []aStep{
		{"apply", apply(1), applied(1)},
		{"apply another", apply(2), applied(2)},
		{"launch with", func(cl *client.Client) error {
			l := stopped("")
			l.Scheduling = &machine.Scheduling{Policy: name}
			m, err := cl.Launch(ctx, app, l, client.LaunchOptions{})
			if err == nil {
				_, err = cl.Destroy(ctx, app, m.ID, "", true)
			}
			return err
		}, applied(2)},
		{"delete", func(cl *client.Client) error { return cl.DeletePolicy(ctx, name) },
			func(cl *client.Client) error {
				_, err := cl.Policy(ctx, name, 0)
				return gone(err)
			}},
	}
}

func namespaceLife(ctx context.Context, i int) []aStep {
	name, owner := fmt.Sprint("space-", i%50), fmt.Sprint("spaced-", i%50)
	limit := quota.Budget{PerHour: float64(100 + i), Burst: float64(1000 + i)}
	is := func(n api.Namespace) bool { return n.Name == name }
	in := func(want string) func(cl *client.Client) error {
		return func(cl *client.Client) error {
			got, err := cl.AppNamespace(ctx, owner)
			if err == nil && got != want {
				err = fmt.Errorf("the app is in %q", got)
			}
			return err
		}
	}
	return []aStep{
		{"create", func(cl *client.Client) error { _, err := cl.CreateNamespace(ctx, name); return err },
			func(cl *client.Client) error {
				list, err := cl.Namespaces(ctx)
				return has(list, err, true, is)
			}},
		{"limit", func(cl *client.Client) error { _, err := cl.SetQuota(ctx, name, &limit, nil, nil); return err },
			func(cl *client.Client) error {
				got, err := cl.Quota(ctx, name)
				if err == nil && (got.Budget == nil || *got.Budget != limit) {
					err = fmt.Errorf("the budget is %+v", got.Budget)
				}
				return err
			}},
		{"have an app in", func(cl *client.Client) error {
			_, err := cl.CreateApp(ctx, owner)
			return cmp.Or(err, cl.SetAppNamespace(ctx, owner, name))
		}, in(name)},
		{"launch in", func(cl *client.Client) error {
			m, err := cl.Launch(ctx, owner, stopped(""), client.LaunchOptions{})
			if err == nil {
				_, err = cl.Destroy(ctx, owner, m.ID, "", true)
			}
			return err
		}, in(name)},
		{"take the app out", func(cl *client.Client) error { return cl.DestroyApp(ctx, owner) },
			func(cl *client.Client) error { _, err := cl.App(ctx, owner); return gone(err) }},
		{"remove", func(cl *client.Client) error { return cl.RemoveNamespace(ctx, name) },
			func(cl *client.Client) error {
				list, err := cl.Namespaces(ctx)
				return has(list, err, false, is)
			}},
	}
}

func tokenLife(ctx context.Context, c *testcluster.Cluster, i int) []aStep {
	var made api.MadeToken
	at := func(cl *client.Client) int {
		for k := range 3 {
			if c.Client(k) == cl {
				return k
			}
		}
		return 0
	}
	return []aStep{
		{"make", func(cl *client.Client) (err error) {
			made, err = cl.MakeToken(ctx, api.NewToken{Name: fmt.Sprint("ci-", i), Role: api.RoleViewer})
			return err
		}, func(cl *client.Client) error {
			_, err := c.ClientWith(at(cl), made.Secret).Apps(ctx)
			return err
		}},
		{"revoke", func(cl *client.Client) error {
			_, err := cl.RevokeToken(ctx, made.ID, "test", "")
			return err
		}, func(cl *client.Client) error {
			if _, err := c.ClientWith(at(cl), made.Secret).Apps(ctx); !fault.Is(err, fault.Denied) {
				return fmt.Errorf("it is let in still: %w", errors.Join(err, errStill))
			}
			return nil
		}},
	}
}

func machineLife(ctx context.Context, i int) []aStep {
	var m *machine.Machine
	name, key := fmt.Sprint("machine-", i%5), client.LaunchOptions{Key: fmt.Sprint("life-", i), NewKey: true}
	is := func(x *machine.Machine) bool { return x.ID == m.ID && x.Name == name }
	in := func(state machine.State) func(cl *client.Client) error {
		return func(cl *client.Client) error {
			got, err := cl.Machine(ctx, app, m.ID)
			list, listed := cl.Machines(ctx, app, client.ListOptions{})
			if err == nil && got.State != state {
				err = fmt.Errorf("it is %s", got.State)
			}
			return errors.Join(err, has(list, listed, true, is))
		}
	}
	return []aStep{
		{"launch", func(cl *client.Client) (err error) { m, err = cl.Launch(ctx, app, launch(name), key); return err },
			in(machine.Started)},
		{"launch again", func(cl *client.Client) error {
			again, err := cl.Launch(ctx, app, launch(name), client.LaunchOptions{Key: key.Key, Drawn: time.Now()})
			if err == nil && again.ID != m.ID {
				err = fmt.Errorf("it is %s", again.ID)
			}
			return err
		}, in(machine.Started)},
		{"stop", func(cl *client.Client) error {
			_, err := cl.Stop(ctx, app, m.ID, "", client.StopOptions{})
			return err
		}, in(machine.Stopped)},
		{"label", func(cl *client.Client) error {
			return cl.PatchMetadata(ctx, app, m.ID, "", map[string]*string{"a": &name})
		}, func(cl *client.Client) error {
			got, err := cl.Metadata(ctx, app, m.ID)
			if err == nil && got["a"] != name {
				err = fmt.Errorf("its metadata are %v", got)
			}
			return err
		}},
		{"destroy", func(cl *client.Client) error { _, err := cl.Destroy(ctx, app, m.ID, "", true); return err },
			func(cl *client.Client) error {
				list, err := cl.Machines(ctx, app, client.ListOptions{})
				return has(list, err, false, is)
			}},
	}
}

func jobLife(ctx context.Context, i int) []aStep {
	var j jobs.Job
	name, id := fmt.Sprint("job-", i%5), ""
	in := func(states ...jobs.JobState) func(cl *client.Client) error {
		return func(cl *client.Client) error {
			got, err := cl.Job(ctx, id)
			if err == nil && (got.Member != j.Member || !slices.Contains(states, got.State)) {
				err = fmt.Errorf("it is %s at %s", got.State, got.Member)
			}
			named, byName := cl.Job(ctx, name)
			if byName == nil && named.ID != id {
				byName = fmt.Errorf("its name means %s", named.ID)
			}
			list, listed := cl.Jobs(ctx, app)
			return errors.Join(err, byName, has(list, listed, true, func(x jobs.Job) bool { return x.ID == id }))
		}
	}
	return []aStep{
		{"submit", func(cl *client.Client) (err error) {
			j, err = cl.SubmitJob(ctx, "", endless(name))
			id = j.ID
			return err
		}, in(jobs.Waiting, jobs.Running)},
		{"cancel a task of", func(cl *client.Client) error {
			out, err := cl.CancelTasks(ctx, id, jobs.Indices{{First: 1, Last: 1}})
			if err == nil && out.Tasks != 1 {
				err = fmt.Errorf("%d tasks were cancelled", out.Tasks)
			}
			return err
		}, func(cl *client.Client) error {
			got, err := cl.JobTasks(ctx, id, "waiting") // one that runs may still be ending
			if err == nil && slices.ContainsFunc(got, func(x jobs.Task) bool { return x.Index == 1 }) {
				err = errStill
			}
			return err
		}},
		{"cancel", func(cl *client.Client) error { _, err := cl.CancelJob(ctx, id); return err },
			func(cl *client.Client) error {
				got, err := cl.Job(ctx, id)
				if err == nil && got.Why == "" && got.State != jobs.Cancelled {
					err = fmt.Errorf("it is %s", got.State)
				}
				return err
			}},
		{"wait for", func(cl *client.Client) error {
			got, err := cl.WaitJob(ctx, id, jobs.MaxTasks, time.Minute)
			if err == nil && got.State != jobs.Cancelled {
				err = fmt.Errorf("it is %s", got.State)
			}
			return err
		}, in(jobs.Cancelled)},
	}
}

func releaseLife(ctx context.Context, i int) []aStep {
	name := fmt.Sprint("service-", i)
	var made api.ReleaseMade
	wanted := func(n int) func(cl *client.Client) error {
		return func(cl *client.Client) error {
			s, err := cl.Service(ctx, name)
			if err == nil && (len(s.Groups) != 1 || s.Groups[0].Wanted != n) {
				err = fmt.Errorf("its groups are %+v", s.Groups)
			}
			list, listed := cl.Releases(ctx, name)
			is := func(r api.ReleaseEntry) bool { return r.Release == made.Release }
			return errors.Join(err, has(list, listed, true, is))
		}
	}
	return []aStep{
		{"create", func(cl *client.Client) error { _, err := cl.CreateApp(ctx, name); return err },
			func(cl *client.Client) error { _, err := cl.App(ctx, name); return err }},
		{"deploy", func(cl *client.Client) (err error) {
			l := launch("")
			made, err = cl.Deploy(ctx, name, api.NewRelease{Groups: []api.NewGroup{{Group: release.Group{Name: "web",
				Config: l.Config}}}})
			return err
		}, wanted(1)},
		{"scale", func(cl *client.Client) (err error) {
			_, err = cl.Change(ctx, name, release.Change{Why: release.WhyScale, Counts: map[string]int{"web": 0},
				Parent: &made.Head.ID})
			return err
		}, wanted(0)},
	}
}
