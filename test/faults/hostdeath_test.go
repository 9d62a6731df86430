package faults_test

import (
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/machine"
)

var (
	deaths  = flag.Int("deaths", 1, "hosts that die in TestDeadHostsReplicasAreReplaced")                   //nolint:gochecknoglobals
	perHost = flag.Int("per-host", 4, "machines of the host that dies in TestDeadHostsReplicasAreReplaced") //nolint:gochecknoglobals
)

// small has a release of many machines: each takes little.
func small(r api.NewRelease) api.NewRelease {
	r.Groups[0].Config.Guest.MemoryMB = 8
	return r
}

// TestDeadHostsReplicasAreReplaced: a host dies with all that runs there, again and again. It tells how long it takes until the first of its
// replicas has another machine that is ready, and until all have, beside the time for which a worker is waited for and one
// launch. In between each replica has one machine, and stands where it did.
//
// 20 deaths of 100 machines: go test ./test/faults -run TestDeadHostsReplicasAreReplaced -v -args -deaths 20 -per-host 100
func TestDeadHostsReplicasAreReplaced(t *testing.T) {
	t.Parallel()
	apart(t, func() {
		k := newKept(t, 0)
		n := 3 * *perHost
		if _, err := k.ms[0].Client().Deploy(t.Context(), shop, small(sleepers(0, "1000000"))); err != nil {
			t.Fatal(err)
		}
		scale := func(at, n int) {
			to := release.Change{Why: release.WhyScale, Counts: map[string]int{"web": n}}
			if _, err := k.ms[at].Client().Change(t.Context(), shop, to); err != nil {
				t.Fatal(err)
			}
		}
		var first, all []time.Duration
		launch := k.launchTime()
		for i := range *deaths {
			scale(0, n)
			at := k.whole(n, 0, 1, 2)
			dies := i % 3
			sees := (dies + 1) % 3
			lost := at[string(k.ms[dies].Worker())]
			if lost < *perHost/2 {
				t.Fatalf("the machines stand at %v", at)
			}
			begin := time.Now()
			k.ms[dies].PowerOff()
			one, whole := k.replaced(sees, dies, n, lost, begin)
			first, all = append(first, one), append(all, whole)
			t.Logf("death %d: %d machines lost, the first replaced after %v, all after %v", i, lost, one, whole)
			before := k.ms[dies].Ready()
			if err := k.ms[dies].Start(); err != nil {
				t.Fatal(err)
			}
			waittest.Until(t, "the host is heard again", func() bool { return k.ms[dies].Ready() > before })
			k.whole(n, 0, 1, 2)
			scale(sees, 0) // so that the next are spread anew
			k.whole(0, 0, 1, 2)
		}
		slices.Sort(first)
		slices.Sort(all)
		t.Logf("%d deaths of hosts with %d machines; waited for %v, one launch %v; the first replaced: p50 %v, "+
			"most %v; all: p50 %v, most %v", *deaths, *perHost, release.DefaultLostAfter, launch, first[len(first)/2],
			first[len(first)-1], all[len(all)/2], all[len(all)-1])
	})
}

// launchTime returns how long one launch takes, of five the middle.
func (k *kept) launchTime() time.Duration {
	k.t.Helper()
	var took []time.Duration
	for range 5 {
		begin := time.Now()
		m, err := k.ms[0].Client().Launch(k.t.Context(), shop,
			&machine.Launch{Config: small(sleepers(1, "9")).Groups[0].Config}, client.LaunchOptions{})
		if err != nil {
			k.t.Fatal(err)
		}
		took = append(took, time.Since(begin))
		if _, err := k.ms[0].Client().Destroy(k.t.Context(), shop, m.ID, "", true); err != nil {
			k.t.Fatal(err)
		}
	}
	slices.Sort(took)
	return took[len(took)/2]
}

// replaced waits until each replica has a machine that is ready at another host than the one that died, as a member sees
// it, and returns when the first of those lost had and when all had.
func (k *kept) replaced(sees, dies, n, lost int, begin time.Time) (first, all time.Duration) {
	k.t.Helper()
	waittest.Succeed(k.t, "others take the place of the lost ones", func() error {
		s, err := k.status(k.t.Context(), sees)
		if err != nil {
			return err
		}
		here := map[int]bool{}
		for _, x := range s.Slots {
			if x.Ready && x.Worker != k.ms[dies].Worker() {
				here[x.Index] = true
			}
		}
		if len(here) > n-lost && first == 0 {
			first = time.Since(begin)
		}
		if len(here) < n {
			return fmt.Errorf("%d of %d are ready elsewhere", len(here), n)
		}
		all = time.Since(begin)
		return nil
	})
	return first, all
}
