package accounts_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/soukhq/souk/core/accounts"
)

var today = time.Date(2026, 11, 29, 23, 0, 0, 0, time.UTC)

func TestDaysAreOfUTC(t *testing.T) {
	for at, want := range map[time.Time]string{
		time.Date(2026, 11, 29, 23, 59, 59, 999999999, time.UTC):                    "2026-11-29",
		time.Date(2026, 11, 30, 0, 30, 0, 0, time.FixedZone("east", 3600)):          "2026-11-29",
		time.Date(1969, 12, 31, 23, 59, 59, 0, time.UTC):                            "1969-12-31",
		time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC):                                 "1970-01-01",
		time.Date(2024, 2, 29, 12, 0, 0, 0, time.UTC).Add(365 * 24 * 2 * time.Hour): "2026-02-28",
	} {
		d := accounts.DayOf(at)
		if again, err := accounts.ParseDay(d.String()); d.String() != want || err != nil || again != d {
			t.Errorf("%v is of the day %v and is read as %v: %v; want %s", at, d, again, err, want)
		}
	}
	if _, err := accounts.ParseDay("yesterday"); err == nil {
		t.Error("a word is read as a day")
	}
}

// TestLedgerLosesAndDoublesNothing: in any order of additions, of writes and of restarts, a ledger's entries add up to what
// was added, no day has more than its bound, and what was written is what is there.
func TestLedgerLosesAndDoublesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b, journal := accounts.NewLedger(), map[string][]byte{}
		var want accounts.Sums
		number := rapid.Int64Range(0, 1<<40)
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				k := accounts.Key{Day: accounts.DayOf(today) - accounts.Day(rapid.IntRange(0, 2).Draw(t, "day")),
					Namespace: rapid.SampledFrom([]string{"", "ml", "web"}).Draw(t, "namespace"),
					Owner:     rapid.StringMatching(`[a-d][a-h]`).Draw(t, "owner"), Unix: rapid.Bool().Draw(t, "unix")}
				s := accounts.Sums{Jobs: number.Draw(t, "jobs"), CoreUS: number.Draw(t, "core"),
					CPUUS: number.Draw(t, "cpu"), Waited: number.Draw(t, "waited")}
				b.Add(k, &s)
				want.Add(&s, 1)
			},
			"write": func(t *rapid.T) { write(t, b, journal) },
			"restart": func(t *rapid.T) {
				write(t, b, journal)
				b = read(t, journal)
			},
			"prune": func(*rapid.T) { b.Prune(today) },
			"": func(t *rapid.T) {
				total, days := accounts.Total{}, map[accounts.Day]int{}
				b.AddTo(total, 0)
				var got accounts.Sums
				for _, e := range total.Entries() {
					got.Add(&e.Sums, 1)
					days[e.Day]++
				}
				if got != want {
					t.Fatalf("the entries add up to %+v, and %+v was added", got, want)
				}
				for d, n := range days {
					if n > accounts.MaxOwners+1 {
						t.Fatalf("%s has %d entries", d, n)
					}
				}
			},
		})
		write(t, b, journal)
		before, after := accounts.Total{}, accounts.Total{}
		b.AddTo(before, 0)
		read(t, journal).AddTo(after, 0)
		if diff := cmp.Diff(before.Entries(), after.Entries()); diff != "" {
			t.Fatalf("a restart changes the ledger: %s", diff)
		}
	})
}

type fataler interface{ Fatal(...any) }

func write(t fataler, b *accounts.Ledger, journal map[string][]byte) {
	for _, c := range b.Changes() {
		if c.Entry == nil {
			delete(journal, c.Name)
			continue
		}
		raw, err := json.Marshal(c.Entry)
		if err != nil {
			t.Fatal(err)
		}
		journal[c.Name] = raw
	}
}

func read(t fataler, journal map[string][]byte) *accounts.Ledger {
	b := accounts.NewLedger()
	for _, raw := range journal {
		var e accounts.Entry
		if err := json.Unmarshal(raw, &e); err != nil {
			t.Fatal(err)
		}
		b.Restore(&e)
	}
	return b
}

func TestOldDaysAreRemoved(t *testing.T) {
	b, journal := accounts.NewLedger(), map[string][]byte{}
	for _, ago := range []int{0, accounts.KeptDays, accounts.KeptDays + 1, -accounts.KeptDays - 1} {
		b.Add(accounts.Key{Day: accounts.DayOf(today) - accounts.Day(ago), Owner: "ada"}, &accounts.Sums{Jobs: 1})
	}
	write(t, b, journal)
	b.Prune(today)
	write(t, b, journal)
	total := accounts.Total{}
	b.AddTo(total, 0)
	if n := len(total.Entries()); n != 2 || len(journal) != 2 {
		t.Errorf("%d entries are kept, and %d in the journal; want 2", n, len(journal))
	}
}

func TestOwnersBeyondTheBoundAreAddedUp(t *testing.T) {
	b := accounts.NewLedger()
	for i := range accounts.MaxOwners + 10 {
		b.Add(accounts.Key{Owner: "owner", Unix: true, UID: uint32(i)}, &accounts.Sums{Jobs: 1})
	}
	total := accounts.Total{}
	b.AddTo(total, 0)
	s := total[accounts.Key{Owner: accounts.Others}]
	if s == nil || s.Jobs != 10 || len(total) != accounts.MaxOwners+1 {
		t.Errorf("%d entries, and the others' is %+v", len(total), s)
	}
}
