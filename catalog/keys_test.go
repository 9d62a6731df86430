package catalog

import (
	"fmt"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/fsm"
	"github.com/soukhq/souk/journal/mem"
)

func newCatalog(t testing.TB) (*Catalog, *mem.Journal) {
	t.Helper()
	j := mem.New()
	c, err := Open(j, filepath.Join(t.TempDir(), "key"))
	if err != nil {
		t.Fatal(err)
	}
	return c, j
}

func claim(t testing.TB, c *Catalog, key, id string) *Claim {
	t.Helper()
	k, err := c.Claim("a", key, "hash", id)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// TestRefusedKeysDoNotCount: as many creates as there are keys are refused, and the next one finds room.
func TestRefusedKeysDoNotCount(t *testing.T) {
	c, j := newCatalog(t)
	for i := range 3 * expiredAtOnce {
		claim(t, c, fmt.Sprint("k", i), "m").End(true)
	}
	if c.keys.n != 0 || len(c.keys.oldest) > 2*expiredAtOnce {
		t.Errorf("%d keys count, %d are in order", c.keys.n, len(c.keys.oldest))
	}
	claim(t, c, "kept", "m").End(false)
	rows := 0
	if err := j.Load(func(fsm.Record) error { rows++; return nil }); err != nil || rows != 1 {
		t.Errorf("%d keys are on disk, %v", rows, err)
	}
	if again := claim(t, c, "kept", "other"); again.Machine != "m" {
		t.Errorf("a key that was kept is bound to %s", again.Machine)
	}
}

// TestAKeyInUseIsKept: a refusal unbinds a key only when no other create with it is under way or came through.
func TestAKeyInUseIsKept(t *testing.T) {
	c, _ := newCatalog(t)
	first, second := claim(t, c, "k", "1"), claim(t, c, "k", "2")
	if second.Machine != "1" {
		t.Fatal(second.Machine)
	}
	first.End(true)
	second.End(false)
	if third := claim(t, c, "k", "3"); third.Machine != "1" {
		t.Errorf("the key of a machine is bound anew, to %s", third.Machine)
	} else {
		third.End(true) // of a machine that is there: the claim before it made it
	}
	if fourth := claim(t, c, "k", "4"); fourth.Machine != "1" {
		t.Errorf("the key of a machine is bound anew, to %s", fourth.Machine)
	}
	one, two := claim(t, c, "refused", "1"), claim(t, c, "refused", "2")
	two.End(true)
	one.End(true)
	if next := claim(t, c, "refused", "5"); next.Machine != "5" {
		t.Errorf("a refused key stays bound to %s", next.Machine)
	}
}

// TestAKeyIsKeptOverARestart: what a dead process knew of its creates is not known any more, so its keys stay.
func TestAKeyIsKeptOverARestart(t *testing.T) {
	c, j := newCatalog(t)
	claim(t, c, "k", "1")
	again, err := Open(j.Reopen(), filepath.Join(t.TempDir(), "key"))
	if err != nil {
		t.Fatal(err)
	}
	claim(t, again, "k", "2").End(true)
	if k := claim(t, again, "k", "3"); k.Machine != "1" {
		t.Errorf("the key is bound to %s", k.Machine)
	}
}

// TestAFullTableOfKeys refuses without a look at each key, and goes on when the oldest are over.
func TestAFullTableOfKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := newCatalog(t)
		at := time.Now().UTC()
		for i := range MaxKeys {
			c.keys.enter(fmt.Sprintf("a/%d", i), keyRow{Hash: "hash", Machine: "m", At: at})
		}
		refuse := func() { _, _ = c.Claim("a", "one more", "hash", "m") }
		if _, err := c.Claim("a", "one more", "hash", "m"); fault.CodeOf(err) != "too_many_keys" {
			t.Fatal(err)
		}
		if n := testing.AllocsPerRun(10, refuse); n > 20 {
			t.Errorf("a refusal costs %v allocations", n)
		}
		<-time.After(KeyLife)
		claim(t, c, "one more", "m").End(false)
		if want := MaxKeys - expiredAtOnce + 1; c.keys.n != want {
			t.Errorf("%d keys count, want %d", c.keys.n, want)
		}
	})
}
