package fleet_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fleet"
)

// model is a fleet in plain maps.
type model struct {
	workers  map[cluster.WorkerID]*told
	machines map[[2]string]fleet.Machine // by id and worker
}

type told struct {
	version uint64 // 0: nothing
	region  cluster.Region
	state   cluster.MemberState
}

func (m *model) heard(id cluster.WorkerID) bool {
	w := m.workers[id]
	return w != nil && (w.state == cluster.MemberAlive || w.state == cluster.MemberSuspect)
}

// text is all that a snapshot can be asked, said by the model.
func (m *model) text() string {
	var b strings.Builder
	regions := map[cluster.Region]bool{}
	for _, id := range slices.Sorted(maps.Keys(m.workers)) {
		w := m.workers[id]
		fmt.Fprintf(&b, "%s v%d %q\n", id, w.version, w.state)
		if w.version > 0 && m.heard(id) {
			regions[w.region] = true
			fmt.Fprintf(&b, "ready %s v%d\n", id, w.version)
		}
		if w.version == 0 && w.state != cluster.MemberLeft {
			fmt.Fprintf(&b, "ask %s\n", id)
		}
	}
	fmt.Fprintf(&b, "regions %v\n", slices.Sorted(maps.Keys(regions)))
	best := map[string]fleet.Machine{}
	for k, x := range m.machines {
		old, ok := best[k[0]]
		p, q := m.heard(x.Worker), m.heard(old.Worker)
		if !ok || p && !q || p == q && (x.Updated.After(old.Updated) || x.Updated.Equal(old.Updated) &&
			x.Worker > old.Worker) {
			best[k[0]] = x
		}
	}
	for _, id := range slices.Sorted(maps.Keys(best)) {
		fmt.Fprintf(&b, "%s at %s\n", id, best[id].Worker)
	}
	byName := map[[2]string]string{}
	for _, x := range best {
		k := [2]string{x.App, x.Name}
		if old, ok := byName[k]; !ok || x.ID < old {
			byName[k] = x.ID
		}
	}
	for _, app := range []string{"a", "b"} {
		for _, name := range []string{"n", "o"} {
			fmt.Fprintf(&b, "%s/%s %s\n", app, name, byName[[2]string{app, name}])
			holders := map[string]bool{}
			for _, x := range m.machines {
				if x.App == app && x.Name == name {
					holders[x.ID] = true
				}
			}
			if len(holders) > 1 {
				fmt.Fprintf(&b, "several have it: %v\n", slices.Sorted(maps.Keys(holders)))
			}
		}
	}
	return b.String()
}

// textOf says the same of a snapshot.
func textOf(s *fleet.Snapshot) string {
	var b strings.Builder
	ready := map[cluster.WorkerID]uint64{}
	for _, w := range s.View().Workers {
		ready[w.Worker] = w.Version
	}
	ask := s.MustAsk()
	for w := range s.Workers() {
		fmt.Fprintf(&b, "%s v%d %q\n", w.ID, w.Record.Version, w.State)
		if v, ok := ready[w.ID]; ok {
			fmt.Fprintf(&b, "ready %s v%d\n", w.ID, v)
		}
		if slices.Contains(ask, w.ID) {
			fmt.Fprintf(&b, "ask %s\n", w.ID)
		}
	}
	fmt.Fprintf(&b, "regions %v\n", s.Regions())
	all := map[string]cluster.WorkerID{}
	for m := range s.AllMachines() {
		all[m.ID] = m.Worker
	}
	for _, id := range slices.Sorted(maps.Keys(all)) {
		home, _ := s.Home(id)
		if home != all[id] {
			fmt.Fprintf(&b, "%s is listed at %s\n", id, all[id])
		}
		fmt.Fprintf(&b, "%s at %s\n", id, home)
	}
	for _, app := range []string{"a", "b"} {
		for _, name := range []string{"n", "o"} {
			id := ""
			if m, ok := s.Named(app, name); ok {
				id = m.ID
			}
			fmt.Fprintf(&b, "%s/%s %s\n", app, name, id)
			if several := s.SharedNames()[fleet.Name{App: app, Name: name}]; len(several) > 0 {
				fmt.Fprintf(&b, "several have it: %v\n", several)
			}
		}
	}
	return b.String()
}

// TestSnapshotsMatchTheModelAndStayImmutable: after any changes a snapshot says what plain maps say, and one that was taken before
// still says what it said then.
func TestSnapshotsMatchTheModelAndStayImmutable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f, m := fleet.New(), &model{map[cluster.WorkerID]*told{}, map[[2]string]fleet.Machine{}}
		type moment struct {
			s    *fleet.Snapshot
			text string
		}
		var before []moment
		worker := rapid.SampledFrom([]cluster.WorkerID{"w1", "w2", "w3", "w4"})
		id := rapid.SampledFrom([]string{"m1", "m2", "m3", "m4", "m5"})
		for range rapid.IntRange(1, 40).Draw(t, "updates") {
			f.Update(func(e *fleet.Edit) {
				for range rapid.IntRange(1, 4).Draw(t, "changes") {
					change(t, e, m, worker.Draw(t, "worker"), id.Draw(t, "machine"))
				}
			})
			s := f.Snapshot()
			if got, want := textOf(s), m.text(); got != want {
				t.Fatalf("it says\n%s\nnot\n%s", got, want)
			}
			before = append(before, moment{s, m.text()})
		}
		for _, b := range before {
			if got := textOf(b.s); got != b.text {
				t.Fatalf("an older snapshot says\n%s\nnot\n%s", got, b.text)
			}
		}
	})
}

// change makes one change to both.
func change(t *rapid.T, e *fleet.Edit, m *model, w cluster.WorkerID, id string) {
	known := m.workers[w]
	if known == nil {
		known = &told{}
	}
	switch rapid.IntRange(0, 5).Draw(t, "kind") {
	case 0:
		v := uint64(rapid.IntRange(1, 20).Draw(t, "version"))
		rec := record(w, v)
		rec.Region = rapid.SampledFrom([]cluster.Region{"iad", "fra"}).Draw(t, "region")
		e.Record(rec, 1)
		if v > known.version {
			known.version, known.region = v, rec.Region
		}
		m.workers[w] = known
	case 1:
		s := rapid.SampledFrom([]cluster.MemberState{"", cluster.MemberAlive, cluster.MemberSuspect, cluster.MemberDead,
			cluster.MemberLeft}).Draw(t, "state")
		e.Member(fleet.Member{ID: w, State: s, Since: time.Unix(1, 0)})
		known.state = s
		m.workers[w] = known
	case 2, 3:
		x := fleet.Machine{ID: id, App: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "app"),
			Name:   rapid.SampledFrom([]string{"n", "o"}).Draw(t, "name"),
			Worker: w, Updated: time.Unix(int64(rapid.IntRange(1, 5).Draw(t, "at")), 0)}
		e.Machine(x)
		m.machines[[2]string{id, string(w)}] = x
		m.workers[w] = known
	case 4:
		e.Gone(w, id)
		delete(m.machines, [2]string{id, string(w)})
	case 5:
		if m.workers[w] == nil {
			return
		}
		e.Forget(w)
		delete(m.workers, w)
		maps.DeleteFunc(m.machines, func(k [2]string, _ fleet.Machine) bool { return k[1] == string(w) })
	}
}
