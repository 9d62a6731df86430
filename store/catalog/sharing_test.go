package catalog

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/soukhq/souk/core/quota"
	"github.com/soukhq/souk/core/registry"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/store/journal/mem"
)

// sharers are catalogs that hear each other at once.
func sharers(t *testing.T, n int) []*Catalog {
	t.Helper()
	var all []*Catalog
	for range n {
		c, err := Open(mem.New(), filepath.Join(t.TempDir(), "key"))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	for i, c := range all {
		err := c.Share(Sharing{Keys: func() [][]byte { return [][]byte{[]byte("a key that all members have")} },
			Failed: func(bucket, key string, err error) { t.Errorf("%s/%s: %v", bucket, key, err) },
			Put: func(bucket, key string, value []byte) error {
				for k, other := range all {
					if k != i && other.sharing != nil {
						if err := other.Import(bucket, key, known(value)); err != nil {
							t.Errorf("import of %s/%s: %v", bucket, key, err)
						}
					}
				}
				return nil
			}})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

func TestCatalogChangesReachOtherMembers(t *testing.T) {
	all := sharers(t, 3)
	a, b := all[0], all[2]
	if _, err := a.Apps.CreateApp("web", "", "", ""); err != nil {
		t.Fatal(err)
	}
	value := "hush"
	if _, _, err := a.Secrets.SetSecrets("web", map[string]*string{"TOKEN": &value, "OTHER": &value}); err != nil {
		t.Fatal(err)
	}
	if got, err := b.Secrets.OpenSecrets(plain("web")); err != nil || got["TOKEN"] != "hush" || len(got) != 2 {
		t.Errorf("%v %v", got, err)
	}
	if _, _, err := b.Secrets.SetSecrets("web", map[string]*string{"OTHER": nil}); err != nil {
		t.Fatal(err)
	}
	if got, err := a.Secrets.OpenSecrets(plain("web")); err != nil || len(got) != 1 {
		t.Errorf("%v %v", got, err)
	}
	if _, _, err := b.Policies.ApplyPolicy(mine(1)); err != nil {
		t.Fatal(err)
	}
	name := "mine"
	if err := b.Policies.ChoosePolicies(&name, nil); err != nil {
		t.Fatal(err)
	}
	if got := a.Policies.PolicyChoice().Default; got != "mine" {
		t.Errorf("the default is %q", got)
	}
	if _, err := a.Policies.BoundPolicy("mine"); err != nil {
		t.Error(err)
	}
	if err := b.Apps.DeleteApp("web"); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Apps.App("web"); !fault.Is(err, fault.NotFound) {
		t.Errorf("a deleted app is still there: %v", err)
	}
}

func TestImportRefusesMalformedAndUnsealedRows(t *testing.T) {
	c := sharers(t, 1)[0]
	for _, x := range [][3]string{{"app", "web", "{"}, {"nonsense", "x", "{}"}, {"policy", "p/1", `"x"`},
		{"secret", "nobody/TOKEN", "{}"}, {"secret", "x", "{}"}} {
		if err := c.Import(x[0], x[1], known([]byte(x[2]))); err == nil {
			t.Errorf("%v is imported", x)
		}
	}
	if _, err := c.Apps.CreateApp("web", "", "", ""); err != nil {
		t.Fatal(err)
	}
	if err := c.Import("secret", "web/TOKEN", known([]byte(`{"digest":"x","sealed":"AAAA"}`))); err == nil {
		t.Error("a secret that nobody of us sealed is imported")
	}
}

// TestQuotasReachOtherMembers: namespaces and prices go to the other gateways, and a row that does not read changes nothing.
func TestQuotasReachOtherMembers(t *testing.T) {
	all := sharers(t, 2)
	a, b := all[0], all[1]
	err := errors.Join(a.Namespaces.CreateNamespace("ml"), a.Namespaces.SetQuota("ml", &quota.Budget{PerHour: 1,
		Burst: 2}, 3, nil),
		b.Namespaces.SetPrice(quota.Price{PerHour: map[string]float64{"cpu": 7}}))
	if err != nil {
		t.Fatal(err)
	}
	n, err := b.Namespaces.Namespace("ml")
	if err != nil || n.Budget.Burst != 2 || n.Weight != 3 || a.Namespaces.Price().PerHour["cpu"] != 7 {
		t.Fatalf("%+v, %v, %+v", n, err, a.Namespaces.Price())
	}
	raw, err := json.Marshal(n)
	if err != nil || b.Import(bucketNamespace, "ml", known(raw)) != nil ||
		b.Import(bucketNamespace, "x", known([]byte("{"))) == nil ||
		b.Import(bucketPrice, keyPrice, known([]byte("[]"))) == nil {
		t.Fatal(err)
	}
	if err := a.Namespaces.DeleteNamespace("ml"); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Namespaces.Namespace("ml"); !fault.Is(err, fault.NotFound) {
		t.Fatal(err)
	}
	again := empty(a.journal)
	if err := a.journal.Load(again.load); err != nil || len(again.Namespaces.AllNamespaces()) != 1 ||
		again.Namespaces.Price().PerHour["cpu"] != 7 {
		t.Fatalf("%v, %+v, %+v", err, again.Namespaces.AllNamespaces(), again.Namespaces.Price())
	}
}

// known is a row that all know.
func known(value []byte) func() ([]byte, bool) { return func() ([]byte, bool) { return value, true } }

// TestImportKeepsConcurrentLocalWrites: an object of an app is being imported while the app is deleted here.
// It came back, and its name was taken.
func TestImportKeepsConcurrentLocalWrites(t *testing.T) {
	c, _ := newCatalog(t)
	objects := map[string][]byte{}
	if err := c.Share(Sharing{Put: func(bucket, key string, value []byte) error {
		objects[bucket+"/"+key] = value
		return nil
	}}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := c.Apps.CreateApp("web", "", "", ""); err != nil {
			t.Fatal(err)
		}
		if err := c.Apps.DeleteApp("web"); err != nil {
			t.Fatal(err)
		}
		// who imports was told of the app when it was made, and comes to it now
		newest := func() ([]byte, bool) { return objects[bucketApp+"/web"], true }
		if err := c.Import(bucketApp, "web", newest); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFullCatalogFitsTheGossipLimits: as many apps as a catalog takes are no more than members can tell each other, and there
// is room for other things beside them.
func TestFullCatalogFitsTheGossipLimits(t *testing.T) {
	if MaxApps > registry.MaxObjects*4/5 {
		t.Errorf("a catalog takes %d apps, and members share %d objects", MaxApps, registry.MaxObjects)
	}
}

// TestWritesBeyondGossipLimitsAreRefused: nothing is written here that the other members have no place for.
func TestWritesBeyondGossipLimitsAreRefused(t *testing.T) {
	c, j := newCatalog(t)
	told := map[string]bool{}
	if err := c.Share(Sharing{Keys: func() [][]byte { return nil },
		Failed: func(_, _ string, err error) { t.Error(err) },
		Put:    func(bucket, key string, _ []byte) error { told[bucket+"/"+key] = true; return nil },
		May: func(_ string, more int) error {
			if len(told)+more > 4 {
				return fault.New(fault.Exhausted, "too_many_objects", "%d are there", len(told))
			}
			return nil
		}}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Apps.CreateApp("shop", "personal", "", ""); err != nil {
		t.Fatal(err)
	}
	for _, note := range []string{"one", "two"} { // the first has a place for the word of its steward, too
		if _, err := c.Services.Deploy("shop", wantedRelease(note, 1), "", nil, nil, time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	before := j.Commits()
	_, err := c.Services.Deploy("shop", wantedRelease("three", 1), "", nil, nil, time.Now())
	if !fault.Is(err, fault.Exhausted) {
		t.Errorf("a release more than there are places for: %v", err)
	}
	if _, err := c.Apps.CreateApp("x", "personal", "", ""); !fault.Is(err, fault.Exhausted) {
		t.Errorf("an app more than there are places for: %v", err)
	}
	if s, _ := c.Services.Service("shop"); j.Commits() != before || s.Release.Note != "two" {
		t.Errorf("%d commits, and release %q", j.Commits()-before, s.Release.Note)
	}
}

// TestSecretsAreResealedWithTheCurrentKey: a secret that travels sealed with a key of before is sealed with the one in use, and opens with no
// other; it stays the same secret.
func TestSecretsAreResealedWithTheCurrentKey(t *testing.T) {
	c, err := Open(mem.New(), filepath.Join(t.TempDir(), "key"))
	if err != nil {
		t.Fatal(err)
	}
	keys, told := [][]byte{[]byte("the key of before")}, map[string][]byte{}
	err = c.Share(Sharing{Keys: func() [][]byte { return keys }, Failed: func(_, _ string, err error) { t.Error(err) },
		Put: func(bucket, key string, value []byte) error { told[bucket+"/"+key] = value; return nil }})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Apps.CreateApp("web", "", "", ""); err != nil {
		t.Fatal(err)
	}
	value := "hush"
	if _, _, err := c.Secrets.SetSecrets("web", map[string]*string{"TOKEN": &value}); err != nil {
		t.Fatal(err)
	}
	row := told["secret/web/TOKEN"]
	if _, anew, err := c.Secrets.Resealed("web/TOKEN", row); err != nil || anew {
		t.Error(anew, err)
	}
	keys = [][]byte{[]byte("the new key"), keys[0]}
	sealed, anew, err := c.Secrets.Resealed("web/TOKEN", row)
	if err != nil || !anew {
		t.Fatal(anew, err)
	}
	if err := c.Import("secret", "web/TOKEN", known(sealed)); err != nil {
		t.Error(err)
	}
	if got, err := c.Secrets.OpenSecrets(plain("web")); err != nil || got["TOKEN"] != "hush" {
		t.Error(got, err)
	}
	keys = keys[1:]
	if _, _, err := c.Secrets.Resealed("web/TOKEN", sealed); err == nil {
		t.Error("the key of before opens it")
	}
	if _, _, err := c.Secrets.Resealed("gone/TOKEN", row); !fault.Is(err, fault.NotFound) {
		t.Error(err)
	}
}
