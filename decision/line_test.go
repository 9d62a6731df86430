package decision_test

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/decision"
	"github.com/soukhq/souk/decision/decisiontest"
)

// through writes a record with one book and reads it with another, by way of JSON.
func through(t interface {
	Helper()
	Fatal(...any)
}, w, r *decision.Book, rec cluster.Record) (cluster.Record, decision.Line) {
	t.Helper()
	line, fresh := w.Write(&rec)
	if fresh {
		raw, err := json.Marshal(line)
		if err != nil {
			t.Fatal(err)
		}
		var l decision.Line
		if err := json.Unmarshal(raw, &l); err != nil {
			t.Fatal(err)
		}
		if !r.Read(&l) {
			t.Fatal("a change of what is not there")
		}
	}
	got, ok := r.Get(rec.Worker, decision.RefOf(&rec))
	if !ok {
		t.Fatal("the reader lacks the record")
	}
	return got, line
}

func asJSON(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(raw)
}

// TestABookTellsEveryFieldOfARecord: whatever field of a record differs from the version before, the reader sees it.
// A field that was added to cluster.Record and not to diff fails here.
func TestABookTellsEveryFieldOfARecord(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	base := decisiontest.Fleet(rng, 1).Workers[0]
	base.Images, base.Backlog = []string{"x"}, 3
	typ := reflect.TypeFor[cluster.Record]()
	for i := range typ.NumField() {
		name := typ.Field(i).Name
		if name == "Worker" || name == "Incarnation" || name == "Version" {
			continue
		}
		next := base
		next.Version++
		f := reflect.ValueOf(&next).Elem().Field(i)
		if !other(f) {
			t.Fatalf("the test cannot change %s, a %v; teach it to", name, f.Type())
		}
		w, r := decision.NewBook(), decision.NewBook()
		through(t, w, r, base)
		if got, _ := through(t, w, r, next); asJSON(got) != asJSON(next) {
			t.Errorf("%s: got  %s\nwant %s", name, asJSON(got), asJSON(next))
		}
	}
}

// other sets a field to something else than it holds.
func other(f reflect.Value) bool {
	switch v := f.Addr().Interface().(type) {
	case *cluster.Resources:
		*v = v.Add(cluster.Resources{Named: map[string]int64{"x": 1}})
	case *[]cluster.GPU:
		*v = append(*v, cluster.GPU{Kind: "t4", Free: 1})
	case *[]cluster.Evictable:
		*v = append(*v, cluster.Evictable{Rank: 9})
	case *[]cluster.Requirement:
		*v = append(*v, cluster.Requirement{Attribute: "x", Op: cluster.Exists})
	case *[]cluster.Preference:
		*v = append(*v, cluster.Preference{Weight: 1, Requirement: cluster.Requirement{Attribute: "x", Op: cluster.Exists}})
	case *[]string:
		*v = append(*v, "y")
	case *map[string]int:
		*v = map[string]int{"b": 7}
	case *map[string]string:
		*v = map[string]string{"vol_9": ""}
	case *cluster.Attributes:
		*v = cluster.Attributes{"x": cluster.Number(2)}
	default:
		switch f.Kind() {
		case reflect.String:
			f.SetString(f.String() + "x")
		case reflect.Int, reflect.Int64:
			f.SetInt(f.Int() + 1)
		case reflect.Uint64:
			f.SetUint(f.Uint() + 1)
		case reflect.Bool:
			f.SetBool(!f.Bool())
		case reflect.Struct:
			f.Set(reflect.Zero(f.Type())) // a time
		default:
			return false
		}
	}
	return true
}

// TestBooksAgree: over any history of a fleet the reader's book gives the very records that the writer was given, and
// most of them are told by what differs.
func TestBooksAgree(t *testing.T) {
	whole, told := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 4))
		view := decisiontest.Fleet(rng, 1+rng.IntN(5))
		w, r := decision.NewBook(), decision.NewBook()
		for range 30 {
			for _, rec := range view.Workers {
				got, line := through(t, w, r, rec)
				if asJSON(got) != asJSON(rec) {
					t.Fatalf("got  %s\nwant %s", asJSON(got), asJSON(rec))
				}
				if line.Record != nil {
					whole++
				} else if line.Changed != nil {
					told++
				}
			}
			view = decisiontest.Age(rng, view)
		}
	})
	if told < 5*whole {
		t.Errorf("%d records were written whole and %d by what differs", whole, told)
	}
}
