package broker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/store/catalog"
	"github.com/soukhq/souk/store/journal/mem"
)

// town is a few members in memory that share one fleet, and may be cut off from each other.
type town struct {
	fleet   *fakeFleet
	members map[cluster.WorkerID]*Claimant
	brokers map[cluster.WorkerID]*Broker
	mu      sync.Mutex
	cut     func(a, b cluster.WorkerID) bool // nil: nobody
	old     cluster.WorkerID                 // a member that knows no claims
	asked   map[cluster.WorkerID]int
}

// link is one member's way to the others.
type link struct {
	*town
	self cluster.WorkerID
}

func (l link) Deciders() (out []cluster.WorkerID) {
	for id := range l.members {
		out = append(out, id)
	}
	return out
}

func (l link) Claim(ctx context.Context, id cluster.WorkerID, c cluster.Claim) (cluster.Claimed, error) {
	l.mu.Lock()
	away := l.cut != nil && l.cut(l.self, id)
	l.asked[id]++
	l.mu.Unlock()
	switch {
	case id == l.old:
		return cluster.Claimed{}, fault.New(fault.NotFound, "path", "nothing is served there")
	case away:
		return cluster.Claimed{}, fault.New(fault.Unavailable, CodeGone, "cut off")
	}
	return l.members[id].Decide(ctx, c)
}

func newTown(t *testing.T, ids ...cluster.WorkerID) *town {
	t.Helper()
	names := make([]string, len(ids))
	for i, id := range ids {
		names[i] = string(id)
	}
	w := &town{fleet: newFakeFleet(names...), members: map[cluster.WorkerID]*Claimant{},
		brokers: map[cluster.WorkerID]*Broker{}, asked: map[cluster.WorkerID]int{}}
	for i, id := range ids {
		rows, err := catalog.Open(mem.New(), filepath.Join(t.TempDir(), "key"))
		if err != nil {
			t.Fatal(err)
		}
		w.members[id] = NewClaimant(id, link{w, id}, NewDecider(w.fleet, rows.Keys), w.fleet)
		w.brokers[id] = New(Options{Fleet: w.fleet, Directory: w.fleet, Apps: w.fleet, Policies: w.fleet,
			Funds: w.fleet, Claims: w.members[id],
			Region: "local", Rand: &locked{from: rand.NewChaCha8([32]byte{byte(i + 1)})}})
		t.Cleanup(w.brokers[id].Close)
	}
	return w
}

// locked is a source of chance for many goroutines.
type locked struct {
	mu   sync.Mutex
	from *rand.ChaCha8
}

func (l *locked) Read(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.from.Read(b)
}

// race asks every member for the same thing at once, and gives the ids that were answered.
func (w *town) race(t *testing.T, in func() Intent) []string {
	t.Helper()
	var mu sync.Mutex
	var ids []string
	var all sync.WaitGroup
	for _, b := range w.brokers {
		all.Go(func() {
			placed, err := b.Place(t.Context(), in())
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil && !slices.Contains(ids, placed.Machines[0].ID):
				ids = append(ids, placed.Machines[0].ID)
			case err != nil && fault.CodeOf(err) != "name_taken":
				t.Error(err)
			}
		})
	}
	all.Wait()
	return ids
}

func idle(name string) *machine.Launch {
	l := launchOf(256)
	l.Name, l.SkipLaunch = name, true
	return l
}

func named(i int) func() Intent {
	return func() Intent { return Intent{App: "a", Launch: idle(fmt.Sprintf("one-%d", i))} }
}

func keyed(i int) func() Intent {
	return func() Intent { return Intent{App: "a", Launch: idle(""), Key: fmt.Sprintf("key-%d", i)} }
}

