package broker

import (
	"testing"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
)

// tell has the fleet know of the keys that workers have told of; the others' are found when these are asked, but for
// those of silent ones.
func (w *town) tell(told func(cluster.WorkerID) bool, silent cluster.WorkerID) {
	w.fleet.keyed = func(hash string, ask bool) (*Keyed, error) {
		for id, x := range w.fleet.workers {
			x.mu.Lock()
			for _, m := range x.rows {
				id := cluster.WorkerID(id)
				if m.KeyMark.Key() == hash && (told(id) || ask && id != silent) {
					x.mu.Unlock()
					return &Keyed{Machine: m.ID, Mark: m.KeyMark}, nil
				}
			}
			x.mu.Unlock()
		}
		if ask && silent != "" {
			return nil, fault.New(fault.Unavailable, CodeGone, "worker %s cannot be reached", silent)
		}
		return nil, nil
	}
}

// TestKeyDecidedByADeadMemberFindsItsMachine: a member dies that has decided about keys and has machines of them. Each key asked for again at
// another member answers its machine, or says that it is open, whether or not the workers had told of it; none makes
// another. A key that its client has just drawn is decided at once.
func TestKeyDecidedByADeadMemberFindsItsMachine(t *testing.T) {
	for name, told := range map[string]func(cluster.WorkerID) bool{
		"all told":  func(cluster.WorkerID) bool { return true },
		"none told": func(cluster.WorkerID) bool { return false },
	} {
		w := newTown(t, "w1", "w2", "w3")
		first := map[int]string{}
		for i := range 90 {
			placed, err := w.brokers["w3"].Place(t.Context(), keyed(i)())
			if err != nil {
				t.Fatal(err)
			}
			first[i] = placed.Machines[0].ID
		}
		w.setCut(func(a, b cluster.WorkerID) bool { return a == "w3" || b == "w3" })
		w.tell(told, "w3")
		open := 0
		for i, id := range first {
			for _, at := range []cluster.WorkerID{"w1", "w2"} {
				placed, err := w.brokers[at].Place(t.Context(), keyed(i)())
				switch {
				case fault.CodeOf(err) == "key_open" && fault.Is(err, fault.Unavailable):
					open++
				case err != nil:
					t.Error(err)
				case placed.Machines[0].ID != id:
					t.Errorf("%s: key %d has machine %s, and %s at %s", name, i, id, placed.Machines[0].ID, at)
				}
			}
		}
		if n := w.made(); n < 90 || distinct(w) != 90 {
			t.Errorf("%s: %d machines for 90 keys", name, distinct(w))
		}
		if (open > 0) != (name == "none told") {
			t.Errorf("%s: %d answers are open", name, open)
		}
		for i := range 30 {
			in := keyed(1000 + i)()
			in.NewKey = true
			if _, err := w.brokers["w1"].Place(t.Context(), in); err != nil {
				t.Errorf("%s: a new key: %v", name, err)
			}
		}
	}
}

func distinct(w *town) (n int) {
	for _, x := range w.fleet.workers {
		x.mu.Lock()
		n += len(x.rows)
		x.mu.Unlock()
	}
	return n
}

// TestKeyWithNewDeciderFindsItsMachine: a new decider of a key finds the key's machine by the worker's record while
// the key is valid, and refuses another request with it.
func TestKeyWithNewDeciderFindsItsMachine(t *testing.T) {
	w := newTown(t, "w1", "w2", "w3")
	w.setCut(func(a, b cluster.WorkerID) bool { return a == "w3" || b == "w3" })
	first := map[int]string{}
	for i := range 30 {
		placed, err := w.brokers["w1"].Place(t.Context(), keyed(i)())
		if err != nil {
			t.Fatal(err)
		}
		first[i] = placed.Machines[0].ID
	}
	w.setCut(nil)
	w.tell(func(cluster.WorkerID) bool { return true }, "")
	for i, id := range first {
		if placed, err := w.brokers["w2"].Place(t.Context(), keyed(i)()); err != nil || placed.Machines[0].ID != id {
			t.Errorf("key %d: %+v, %v; it has machine %s", i, placed, err, id)
		}
		other := keyed(i)()
		other.Launch.Config.Env = map[string]string{"OTHER": "1"}
		if _, err := w.brokers["w2"].Place(t.Context(), other); fault.CodeOf(err) != "idempotency_key" {
			t.Errorf("key %d of another request: %v", i, err)
		}
	}
	old := cluster.MarkKey("a", "old", hashOf(t, keyed(0)().Launch), time.Now().Add(-25*time.Hour))
	w.fleet.keyed = func(string, bool) (*Keyed, error) { return &Keyed{Machine: "0123456789abcd", Mark: old}, nil }
	in := keyed(0)()
	in.Key = "old"
	if placed, err := w.brokers["w1"].Place(t.Context(), in); err != nil || placed.Machines[0].ID == "0123456789abcd" {
		t.Errorf("a key that is over: %+v, %v", placed, err)
	}
}
