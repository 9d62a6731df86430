package lifecycle_test

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/soukhq/souk/core/fsm"
	"github.com/soukhq/souk/core/lifecycle"
)

// TestCorruptJournalValuesNeverPanic stops souk somewhere in a scenario, changes one value in one record of the journal, and
// starts it again: the record is refused, or souk works. It never panics, whatever then ends, comes due or is asked
// for.
func TestCorruptJournalValuesNeverPanic(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	all, refused := scenarios(), 0
	const rounds = 3000
	for range rounds {
		sc := all[rng.IntN(len(all))]
		d := playTo(sc, 1+rng.IntN(20))
		d.w.anyAck, d.crashAt = true, 0
		keys := slices.Sorted(maps.Keys(d.w.journal))
		if len(keys) == 0 {
			continue
		}
		rec := d.w.journal[keys[rng.IntN(len(keys))]]
		was := string(rec.Value)
		rec.Value = damage(rng, rec.Value)
		d.w.journal[rec.Bucket+"\x00"+rec.Key] = rec
		if !survives(t, sc, d, rec, was) {
			refused++
		}
	}
	if refused == 0 || refused > rounds/2 {
		t.Errorf("%d of %d were refused: the draws are poor", refused, rounds)
	}
}

// survives reports whether souk starts from the journal; then it does whatever there is to do.
func survives(t *testing.T, sc scenario, d *driver, rec fsm.Record, was string) bool {
	defer func() {
		if p := recover(); p != nil {
			t.Fatalf("%s: %v\nfor %s %s\nwas %s\nis  %s", sc.name, p, rec.Bucket, rec.Key, was, rec.Value)
		}
	}()
	d.w.violations = nil
	if d.boot(); slices.ContainsFunc(d.w.violations, func(v string) bool { return strings.HasPrefix(v, "restore: ") }) {
		return false
	}
	d.settle(time.Minute)
	for _, id := range []string{m1, v1, v2} {
		d.end(id, 1)
	}
	d.settle(26 * time.Hour)
	d.take(d.sup.Audit(d.now, d.now, d.w.lives()))
	for _, v := range []lifecycle.Verb{lifecycle.Start, lifecycle.Stop, lifecycle.Update} {
		c := lifecycle.Command{Verb: v, App: "app", Machine: m1}
		if v == lifecycle.Update {
			newConfig(false)(&c)
		}
		d.do(c)
		d.settle(time.Minute)
	}
	d.clear()
	return true
}

// damage returns a record's value with something in it changed, as JSON that reads.
func damage(rng *rand.Rand, value []byte) []byte {
	var v any
	if json.Unmarshal(value, &v) != nil {
		return value
	}
	b, err := json.Marshal(change(rng, v))
	if err != nil {
		return value
	}
	return b
}

func change(rng *rand.Rand, v any) any {
	odd := []any{nil, -1, 0, 1, 70, -9e18, 9e18, "", "x", m1, v1, "created", true, []any{}, map[string]any{},
		"2026-11-21T11:59:59Z", "0001-01-01T00:00:00Z"}
	if rng.IntN(4) > 0 { // deeper, where there is something
		switch v := v.(type) {
		case map[string]any:
			if keys := slices.Sorted(maps.Keys(v)); len(keys) > 0 {
				k := keys[rng.IntN(len(keys))]
				v[k] = change(rng, v[k])
				return v
			}
		case []any:
			if len(v) > 0 {
				i := rng.IntN(len(v))
				v[i] = change(rng, v[i])
				return v
			}
		case float64:
			return []any{-v - 1, v + 1, -5, 1e6}[rng.IntN(4)]
		}
	}
	return odd[rng.IntN(len(odd))]
}