// TestRacedNamesAndKeysAreClaimedOnce: 300 names and 300 keys raced at three members: none twice, also where one of them is
// too old to decide.
func TestRacedNamesAndKeysAreClaimedOnce(t *testing.T) {
	for _, old := range []cluster.WorkerID{"", "w2"} {
		w := newTown(t, "w1", "w2", "w3")
		w.old = old
		if old != "" {
			delete(w.brokers, old)
		}
		for i := range 300 {
			if ids := w.race(t, named(i)); len(ids) != 1 {
				t.Fatalf("name %d: %d machines", i, len(ids))
			}
			if ids := w.race(t, keyed(i)); len(ids) != 1 {
				t.Fatalf("key %d: %d machines", i, len(ids))
			}
		}
		for id, b := range w.brokers {
			if pairs := w.members[id].KeyPairs(t.Context()); old == "" && len(pairs) > 0 {
				t.Errorf("%s finds %v", id, pairs)
			}
			_ = b
		}
	}
}

// TestKeyUsedOnBothSidesOfACutIsFoundAfterwards: while one member is cut off from the others both sides go on, so a key may be used
// on each; afterwards the pairs are found from every member.
func TestKeyUsedOnBothSidesOfACutIsFoundAfterwards(t *testing.T) {
	w := newTown(t, "w1", "w2", "w3")
	w.cut = func(a, b cluster.WorkerID) bool { return a == "w3" || b == "w3" }
	twice := 0
	for i := range 50 {
		ids := w.race(t, keyed(i))
		if len(ids) > 2 {
			t.Fatalf("key %d: %d machines on two sides of a cut", i, len(ids))
		}
		if len(ids) == 2 {
			twice++
		}
	}
	if twice != 50 {
		t.Errorf("%d of 50 keys were used on both sides; each side has somebody who decides", twice)
	}
	w.mu.Lock()
	w.cut = nil
	w.mu.Unlock()
	for id, c := range w.members {
		pairs := c.KeyPairs(t.Context())
		if len(pairs) != twice {
			t.Errorf("%s finds %d pairs of %d", id, len(pairs), twice)
		}
		for _, p := range pairs {
			if p.Kind != cluster.ClaimKey || p.App != "a" || len(p.Machines) != 2 {
				t.Errorf("%+v", p)
			}
		}
	}
}

// TestNameIsFreedByDestroyAndByFailedCreate: of a machine that is destroyed, and of a create that failed.
func TestNameIsFreedByDestroyAndByFailedCreate(t *testing.T) {
	w := newTown(t, "w1", "w2", "w3")
	for i := range 20 {
		var last string
		for id, b := range w.brokers {
			placed, err := b.Place(t.Context(), named(i)())
			if err != nil {
				t.Fatalf("at %s after %s: %v", id, last, err)
			}
			m := placed.Machines[0]
			if err := destroyMachine(t.Context(), w.fleet.workers[string(m.Worker)], "a", m.ID); err != nil {
				t.Fatal(err)
			}
			last = m.ID
			huge := idle(fmt.Sprintf("one-%d", i))
			huge.SkipLaunch, huge.Config.Guest.MemoryMB = false, 1<<20
			if _, err := b.Place(t.Context(), Intent{App: "a", Launch: huge}); !fault.Is(err, fault.Exhausted) {
				t.Fatal(err)
			}
		}
	}
}

// forget has the workers forget what is destroyed, as they do when much has been destroyed since.
func (w *town) forget() {
	for _, x := range w.fleet.workers {
		x.mu.Lock()
		maps.DeleteFunc(x.rows, func(_ string, m *machine.Machine) bool { return m.State == machine.Destroyed })
		x.mu.Unlock()
	}
}

// made counts the grants that made a machine.
func (w *town) made() (n int) {
	for _, x := range w.fleet.workers {
		x.mu.Lock()
		n += len(x.granted)
		x.mu.Unlock()
	}
	return n
}

