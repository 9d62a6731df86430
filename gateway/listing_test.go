package gateway

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/machine"
)

// someListed are machines of random ids, as a worker lists them.
func someListed(rng *rand.Rand, n int) []listed {
	out := make([]listed, 0, n)
	for range n {
		m := &machine.Machine{ID: fmt.Sprintf("%014x", rng.Uint64()>>8), UpdatedAt: "2026-11-21T12:00:00Z"}
		out = append(out, listed{m, (*plain)(m)})
	}
	return out
}

// TestFirstByID holds the choice of a page against a sort of all.
func TestFirstByID(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		all := someListed(rng, rng.IntN(60))
		n := 1 + rng.IntN(20)
		want := slices.Clone(all)
		slices.SortFunc(want, func(a, b listed) int { return cmp.Compare(a.ID, b.ID) })
		want = want[:min(n, len(want))]
		got := firstByID(all, n)
		if !slices.EqualFunc(got, want, func(a, b listed) bool { return a.Machine == b.Machine }) {
			t.Fatalf("%d of %d: %v, not %v", n, len(all), got, want)
		}
	}
}

// TestAnswerListed: what is put together of machines' JSON is what encoding/json makes of the whole.
func TestAnswerListed(t *testing.T) {
	for n := range 4 {
		list := someListed(rand.New(rand.NewPCG(3, 4)), n)
		page := api.MachinePage{Machines: []*machine.Machine{}, NextCursor: `"machines":[]`, LastMachineID: "a"}
		head, tail := around(page)
		for _, l := range list {
			page.Machines = append(page.Machines, l.Machine)
		}
		for _, c := range []struct {
			before, after string
			whole         any
		}{{"", "\n", page.Machines}, {head, tail, page}} {
			rec := httptest.NewRecorder()
			answerListed(rec, c.before, list, c.after)
			want, err := json.Marshal(c.whole)
			if err != nil || rec.Body.String() != string(want)+"\n" {
				t.Errorf("%s, not %s", rec.Body, want)
			}
			if got := rec.Header().Get("Content-Length"); got != fmt.Sprint(rec.Body.Len()) {
				t.Errorf("the length is %s, of %d", got, rec.Body.Len())
			}
		}
	}
}
