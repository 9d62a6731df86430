package catalog

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/fsm"
	"github.com/soukhq/souk/core/quota"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/store/journal/bolt"
	"github.com/soukhq/souk/store/journal/mem"
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

// id is a machine's id.
func id(i int) string { return fmt.Sprintf("%014x", i) }

func claim(t testing.TB, c *Catalog, key string, i int) *Claim {
	t.Helper()
	k, err := c.Keys.Claim("a", key, "hash", id(i))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// onDisk counts the rows of keys.
func onDisk(t *testing.T, j *mem.Journal) (n int) {
	t.Helper()
	if err := j.Load(func(r fsm.Record) error {
		if r.Bucket == bucketKey {
			n++
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestRefusedCreatesUseNoKeys: as many creates as there are keys are refused, and the next one finds room.
func TestRefusedCreatesUseNoKeys(t *testing.T) {
	c, j := newCatalog(t)
	for i := range 3 * keysAtOnce {
		claim(t, c, fmt.Sprint("k", i), 1).End(cluster.NotMade)
	}
	if c.Keys.table.all.n != 0 || c.Keys.table.spaces[quota.Default].n != 0 {
		t.Errorf("%d keys count", c.Keys.table.all.n)
	}
	claim(t, c, "kept", 1).End(cluster.IsMade)
	if rows := onDisk(t, j); rows != 1 {
		t.Errorf("%d keys are on disk", rows)
	}
	if again := claim(t, c, "kept", 2); again.Machine != id(1) {
		t.Errorf("a key that was kept is bound to %s", again.Machine)
	}
}

// TestRefusalKeepsAKeyInUse: a refusal unbinds a key only when no other create with it is under way or came through.
func TestRefusalKeepsAKeyInUse(t *testing.T) {
	c, _ := newCatalog(t)
	first, second := claim(t, c, "k", 1), claim(t, c, "k", 2)
	if second.Machine != id(1) {
		t.Fatal(second.Machine)
	}
	first.End(cluster.NotMade)
	second.End(cluster.MayBeMade)
	if third := claim(t, c, "k", 3); third.Machine != id(1) || third.Made {
		t.Errorf("the key of a machine is bound anew, to %+v", third)
	} else {
		third.End(cluster.NotMade) // the create before may have made one
	}
	if fourth := claim(t, c, "k", 4); fourth.Machine != id(1) {
		t.Errorf("the key of a machine is bound anew, to %s", fourth.Machine)
	}
	one, two := claim(t, c, "refused", 1), claim(t, c, "refused", 2)
	two.End(cluster.NotMade)
	one.End(cluster.NotMade)
	if next := claim(t, c, "refused", 5); next.Machine != id(5) {
		t.Errorf("a refused key stays bound to %s", next.Machine)
	}
}

// TestKeysSurviveRestart: what a dead process knew of its creates is not known any more, so its keys stay. That a
// machine was made is known, once another key was bound or a second has passed.
func TestKeysSurviveRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, j := newCatalog(t)
		ctx, end := context.WithCancel(t.Context())
		go c.Keys.Tend(ctx)
		claim(t, c, "k", 1)
		claim(t, c, "made", 2).End(cluster.IsMade)
		claim(t, c, cluster.OwnID(id(3)), 3).End(cluster.IsMade)
		claim(t, c, cluster.OwnID(id(4)), 4).End(cluster.NotMade)
		<-time.After(time.Second + time.Millisecond)
		end()
		if n := onDisk(t, j); n != 3 {
			t.Errorf("%d keys are on disk", n)
		}
		again, err := Open(j.Reopen(), filepath.Join(t.TempDir(), "key"))
		if err != nil {
			t.Fatal(err)
		}
		claim(t, again, "k", 9).End(cluster.NotMade)
		for key, want := range map[string]Claim{"k": {Machine: id(1)}, "made": {Machine: id(2), Made: true},
			cluster.OwnID(id(3)): {Machine: id(3), Made: true}} {
			if k := claim(t, again, key, 9); k.Machine != want.Machine || k.Made != want.Made || k.Bound.IsZero() {
				t.Errorf("the key %q is %+v, want %+v", key, k, want)
			}
		}
		if k := claim(t, again, cluster.OwnID(id(4)), 4); k.Made || !k.Bound.IsZero() {
			t.Errorf("an id whose create was refused is taken: %+v", k)
		}
	})
}

// TestLoadedAndNewKeysShareOneTable: what was loaded and what was bound since are one table, whatever is bound, unbound and
// opened again, and its oldest is the one that was bound first.
func TestLoadedAndNewKeysShareOneTable(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	spaceOf := func(app string) string { return map[string]string{"a": "ml"}[app] }
	table, want := newKeyTable(), map[string]uint32{}
	now := time.Unix(1_000_000, 0)
	for round := range 60_000 {
		app, key := []string{"a", "a-b", "b"}[rng.IntN(3)], fmt.Sprint(rng.IntN(1500))
		name := nameOfKey(app, key)
		switch n := rng.IntN(6000); {
		case n == 0:
			again := newKeyTable()
			for _, name := range slices.Sorted(maps.Keys(want)) {
				if err := again.load(name, table.get(name).encode()); err != nil {
					t.Fatal(err)
				}
			}
			again.sort(spaceOf)
			table = again
		case n == 1:
			for _, x := range table.removeApp(app) {
				x.apply()
				delete(want, x.record.Key)
			}
		case n < 3500:
			now = now.Add(time.Second)
			r := newKeyRow(app, key, &Claim{Machine: id(round)}, now)
			table.enter(r, spaceOf(app))
			want[name] = r.at
		default:
			table.forget(table.get(name))
			delete(want, name)
		}
		if r := table.get(name); (r != nil) != (want[name] != 0) || r != nil && r.at != want[name] {
			t.Fatalf("round %d: %s is %+v, want it bound at %d", round, name, r, want[name])
		}
		if table.all.n != len(want) || len(table.all.rows) > 2*len(want)+2*keysAtOnce {
			t.Fatalf("round %d: %d keys count of %d in the queue, want %d", round, table.all.n, len(table.all.rows),
				len(want))
		}
		if round%100 == 0 && len(want) > 0 {
			if at := slices.Min(slices.Collect(maps.Values(want))); table.all.oldest().at != at {
				t.Fatalf("round %d: the oldest was bound at %d, want %d", round, table.all.oldest().at, at)
			}
		}
	}
	spaces := 0
	for _, of := range table.spaces {
		spaces += of.n
	}
	if spaces != len(want) {
		t.Errorf("the namespaces have %d keys, want %d", spaces, len(want))
	}
	if err := table.load("b/1", nil); err == nil {
		t.Error("a row that is none is taken")
	}
}

// fill binds n keys of an app, and writes none.
func fill(c *Catalog, app, space string, n int, at time.Time) {
	c.Keys.table.mu.Lock()
	defer c.Keys.table.mu.Unlock()
	for i := range n {
		c.Keys.table.enter(newKeyRow(app, fmt.Sprint(i), &Claim{Machine: id(i), hash: "hash"}, at), space)
	}
}

// TestFullKeyTableRefusesOnlyItsNamespace: a namespace that has used up its keys is refused without a scan, with the
// time when there is room, takes none of the others' keys, and continues when its oldest keys expire.
func TestFullKeyTableRefusesOnlyItsNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := newCatalog(t)
		for _, of := range []string{"a", "b", "c"} {
			if _, err := c.Apps.CreateApp(of, "", "", ""); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.Namespaces.CreateNamespace("ml"); err != nil || c.Namespaces.SetNamespace("b", "ml") != nil {
			t.Fatal(err)
		}
		fill(c, "a", "", MaxNamespaceKeys, time.Now())
		<-time.After(time.Hour)
		_, err := c.Keys.Claim("a", "one more", "hash", id(1))
		if wait := fault.As(err).RetryAfter; fault.CodeOf(err) != "too_many_keys" ||
			wait < KeyLife-time.Hour || wait > KeyLife-time.Hour+time.Second {
			t.Fatalf("%v, to be asked again in %v", err, wait)
		}
		refuse := func() { _, _ = c.Keys.Claim("c", "one more", "hash", id(1)) }
		if n := testing.AllocsPerRun(10, refuse); n > 20 {
			t.Errorf("a refusal costs %v allocations", n)
		}
		if k, err := c.Keys.Claim("b", "another's", "hash", id(1)); err != nil {
			t.Errorf("a namespace without keys is refused for one that has many: %v", err)
		} else {
			k.End(cluster.IsMade)
		}
		<-time.After(KeyLife - time.Hour + time.Second)
		claim(t, c, "one more", 1).End(cluster.IsMade)
		if want := MaxNamespaceKeys - keysAtOnce + 2; c.Keys.table.all.n != want {
			t.Errorf("%d keys count, want %d", c.Keys.table.all.n, want)
		}
		c.Keys.settleKeys(time.Now())
		if c.Keys.table.all.n != 2 || len(c.Keys.table.dirty) > 0 {
			t.Errorf("%d keys count, %d wait for the disk", c.Keys.table.all.n, len(c.Keys.table.dirty))
		}
	})
}