// TestUsedKeyOrIDNeverMakesASecondMachine: the machine of a key, or of a client's own id, also in a bid, is over, and no worker remembers it.
// The same create, at any member, says so, and makes no other. What made nothing may be asked for again.
func TestUsedKeyOrIDNeverMakesASecondMachine(t *testing.T) {
	w := newTown(t, "w1", "w2", "w3")
	own := idle("")
	own.ID = "0123456789abcd"
	for what, in := range map[string]Intent{"key": keyed(1)(), "own id": {App: "a", Launch: own},
		"both": {App: "a", Launch: ownLaunch("0123456789abce"), Key: "both"},
		"bid":  {App: "a", Launch: ownLaunch("0123456789abcf"), Bid: &Bid{Worker: "w2"}}} {
		before := w.made()
		placed, err := w.brokers["w1"].Place(t.Context(), in)
		if err != nil {
			t.Fatal(what, err)
		}
		m := placed.Machines[0]
		if err := destroyMachine(t.Context(), w.fleet.workers[string(m.Worker)], "a", m.ID); err != nil {
			t.Fatal(err)
		}
		w.forget()
		for id, b := range w.brokers {
			again, err := b.Place(t.Context(), in)
			if err != nil || again.Machines[0].ID != m.ID || again.Machines[0].State != machine.Destroyed {
				t.Errorf("%s: %s answers %+v, %v", what, id, again, err)
			}
		}
		if n := w.made() - before; n != 1 {
			t.Errorf("%s: %d machines were made", what, n)
		}
	}
	own.Config.Env = map[string]string{"OTHER": "1"}
	if _, err := w.brokers["w2"].Place(t.Context(), Intent{App: "a", Launch: own}); fault.CodeOf(err) != "id_taken" {
		t.Errorf("an id that was used is given to another machine: %v", err)
	}
}

func ownLaunch(id string) *machine.Launch {
	l := idle("")
	l.ID = id
	return l
}

// TestRetryOfFailedCreateReportsNoMachine: after a create whose answer was lost or was retryable, a retry reports that
// no machine was made, and why.
func TestRetryOfFailedCreateReportsNoMachine(t *testing.T) {
	w := newTown(t, "w1", "w2")
	for id, x := range w.fleet.workers {
		x.grant = func(g lifecycle.Grant) error {
			x.mu.Lock()
			defer x.mu.Unlock()
			x.rows[g.Request.Machine] = &machine.Machine{
				ID:    g.Request.Machine,
				App:   g.Request.App,
				State: machine.Destroyed,
				Worker: cluster.WorkerID(
					id,
				),
				Events: []machine.Event{{Type: machine.EventLaunchFailed, Message: "no files"}},
			}
			return fault.New(fault.Internal, "launch", "no files")
		}
	}
	own := idle("")
	own.ID = "0123456789abcd"
	for what, in := range map[string]Intent{"key": keyed(1)(), "own id": {App: "a", Launch: own}} {
		if placed, err := w.brokers["w1"].Place(t.Context(), in); !fault.Is(err, fault.Internal) {
			t.Fatalf("%s: %+v, %v", what, placed, err)
		}
		for id, b := range w.brokers {
			placed, err := b.Place(t.Context(), in)
			if fault.CodeOf(err) != machine.CodeLaunchFailed || fault.As(err).Text != "no files" {
				t.Errorf("%s: %s answers %+v, %v", what, id, placed, err)
			}
		}
	}
}

// TestKeyOfUnansweredCreateStaysOpenUntilItExpires: nobody knows what became of a create, since its member died. Its key makes the machine for
// as long as it can still be on its way, and later says that it may be over.
func TestKeyOfUnansweredCreateStaysOpenUntilItExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeFleet("w1")
		j, file := mem.New(), filepath.Join(t.TempDir(), "key")
		start := func(j *mem.Journal) *Broker {
			rows, err := catalog.Open(j, file)
			if err != nil {
				t.Fatal(err)
			}
			return New(Options{Fleet: f, Directory: f, Apps: f, Policies: f, Funds: f,
				Claims: NewClaimant("", nil, NewDecider(f, rows.Keys), f), Region: "local",
				Rand: rand.NewChaCha8([32]byte{1})})
		}
		dead := start(j)
		for _, key := range []string{"key-1", "key-2"} {
			if _, _, err := dead.claims.Key(t.Context(), cluster.Claim{App: "a", Value: key,
				Hash: hashOf(t, keyed(1)().Launch), Machine: machine.NewID(dead.rand)}); err != nil {
				t.Fatal(err)
			}
		}
		dead.Close()
		b := start(j.Reopen())
		defer b.Close()
		if placed, err := b.Place(t.Context(), keyed(1)()); err != nil || placed.Machines[0].State != machine.Created {
			t.Fatalf("%+v, %v", placed, err)
		}
		<-time.After(keyPatience + 2*time.Second)
		if _, err := b.Place(t.Context(), keyed(2)()); fault.CodeOf(err) != "key_open" {
			t.Errorf("a machine that may have run is made again: %v", err)
		}
	})
}

