package catalog

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/soukhq/souk/core/defaults"
	"github.com/soukhq/souk/core/quota"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/store/journal/mem"
)

// TestDefaultSchedulerIsKeptAndShared: it is in the journal and at all members, until it or its namespace is removed.
func TestDefaultSchedulerIsKeptAndShared(t *testing.T) {
	all := sharers(t, 2)
	a, b := all[0].Namespaces, all[1].Namespaces
	if err := errors.Join(a.CreateNamespace("ml"), a.SetScheduler("ml", "Hawk:2"),
		b.SetScheduler("", "sparrow")); err != nil {
		t.Fatal(err)
	}
	again, err := Open(all[1].journal.(*mem.Journal), filepath.Join(t.TempDir(), "key"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []*Namespaces{a, b, again.Namespaces} {
		if r := c.SchedulerRows("ml"); r.Namespace.Scheduler != "hawk:2" || r.Cluster.Scheduler != "sparrow" {
			t.Errorf("%+v", r)
		}
		if r := c.SchedulerRows(""); r.Namespace.Scheduler != "" || r.Cluster.Scheduler != "sparrow" {
			t.Errorf("%+v", r)
		}
	}
	// A quota that is set by a member which does not know of default schedulers leaves them.
	if err := b.SetQuota("ml", &quota.Budget{PerHour: 1, Burst: 1}, 1, nil); err != nil {
		t.Fatal(err)
	}
	if r := a.SchedulerRows("ml"); r.Namespace.Scheduler != "hawk:2" {
		t.Errorf("%+v", r)
	}
	if err := errors.Join(a.SetScheduler("", ""), a.SetScheduler("", ""), a.DeleteNamespace("ml"),
		b.CreateNamespace("ml")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []*Namespaces{a, b} {
		if r := c.SchedulerRows("ml"); !r.Namespace.IsEmpty() || !r.Cluster.IsEmpty() || len(c.schedulers.all) != 0 {
			t.Errorf("what was removed is back: %+v", r)
		}
	}
}

// TestOlderMemberRemovesANamespace: it does not know the row of the default scheduler, which goes all the same.
func TestOlderMemberRemovesANamespace(t *testing.T) {
	all := sharers(t, 2)
	a := all[0]
	if err := errors.Join(a.Namespaces.CreateNamespace("ml"), a.Namespaces.SetScheduler("ml", "hawk")); err != nil {
		t.Fatal(err)
	}
	if err := a.Import(bucketNamespace, "ml", known(nil)); err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		if n := len(c.Namespaces.schedulers.all); n != 0 {
			t.Errorf("%d default schedulers are left", n)
		}
	}
}

func TestBadDefaultSchedulersAreRefused(t *testing.T) {
	c := sharers(t, 1)[0].Namespaces
	for _, x := range []struct {
		namespace, name string
		kind            fault.Kind
	}{{"", "sparow", fault.Invalid}, {"", "market:2", fault.Invalid}, {"ml", "hawk", fault.NotFound},
		{"ml", "", fault.NotFound}, {"M L", "hawk", fault.NotFound}} {
		if err := c.SetScheduler(x.namespace, x.name); !fault.Is(err, x.kind) {
			t.Errorf("%+v: %v", x, err)
		}
	}
	if len(c.schedulers.all) != 0 {
		t.Errorf("%+v", c.schedulers.all)
	}
}

// TestComparisonIsKeptAndShared: one runs at a time in a namespace and in the cluster, at all members, and the last one stays.
func TestComparisonIsKeptAndShared(t *testing.T) {
	all := sharers(t, 2)
	a, b := all[0].Namespaces, all[1].Namespaces
	now := time.Now()
	compare := func(c *Namespaces, namespace, x, y string) error {
		t.Helper()
		n, err := defaults.NewComparison("c-"+y, x, y, 50, 10, now)
		if err != nil {
			t.Fatal(err)
		}
		return c.StartComparison(namespace, n)
	}
	if err := errors.Join(a.CreateNamespace("ml"), a.SetScheduler("", "hawk"), compare(a, "", "hawk", "yarn"),
		compare(b, "ml", "hawk", "sparrow")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []*Namespaces{a, b} {
		if n := c.RunningComparisons(); len(n) != 2 || n[""].B != "yarn" || n["ml"].B != "sparrow" {
			t.Errorf("%+v", n)
		}
	}
	for name, err := range map[string]error{
		"a second one":         compare(b, "", "hawk", "pigeon"),
		"another default":      b.SetScheduler("", "pigeon"),
		"no default":           b.SetScheduler("", ""),
		"the end of another":   b.StopComparison("", "c-sparrow", "why", now),
		"not what is there":    compare(a, "default", "market", "pigeon"),
		"an end where none is": a.StopComparison("default", "", "why", now),
	} {
		if !fault.Is(err, fault.Precondition) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := compare(a, "nobody", "hawk", "yarn"); !fault.Is(err, fault.NotFound) {
		t.Error(err)
	}
	if err := errors.Join(a.SetScheduler("", "hawk"),
		b.StopComparison("ml", "c-sparrow", "yarn is worse", now)); err != nil {
		t.Fatal(err)
	}
	if x, err := a.Comparison("ml"); err != nil || x.Ended.IsZero() || x.Why != "yarn is worse" {
		t.Errorf("%+v, %v", x, err)
	}
	if r := a.SchedulerRows("ml"); r.Namespace.Running() != nil || r.Cluster.Running() == nil {
		t.Errorf("%+v", r)
	}
	if _, err := a.Comparison("nobody"); !fault.Is(err, fault.NotFound) {
		t.Error(err)
	}
	if x, err := a.Comparison("default"); err != nil || x != nil {
		t.Errorf("%+v, %v", x, err)
	}
}
