package decision_test

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/decision"
	"github.com/soukhq/souk/core/decision/decisiontest"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/machine"
)

// through tells a record and reads it into a records, by way of JSON.
func through(t interface {
	Helper()
	Fatal(...any)
}, w *decision.LineEncoder, r *decision.RecordCache, rec cluster.Record) (cluster.Record, decision.Line) {
	t.Helper()
	line, fresh := w.Line(&rec)
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

// TestRecordDiffCoversEveryField: whatever field of a record differs from the version before, the reader sees it.
// A field that was added to cluster.Record and not to diff fails here.
func TestRecordDiffCoversEveryField(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	base := decisiontest.Fleet(rng, 1).Workers[0]
	base.Images, base.Backlog = []string{"x"}, 3
	typ := reflect.TypeFor[cluster.Record]()
	for i := range typ.NumField() {
		name := typ.Field(i).Name
		switch name {
		case "Worker", "Incarnation", "Version":
			continue
		case "Spending", "Tasks", "Wanted": // no judge reads them, and they are left out
			continue
		}
		next := base
		next.Version++
		f := reflect.ValueOf(&next).Elem().Field(i)
		if !other(f) {
			t.Fatalf("the test cannot change %s, a %v; teach it to", name, f.Type())
		}
		w, r := decision.NewLineEncoder(), decision.NewRecordCache()
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
	case *[]cluster.Full:
		*v = append(*v, cluster.Full{App: "b", Machines: 9})
	case *[]cluster.Requirement:
		*v = append(*v, cluster.Requirement{Attribute: "x", Op: cluster.Exists})
	case *[]cluster.Preference:
		*v = append(*v, cluster.Preference{Weight: 1, Requirement: cluster.Requirement{Attribute: "x",
			Op: cluster.Exists}})
	case *[]string:
		*v = append(*v, "y")
	case *map[string]int:
		*v = map[string]int{"b": 7}
	case *map[string]string:
		*v = map[string]string{"vol_9": ""}
	case **cluster.Cordon:
		*v = &cluster.Cordon{Owner: "x"}
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

// TestReaderCacheRebuildsTheWrittenRecords: over any history of a fleet the reader's records gives the very records that the writer was given,
// and most of them are told by what differs.
func TestReaderCacheRebuildsTheWrittenRecords(t *testing.T) {
	whole, told := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 4))
		view := decisiontest.Fleet(rng, 1+rng.IntN(5))
		w, r := decision.NewLineEncoder(), decision.NewRecordCache()
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

// TestAppendLineMatchesEncodingJSON: AppendLine gives the very bytes of encoding/json, whatever the line holds.
func TestAppendLineMatchesEncodingJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 6))
		view := decisiontest.Fleet(rng, rng.IntN(90))
		now := decisiontest.Age(rng, view)
		r := decisiontest.Request(rng, view)
		if rng.IntN(2) == 0 { // the plain kind, which is written by hand
			r.Scheduling, r.Fleet = machine.Scheduling{}, placement.Fleet{}
		}
		if rng.IntN(8) == 0 {
			r.App, r.Resources.Named = "<&\"\u00e9\u2028\x00", map[string]int64{"b": 1, "a": 2}
		}
		if rng.IntN(8) == 0 {
			r.Publish = []machine.Publish{{Address: "192.0.2.1", HostPort: 81, Port: 80}, {Protocol: "udp"}}
		}
		b, err := decisiontest.Buy(rng, r, view, now, placement.Default())
		d := decision.From(decision.Observation{ID: "X", At: decisiontest.Epoch().Add(time.Duration(rng.Int64N(1e12))),
			Why: decision.Create, Purchase: b.Purchase(), Err: err,
			Asked: []float64{rng.Float64() * 1e-7, rng.Float64(), 3}, Took: decision.Timings{View: rng.ExpFloat64(),
				Rank: 1e-9, Total: 1e22}})
		if rng.IntN(4) == 0 {
			d.Considered, d.Evaluated, d.Candidates, d.Request.Start = nil, 3, 4, false
			d.Evictions, d.Holds, d.Shadow = []decision.Preempted{{Machine: "m"}}, []decision.Hold{{Worker: "w"}},
				&machine.Shadow{Policy: "p"}
		}
		lines := []decision.Line{{Decision: d}, {}, {End: &decision.End{App: "a"}}}
		teller := decision.NewLineEncoder()
		for _, v := range []cluster.View{view, now} {
			for i := range v.Workers {
				if l, fresh := teller.Line(&v.Workers[i]); fresh {
					lines = append(lines, l)
				}
			}
		}
		for i := range lines {
			want, err := json.Marshal(lines[i])
			if err != nil {
				t.Fatal(err)
			}
			got, err := decision.AppendLine([]byte("x"), &lines[i])
			if err != nil || string(got[1:]) != string(want) {
				t.Fatalf("%v\ngot  %s\nwant %s", err, got[1:], want)
			}
		}
	})
}

func BenchmarkDecisionLine(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 7))
	view := decisiontest.Fleet(rng, 10)
	r := placement.Request{App: "a", Machine: "d891275c2e5118", Start: true,
		Resources: cluster.Resources{CPU: 62, Memory: 256}}
	buyer, err := decisiontest.Buy(rng, r, view, view, placement.Default())
	d := decision.From(decision.Observation{ID: "01M7Z6Z6JVTGHP383SEQVSDTA6", At: decisiontest.Epoch(),
		Purchase: buyer.Purchase(), Err: err})
	var buf []byte
	b.Run("AppendLine", func(b *testing.B) {
		for b.Loop() {
			buf, _ = decision.AppendLine(buf[:0], &decision.Line{Decision: d})
		}
		b.SetBytes(int64(len(buf)))
	})
	b.Run("encoding/json", func(b *testing.B) {
		for b.Loop() {
			raw, _ := json.Marshal(&decision.Line{Decision: d})
			b.SetBytes(int64(len(raw)))
		}
	})
}

// TestAppendLineWritesEveryField: with every field set AppendLine writes what encoding/json writes; a field that is
// added to a record and not to AppendLine fails here.
func TestAppendLineWritesEveryField(t *testing.T) {
	var d decision.Decision
	var c decision.Changed
	fill(reflect.ValueOf(&d).Elem())
	var rec cluster.Record
	fill(reflect.ValueOf(&c).Elem())
	fill(reflect.ValueOf(&rec).Elem())
	d.At, c.At, rec.At = decisiontest.Epoch(), decisiontest.Epoch(), decisiontest.Epoch()
	for _, l := range []decision.Line{{Decision: &d}, {Changed: &c}, {Record: &rec}} {
		got, err := decision.AppendLine(nil, &l)
		if err != nil || string(got) != asJSON(l) {
			t.Errorf("%v\ngot  %s\nwant %s", err, got, asJSON(l))
		}
	}
}

// fill sets all that is exported to something that is not zero.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				fill(v.Field(i))
			}
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(v.Index(0))
		fill(v.Index(1))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		e := reflect.New(v.Type().Elem()).Elem()
		fill(e)
		v.SetMapIndex(reflect.ValueOf("k").Convert(v.Type().Key()), e)
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(7)
	case reflect.Uint64:
		v.SetUint(7)
	case reflect.Float64:
		v.SetFloat(1.5)
	}
}