// TestMillionKeysStaySmallAndFast: what they take on disk and in memory, and what a claim beside them costs. It takes a while, so
// only SOUK_MILLION_KEYS=1 runs it.
func TestMillionKeysStaySmallAndFast(t *testing.T) {
	if os.Getenv("SOUK_MILLION_KEYS") == "" {
		t.Skip("SOUK_MILLION_KEYS=1 runs it")
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "journal")
	open := func() *Catalog {
		j, err := bolt.Open(path, bolt.Options{})
		if err != nil {
			t.Fatal(err)
		}
		c, err := Open(j, filepath.Join(dir, "key"))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	c := open()
	claims := func() time.Duration {
		const n = 300
		began := time.Now()
		for i := range n {
			k, err := c.Keys.Claim("other", fmt.Sprint("k", i, began), "hash", id(i))
			if err != nil {
				t.Fatal(err)
			}
			k.End(cluster.IsMade)
		}
		return time.Since(began) / n
	}
	empty := claims()
	before := heap()
	began := time.Now()
	for i := range MaxKeys / 500 {
		var batch []change
		for n := range 500 {
			// as long as a UUID, and as little in order
			key := fmt.Sprintf("%016x-%019d", uint64(i*500+n)*0x9e3779b97f4a7c15, i)
			at := began.Add(-rand.N(20 * time.Hour))
			r := newKeyRow("web", key, &Claim{Machine: id(i*500 + n), hash: key}, at)
			r.made = true
			batch = append(batch, change{fsm.Record{Bucket: bucketKey, Key: nameOfKey("web", key), Value: r.encode()},
				func() { c.Keys.table.enter(r, "") }})
		}
		if err := c.keep(batch...); err != nil {
			t.Fatal(err)
		}
	}
	used := heap() - before
	c.Keys.table.spaces[quota.Default].n -= MaxKeys // the claims that are measured find room
	c.Keys.table.all.n -= MaxKeys
	full := claims()
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	at, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	c = nil
	before = heap()
	began, busy := time.Now(), cpu(t)
	c = open()
	took, busy := time.Since(began), cpu(t)-busy
	opened := heap() - before
	c.Keys.table.spaces[quota.Default].n -= MaxKeys
	c.Keys.table.all.n -= MaxKeys
	t.Logf("%d keys: %d MB on disk, %d MB in memory, opened in %v with %v of CPU and then %d MB; a claim takes %v of "+
		"none, %v of all, %v of all that were loaded", MaxKeys, at.Size()>>20, used>>20, took.Round(time.Millisecond),
		busy.Round(time.Millisecond), opened>>20, empty, full, claims())
	if at.Size() >= 150e6 {
		t.Errorf("the journal has %d bytes", at.Size())
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
}

// cpu returns what this process has taken.
func cpu(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