func hashOf(t *testing.T, l *machine.Launch) string {
	t.Helper()
	raw, err := json.Marshal(l)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

// TestRefusedCreateFreesItsKey: a create that was refused before any worker was asked leaves its key unused.
func TestRefusedCreateFreesItsKey(t *testing.T) {
	w := newTown(t, "w1")
	wrong := idle("")
	wrong.Region = "mars"
	huge := launchOf(1 << 20)
	for _, l := range []*machine.Launch{wrong, huge} {
		if _, err := w.brokers["w1"].Place(t.Context(), Intent{App: "a", Launch: l, Key: "k"}); err == nil {
			t.Fatal("it was to be refused")
		}
	}
	if _, err := w.brokers["w1"].Place(t.Context(), Intent{App: "a", Launch: idle(""), Key: "k"}); err != nil {
		t.Error(err)
	}
}

// TestTakenGeneratedNameIsDrawnAgain: if two members draw the same name at once, a create without a name of its own gets
// another one, not an error.
func TestTakenGeneratedNameIsDrawnAgain(t *testing.T) {
	w := newTown(t, "w1", "w2")
	var names []string
	for _, x := range w.fleet.workers {
		x.grant = func(g lifecycle.Grant) error {
			if names = append(names, g.Launch.Name); len(names) < 3 {
				return NameInUse(g.Launch.Name, "0123456789abcd")
			}
			return nil
		}
	}
	placed, err := w.brokers["w1"].Place(t.Context(), Intent{App: "a", Launch: idle("")})
	if err != nil || placed.Machines[0].Name != names[2] || names[0] == names[1] {
		t.Errorf("%+v, %v; the names were %v", placed, err, names)
	}
	names = nil
	if _, err := w.brokers["w1"].Place(t.Context(), Intent{App: "a", Launch: idle("mine")}); len(names) != 1 ||
		fault.CodeOf(err) != "name_taken" {
		t.Errorf("a name that was sent is asked for as %v: %v", names, err)
	}
}

// TestRetryAtSameMemberIsAnsweredWhenTheDeciderReturns: the decider cannot be reached when a create has ended, and is back. The
// same key at the same member is answered at once, with the first one's machine; it waited for two and a half minutes.
func TestRetryAtSameMemberIsAnsweredWhenTheDeciderReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTown(t, "a", "b", "c")
		for i := range 20 { // so that some key is decided at another member
			claim := func(id int) cluster.Claim {
				return cluster.Claim{App: "app", Value: fmt.Sprint("key-", i), Hash: "hash",
					Machine: fmt.Sprintf("%014x", id)}
			}
			first, release, err := w.members["a"].Key(t.Context(), claim(2*i))
			if err != nil {
				t.Fatal(err)
			}
			w.setCut(func(x, y cluster.WorkerID) bool { return x != y })
			release(cluster.MayBeMade)
			w.setCut(nil)
			began := time.Now()
			second, release, err := w.members["a"].Key(t.Context(), claim(2*i+1))
			if err != nil || second.Machine != first.Machine || time.Since(began) > time.Second {
				t.Fatalf("%+v after %v, not %+v: %v", second, time.Since(began), first, err)
			}
			release(cluster.IsMade)
		}
	})
}

func (w *town) setCut(cut func(a, b cluster.WorkerID) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = cut
}
