package gateway

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/fleet/find"
	"github.com/soukhq/souk/machine"
)

// someListed are machines of random ids, as a worker lists them.
func someListed(rng *rand.Rand, n int) []find.Listed {
	out := make([]find.Listed, 0, n)
	for range n {
		m := &machine.Machine{ID: fmt.Sprintf("%014x", rng.Uint64()>>8), UpdatedAt: "2026-11-21T12:00:00Z"}
		out = append(out, find.Listed{Machine: m, Text: (*find.Plain)(m)})
	}
	return out
}

// TestPageTakesTheLowestIDs holds the choice of a page against a sort of all.
func TestPageTakesTheLowestIDs(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		all := someListed(rng, rng.IntN(60))
		n := 1 + rng.IntN(20)
		want := slices.Clone(all)
		slices.SortFunc(want, func(a, b find.Listed) int { return cmp.Compare(a.ID, b.ID) })
		want = want[:min(n, len(want))]
		got := firstByID(all, n)
		if !slices.EqualFunc(got, want, func(a, b find.Listed) bool { return a.Machine == b.Machine }) {
			t.Fatalf("%d of %d: %v, not %v", n, len(all), got, want)
		}
	}
}

// TestListedJSONMatchesEncodingJSON: what is put together of machines' JSON is what encoding/json makes of the whole.
func TestListedJSONMatchesEncodingJSON(t *testing.T) {
	for n := range 4 {
		list := someListed(rand.New(rand.NewPCG(3, 4)), n)
		page := api.MachinePage{Machines: []*machine.Machine{}, NextCursor: `"machines":[]`, LastMachineID: "a"}
		head, tail := splitAround(page)
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

// TestMachineLinesAreFilteredPagedAndOrdered: machines of all apps in one line each, filtered and in pages, in the order of their ids.
func TestMachineLinesAreFilteredPagedAndOrdered(t *testing.T) {
	s := newShop(t, newMemWorker("w1", "iad", room), newMemWorker("w2", "fra", room)).open()
	var ids []string
	for _, name := range []string{"one", "two", "three"} {
		region := map[bool]string{true: "fra", false: "iad"}[name == "two"]
		ids = append(ids, s.launch(fmt.Sprintf(`{"name":%q,"region":%q,"config":{"image":"demo:1","init":{"exec":["sleep","9"]}}}`, name, region)).ID)
	}
	slices.Sort(ids)
	lines := func(query string) (names, got []string, next string) {
		t.Helper()
		var page api.MachineLines
		if err := json.Unmarshal([]byte(s.want(200, "GET", "/v1/souk/machines"+query, nil).raw), &page); err != nil {
			t.Fatal(err)
		}
		for _, l := range page.Machines {
			if l.App != "a" || l.State != machine.Started || l.Command != "demo:1 sleep 9" || l.Worker == "" ||
				l.CreatedAt == "" {
				t.Errorf("%+v", l)
			}
			names, got = append(names, l.Name), append(got, l.ID)
		}
		return names, got, page.NextCursor
	}
	if _, got, next := lines(""); !slices.Equal(got, ids) || next != "" {
		t.Errorf("%v, next %q, not %v", got, next, ids)
	}
	if _, got, next := lines("?limit=2"); !slices.Equal(got, ids[:2]) || next != ids[1] {
		t.Errorf("%v, next %q", got, next)
	}
	if _, got, next := lines("?limit=2&cursor=" + ids[1]); !slices.Equal(got, ids[2:]) || next != "" {
		t.Errorf("%v, next %q", got, next)
	}
	for query, want := range map[string][]string{"?name=two": {"two"}, "?region=fra": {"two"},
		"?app=a&name=one": {"one"}, "?name=tw": nil} {
		if names, _, _ := lines(query); !slices.Equal(names, want) {
			t.Errorf("%s: %v, not %v", query, names, want)
		}
	}
	s.want(404, "GET", "/v1/souk/machines?app=nope", nil)
	s.want(400, "GET", "/v1/souk/machines?limit=0", nil)
	s.want(400, "GET", "/v1/souk/machines?include_deleted=maybe", nil)
}

const smallPage = 1 << 20 // bytes

// launchLarge makes n machines whose configs have one and a quarter pages together.
func launchLarge(t *testing.T, n int) *shop {
	t.Helper()
	s := newShop(t, newMemWorker("w1", "local", cluster.Resources{CPU: 1 << 20, Memory: 1 << 20, Disk: 1 << 20})).open()
	s.with(func(o *Options) { o.PageBytes = smallPage })
	launch := &machine.Launch{Config: &machine.Config{Image: "demo:1",
		Env: map[string]string{"LARGE": strings.Repeat("x", smallPage*5/4/n)}}}
	body, err := json.Marshal(launch)
	if err != nil {
		t.Fatal(err)
	}
	for range n {
		s.launch(string(body))
	}
	return s
}

// TestAppMachineListIsBoundedInBytes: pages of an app's machines are arrays that name the next; the plain list has all, or
// is refused where that is too much, and never a part.
func TestAppMachineListIsBoundedInBytes(t *testing.T) {
	const n = 40
	s := launchLarge(t, n)
	seen, query, pages := map[string]int{}, "?limit=1000", 0
	for next := "first"; next != ""; pages++ {
		r := s.want(200, "GET", "/v1/apps/a/machines"+query, nil)
		if size := len(r.raw); size > smallPage+smallPage/16 {
			t.Fatalf("a page has %d bytes", size)
		}
		var page []machine.Machine
		r.into(t, &page)
		for _, m := range page {
			seen[m.ID]++
		}
		next = r.header.Get(api.NextCursorHeader)
		query = "?cursor=" + next
	}
	if len(seen) != n || pages != 2 {
		t.Errorf("%d machines on %d pages", len(seen), pages)
	}
	for id, times := range seen {
		if times != 1 {
			t.Errorf("machine %s is on %d pages", id, times)
		}
	}
	var list []machine.Machine
	r := s.want(200, "GET", "/v1/apps/a/machines?summary=false", nil)
	if r.into(t, &list); len(list) != n || r.header.Get(api.NextCursorHeader) != "" {
		t.Errorf("the plain list has %d of %d machines, and goes on at %q", len(list), n,
			r.header.Get(api.NextCursorHeader))
	}
	all := someListed(rand.New(rand.NewPCG(5, 6)), 10)
	one, err := all[0].Text.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	if err := refuseTooLarge(all, 10*len(one)); err != nil {
		t.Error(err)
	}
	if err := refuseTooLarge(all, 10*len(one)-1); !fault.Is(err, fault.Invalid) {
		t.Errorf("a list that is too large: %v", err)
	}
}

// TestPageIsBoundedInBytes: machines with large configs fill a page before its limit does, and the next page goes on
// after them.
func TestPageIsBoundedInBytes(t *testing.T) {
	const n = 40
	s := launchLarge(t, n)
	seen, query := map[string]bool{}, "?limit=1000"
	for pages := 1; ; pages++ {
		got := s.want(200, "GET", "/v1/orgs/personal/machines"+query, nil)
		if size := len(got.raw); size > smallPage+smallPage/16 {
			t.Fatalf("a page has %d bytes", size)
		}
		var page api.MachinePage
		got.into(t, &page)
		for _, m := range page.Machines {
			seen[m.ID] = true
		}
		if query = "?limit=1000&cursor=" + page.NextCursor; page.NextCursor == "" {
			if len(seen) != n || pages < 2 {
				t.Errorf("%d machines on %d pages, want %d on more than one", len(seen), pages, n)
			}
			return
		}
	}
}
