package catalog

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/soukhq/souk/core/fsm"
	"github.com/soukhq/souk/core/policy"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/store/journal"
	"github.com/soukhq/souk/store/journal/mem"
)

// commits is a journal that keeps what was committed, commit by commit.
type commits struct {
	journal.Journal
	all [][]fsm.Record
}

func (j *commits) Commit(batch []fsm.Record, written ...func()) error {
	j.all = append(j.all, batch)
	return j.Journal.Commit(batch, written...)
}

// told is a row that a catalog told the others.
type told struct {
	bucket, key string
	value       []byte
}

// teller is a catalog whose rows are collected instead of heard.
type teller struct {
	*Catalog
	journal *commits
	told    []told
}

func newTeller(t *testing.T) *teller {
	t.Helper()
	j := &commits{Journal: mem.New()}
	c, err := Open(j, filepath.Join(t.TempDir(), "key"))
	if err != nil {
		t.Fatal(err)
	}
	x := &teller{Catalog: c, journal: j}
	err = c.Share(Sharing{Keys: func() [][]byte { return [][]byte{[]byte("a key that all members have")} },
		Failed: func(bucket, key string, err error) { t.Errorf("%s/%s: %v", bucket, key, err) },
		Put: func(bucket, key string, value []byte) error {
			x.told = append(x.told, told{bucket, key, value})
			return nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// hear imports rows, and returns how many commits they cost.
func (x *teller) hear(t *testing.T, rows ...told) int {
	t.Helper()
	before := len(x.journal.all)
	for _, r := range rows {
		if err := x.Import(r.bucket, r.key, known(r.value)); err != nil {
			t.Fatalf("%s/%s: %v", r.bucket, r.key, err)
		}
	}
	return len(x.journal.all) - before
}

func mine(weight int) []byte {
	return fmt.Appendf(nil, "name = \"mine\"\n[[score]]\nname = \"room\"\nweight = %d.0\nexpr = \"1.0\"\n", weight)
}

func (x *teller) apply(t *testing.T, weight int) {
	t.Helper()
	if _, changed, err := x.Policies.ApplyPolicy(mine(weight)); err != nil || !changed {
		t.Fatal(changed, err)
	}
}

// TestPolicyVersionsAreTrimmedAlike applies more versions than are kept: at the others the policy stays, with the same
// versions, in memory and on disk.
func TestPolicyVersionsAreTrimmedAlike(t *testing.T) {
	a, b := newTeller(t), newTeller(t)
	for n := range 3 * policy.MaxVersions {
		a.apply(t, n+1)
		b.hear(t, a.told...)
		a.told = nil
		if _, err := b.Policies.BoundPolicy("mine"); err != nil {
			t.Fatalf("version %d: %v", n+1, err)
		}
	}
	for _, x := range []*teller{a, b} {
		v, kept, err := x.Policies.PolicyVersion("mine", 0)
		if err != nil || v.Number != 3*policy.MaxVersions || len(kept) != policy.MaxVersions {
			t.Errorf("version %d of %d kept, %v", v.Number, len(kept), err)
		}
		rows := 0
		if err := x.journal.Load(func(fsm.Record) error { rows++; return nil }); err != nil ||
			rows != policy.MaxVersions {
			t.Errorf("%d rows are on disk, %v", rows, err)
		}
	}
}

// TestImportOfManyRowsCostsOneCommit: dependent rows that are imported together cost one commit, and are all there,
// also after a restart.
func TestImportOfManyRowsCostsOneCommit(t *testing.T) {
	a, b := newTeller(t), newTeller(t)
	if _, err := a.Apps.CreateApp("shop", "personal", "", ""); err != nil {
		t.Fatal(err)
	}
	if _, _, err := a.Secrets.SetSecrets("shop", map[string]*string{"KEY": new("value")}); err != nil {
		t.Fatal(err)
	}
	before := len(b.journal.all)
	if err := b.ImportMany(func(one Importing) {
		if err := one("nothing", "x", known(nil)); err == nil {
			t.Error("a row of an unknown kind was imported")
		}
		for _, r := range a.told {
			if err := one(r.bucket, r.key, known(r.value)); err != nil {
				t.Errorf("%s/%s: %v", r.bucket, r.key, err)
			}
		}
	}); err != nil {
		t.Fatal(err)
	}
	if n := len(b.journal.all) - before; n != 1 || len(a.told) < 2 {
		t.Errorf("%d rows cost %d commits", len(a.told), n)
	}
	again := empty(b.journal)
	if err := b.journal.Load(again.load); err != nil {
		t.Fatal(err)
	}
	for _, c := range []*Catalog{b.Catalog, again} {
		if n := len(c.Secrets.rows.byApp["shop"]); n != 1 {
			t.Errorf("%d secrets are there", n)
		}
	}
	if _, err := b.Apps.CreateApp("other", "personal", "", ""); err != nil || len(b.journal.all) != before+2 {
		t.Errorf("the next change: %v, and %d commits", err, len(b.journal.all)-before)
	}
}

// TestRepeatedDeletionCostsNoCommit: what is gone here already is not written again, however often it is heard.
func TestRepeatedDeletionCostsNoCommit(t *testing.T) {
	a, b := newTeller(t), newTeller(t)
	value := "v"
	a.apply(t, 1)
	for _, do := range []func() error{
		func() error { _, err := a.Apps.CreateApp("web", "", "", ""); return err },
		func() error { _, _, err := a.Secrets.SetSecrets("web", map[string]*string{"S": &value}); return err },
		func() error { return a.Namespaces.CreateNamespace("ml") },
		func() error { return a.Policies.ChoosePolicies(&[]string{"binpack"}[0], nil) },
		func() error { return a.Namespaces.SetPrice(a.Namespaces.Price()) },
		func() error { return a.Namespaces.SetScheduler("", "hawk") },
		func() error { return a.Namespaces.SetScheduler("ml", "market") },
	} {
		if err := do(); err != nil {
			t.Fatal(err)
		}
	}
	heard := a.told
	if n := b.hear(t, heard...); n != len(heard) {
		t.Errorf("%d rows cost %d commits", len(heard), n)
	}
	if n := b.hear(t, heard[len(heard)-4:]...); n != 0 {
		t.Errorf("rows that are here already cost %d commits", n)
	}
	for i := range heard {
		heard[i].value = nil
	}
	once := b.hear(t, heard...)
	for range 100 {
		if n := b.hear(t, heard...); n != 0 {
			t.Fatalf("rows that are gone cost %d commits more, after %d", n, once)
		}
	}
	left := 0
	if err := b.journal.Load(func(fsm.Record) error { left++; return nil }); err != nil || left != 0 {
		t.Errorf("%d rows are left, %v", left, err)
	}
}

// TestChangeSharesOnlyChangedRows: a change tells the rows that it changes, and an import commits the row that it imports.
func TestChangeSharesOnlyChangedRows(t *testing.T) {
	a, b := newTeller(t), newTeller(t)
	for i := range 50 {
		if _, err := a.Apps.CreateApp(fmt.Sprintf("app-%d", i), "", "", ""); err != nil {
			t.Fatal(err)
		}
	}
	b.hear(t, a.told...)
	a.told = nil
	if err := a.Apps.SetDisconnect("app-7", DisconnectFenced); err != nil {
		t.Fatal(err)
	}
	if len(a.told) != 1 || a.told[0].key != "app-7" {
		t.Errorf("one change is told as %v", a.told)
	}
	if n := b.hear(t, a.told...); n != 1 {
		t.Errorf("one row cost %d commits", n)
	}
	if last := b.journal.all[len(b.journal.all)-1]; len(last) != 1 || last[0].Key != "app-7" {
		t.Errorf("committed is %v", last)
	}
	if err := a.Apps.SetDisconnect("app-7", DisconnectFenced); err != nil || len(a.told) != 1 {
		t.Errorf("the same again is told: %v, %v", a.told, err)
	}
}

// TestNextGoodPolicyReplacesABrokenOne: a version that this souk cannot load lets the default place, and the next good one is
// used.
func TestNextGoodPolicyReplacesABrokenOne(t *testing.T) {
	a, b := newTeller(t), newTeller(t)
	a.apply(t, 1)
	b.hear(t, a.told...)
	of := policy.Version{Policy: "mine", Number: 2, Text: "name = 'of the future'"}
	b.hear(t, told{bucketPolicy, policyKey(of), encode(of)})
	if p, err := b.Policies.Policy("mine"); err != nil || p.Broken == "" || p.Version != 2 {
		t.Fatalf("%+v, %v", p, err)
	}
	good := policy.Version{Policy: "mine", Number: 3, Text: string(mine(3))}
	b.hear(t, told{bucketPolicy, policyKey(good), encode(good)})
	p, err := b.Policies.Policy("mine")
	if err != nil || p.Broken != "" || p.Version != 3 || !strings.Contains(p.Summary, "3") {
		t.Fatalf("%+v, %v", p, err)
	}
	bound, err := b.Policies.BoundPolicy("mine")
	if err != nil || bound.Version != 3 || bound.Name != "mine" {
		t.Errorf("%+v, %v", bound, err)
	}
	// The newest goes again (its writer lost): the one before is what is in force, broken as it is, and so on down.
	b.hear(t, told{bucketPolicy, policyKey(good), nil})
	if p, err := b.Policies.Policy("mine"); err != nil || p.Broken == "" {
		t.Errorf("%+v, %v", p, err)
	}
	b.hear(t, told{bucketPolicy, policyKey(of), nil})
	if p, err := b.Policies.Policy("mine"); err != nil || p.Broken != "" || p.Version != 1 {
		t.Errorf("%+v, %v", p, err)
	}
}

// TestConcurrentPolicyVersionKeepsTheNewest: of two policies that were applied at two members at once one version stays, the newest
// writer's.
func TestConcurrentPolicyVersionKeepsTheNewest(t *testing.T) {
	a, b := newTeller(t), newTeller(t)
	a.apply(t, 1)
	b.apply(t, 2)
	b.hear(t, a.told...)
	v, kept, err := b.Policies.PolicyVersion("mine", 0)
	if err != nil || len(kept) != 1 || v.Text != string(mine(1)) {
		t.Errorf("%+v of %d versions, %v", v, len(kept), err)
	}
	if p, err := b.Policies.Policy("mine"); err != nil || !strings.Contains(p.Summary, "1") {
		t.Errorf("%+v, %v", p, err)
	}
}

// TestImportRefusesInvalidRows: what no member can have written changes nothing, whatever its bucket.
func TestImportRefusesInvalidRows(t *testing.T) {
	c := newTeller(t)
	for _, x := range []told{
		{bucketApp, "web", []byte("{}")}, {bucketApp, "web", []byte(`{"name":"shop"}`)},
		{bucketApp, "", []byte(`{"name":""}`)},
		{bucketNamespace, "ml", []byte("null")}, {bucketNamespace, "ml", []byte(`{"name":"web"}`)},
		{bucketSetting, "other", []byte(`{"default":"binpack"}`)}, {bucketPrice, "other", []byte("{}")},
		{bucketPrice, keyPrice, []byte(`{"per_hour":{"cpu":-1}}`)},
		{bucketPolicy, "mine/00000001", []byte(`{"policy":"mine","version":2}`)},
		{bucketPolicy, "mine/00000000", []byte(`{"policy":"mine"}`)},
		{bucketPolicy, "binpack/00000001", []byte(`{"policy":"binpack","version":1}`)},
		{bucketPolicy, "/00000001", []byte(`{"version":1}`)},
		{bucketKey, "web/k", []byte("{}")},
		{bucketScheduler, "ml", []byte(`{"scheduler":"hawk"}`)}, {bucketScheduler, "namespace/M L", []byte("{}")},
		{bucketScheduler, keyClusterScheduler, []byte(`{"scheduler":7}`)},
		{bucketScheduler, keyClusterScheduler, []byte(`{"comparison":{"id":"c","a":"x","b":"y","share":100}}`)},
		{bucketScheduler, keyClusterScheduler, []byte(`{"comparison":{}}`)},
		{bucketScheduler, keyClusterScheduler, []byte(`{"scheduler":"` + strings.Repeat("x", 65) + `"}`)},
	} {
		if err := c.Import(x.bucket, x.key, known(x.value)); err == nil {
			t.Errorf("%s/%s = %s is imported", x.bucket, x.key, x.value)
		}
	}
	if len(c.journal.all) != 0 || len(c.Apps.AllApps()) != 0 ||
		c.Policies.PolicyChoice().Default != policy.DefaultName {
		t.Errorf("%d commits, %v, %+v", len(c.journal.all), c.Apps.AllApps(), c.Policies.PolicyChoice())
	}
}

// TestDeletedAppDeletesItsSecrets: at whoever hears of it as well, so that nothing of it comes back in an app of
// the same name.
func TestDeletedAppDeletesItsSecrets(t *testing.T) {
	a, b := newTeller(t), newTeller(t)
	value := "v"
	if _, err := a.Apps.CreateApp("web", "", "", ""); err != nil {
		t.Fatal(err)
	}
	if _, _, err := a.Secrets.SetSecrets("web", map[string]*string{"S": &value}); err != nil {
		t.Fatal(err)
	}
	b.hear(t, a.told...)
	b.hear(t, told{bucketApp, "web", nil})
	left := 0
	if err := b.journal.Load(func(fsm.Record) error { left++; return nil }); err != nil || left != 0 {
		t.Errorf("%d rows are left, %v", left, err)
	}
}

// TestSecretMustFitAnEnvironmentVariable: what no variable of a machine can hold is refused when it is set, and nothing is kept.
func TestSecretMustFitAnEnvironmentVariable(t *testing.T) {
	c := newTeller(t)
	if _, err := c.Apps.CreateApp("web", "", "", ""); err != nil {
		t.Fatal(err)
	}
	zero, good := "a\x00b", "v"
	_, _, err := c.Secrets.SetSecrets("web", map[string]*string{"A": &good, "S": &zero})
	if fault.CodeOf(err) != "secret_value" {
		t.Fatalf("a secret with a zero byte: %v", err)
	}
	if all, version, err := c.Secrets.SecretsOf("web"); err != nil || len(all) != 0 || version != 0 {
		t.Errorf("%d secrets at version %d, %v", len(all), version, err)
	}
}
