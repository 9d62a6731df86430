package gateway

import (
	"path/filepath"
	"testing"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/journal/mem"
)

// sharers are catalogs that hear each other at once.
func sharers(t *testing.T, n int) []*Catalog {
	t.Helper()
	var all []*Catalog
	for range n {
		c, err := OpenCatalog(mem.New(), filepath.Join(t.TempDir(), "key"))
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
						if err := other.Import(bucket, key, value); err != nil {
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

func TestSharedCatalogs(t *testing.T) {
	all := sharers(t, 3)
	a, b := all[0], all[2]
	if _, err := a.CreateApp("web", "", "", ""); err != nil {
		t.Fatal(err)
	}
	value := "hush"
	if _, _, err := a.SetSecrets("web", map[string]*string{"TOKEN": &value, "OTHER": &value}); err != nil {
		t.Fatal(err)
	}
	if got, err := b.Secrets("web"); err != nil || got["TOKEN"] != "hush" || len(got) != 2 {
		t.Errorf("%v %v", got, err)
	}
	if _, _, err := b.SetSecrets("web", map[string]*string{"OTHER": nil}); err != nil {
		t.Fatal(err)
	}
	if got, err := a.Secrets("web"); err != nil || len(got) != 1 {
		t.Errorf("%v %v", got, err)
	}
	if _, _, err := b.ApplyPolicy([]byte("name = \"mine\"\n[[score]]\nname = \"room\"\nweight = 1.0\nexpr = \"1.0\"\n")); err != nil {
		t.Fatal(err)
	}
	name := "mine"
	if err := b.ChoosePolicies(&name, nil); err != nil {
		t.Fatal(err)
	}
	if got := a.PolicyChoice().Default; got != "mine" {
		t.Errorf("the default is %q", got)
	}
	if _, err := a.BoundPolicy("mine"); err != nil {
		t.Error(err)
	}
	if err := b.DeleteApp("web"); err != nil {
		t.Fatal(err)
	}
	if _, err := a.App("web"); !fault.Is(err, fault.NotFound) {
		t.Errorf("a deleted app is still there: %v", err)
	}
}

func TestImportRefuses(t *testing.T) {
	c := sharers(t, 1)[0]
	for _, x := range [][3]string{{"app", "web", "{"}, {"nonsense", "x", "{}"}, {"policy", "p/1", `"x"`}, {"secret", "nobody/TOKEN", "{}"}, {"secret", "x", "{}"}} {
		if err := c.Import(x[0], x[1], []byte(x[2])); err == nil {
			t.Errorf("%v is imported", x)
		}
	}
	if _, err := c.CreateApp("web", "", "", ""); err != nil {
		t.Fatal(err)
	}
	if err := c.Import("secret", "web/TOKEN", []byte(`{"digest":"x","sealed":"AAAA"}`)); err == nil {
		t.Error("a secret that nobody of us sealed is imported")
	}
}
