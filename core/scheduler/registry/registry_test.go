package registry_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/soukhq/souk/core/scheduler"
	"github.com/soukhq/souk/core/scheduler/registry"
	"github.com/soukhq/souk/fault"
)

func TestEveryArchitectureNamesItsPaper(t *testing.T) {
	for _, a := range registry.Abouts() {
		if a.Paper == "" {
			t.Errorf("%s names no paper", a.Name)
		}
	}
}

// TestEveryBuyerIsAParty: a job is submitted at any buyer of a fleet, however many there are.
func TestEveryBuyerIsAParty(t *testing.T) {
	for _, name := range registry.Names()[1:] { // market has the number of its buyers in its name
		for _, buyers := range []int{1, 3, 12, 40} {
			s, err := registry.New(name, scheduler.Fleet{Workers: 50, Slots: 2, Buyers: buyers}, registry.Options{})
			if err != nil {
				t.Fatal(err)
			}
			p := s.Parties()
			for b := range int32(buyers) {
				for _, long := range []bool{false, true} {
					at := s.Entry(scheduler.Job{Buyer: b, Tasks: 1, Long: long})
					all := map[scheduler.Role]int{scheduler.Buyer: p.Buyers, scheduler.Center: p.Centers}
					if int(at.ID) >= all[at.Role] {
						t.Fatalf("%s: a job of buyer %d of %d comes to %v, and there are %+v", name, b, buyers, at, p)
					}
				}
			}
		}
	}
}

func TestNamesAreUniqueAndInTheOrderOfAbouts(t *testing.T) {
	names := registry.Names()
	for i, a := range registry.Abouts() {
		if names[i] != a.Name || slices.Index(names, a.Name) != i {
			t.Errorf("%d: %s and %s", i, names[i], a.Name)
		}
	}
	if names[0] != "market" {
		t.Errorf("%s comes before souk's own", names[0])
	}
}

func TestParse(t *testing.T) {
	for _, x := range []struct {
		text, name string
		n          int
		err        string
	}{
		{text: "market", name: "market"},
		{text: "market:3", name: "market", n: 3},
		{text: "sparrow:1", name: "sparrow", n: 1},
		{text: "sparrow:100000", name: "sparrow", n: 100_000},
		{text: "sparrow-cancel:8", name: "sparrow-cancel", n: 8},
		{text: "fifo", name: "fifo"},
		{text: "fifo:3", err: `fifo takes no number, and "fifo:3" has one`},
		{text: "fifo:", err: `fifo takes no number, and "fifo:" has one`},
		{text: "sparrow:0", err: `"sparrow:0" must end with the number of probes for each task, from 1 to 100000`},
		{text: "sparrow:-1", err: "must end with the number of probes"},
		{text: "sparrow:100001", err: "must end with the number of probes"},
		{text: "sparrow:99999999999999999999", err: "must end with the number of probes"},
		{text: "sparrow:x", err: "must end with the number of probes"},
		{text: "sparrow:", err: "must end with the number of probes"},
		{text: "sparrow:4:4", err: "must end with the number of probes"},
		{text: "Sparrow", err: `no scheduler is named "Sparrow"; there are market, random, `},
		{text: "nobody:3", err: `no scheduler is named "nobody"; there are market, random, `},
		{text: "", err: `no scheduler is named ""; there are market, random, `},
	} {
		a, n, err := registry.Parse(x.text)
		if a.Name != x.name || n != x.n || !isRefusal(err, x.err) {
			t.Errorf("%q: %q, %d, %v", x.text, a.Name, n, err)
		}
	}
}

func TestParseListLowersAndChecksEachName(t *testing.T) {
	for _, x := range []struct {
		names, want []string
		err         string
	}{
		{names: []string{"Sparrow:4", " market "}, want: []string{"sparrow:4", "market"}},
		{names: []string{"all"}, want: registry.Names()},
		{names: []string{"market", "sparow"}, err: `no scheduler is named "sparow"; there are market`},
		{names: []string{"market", "all"}, err: `no scheduler is named "all"`},
		{err: "no scheduler is named; there are market"},
	} {
		got, err := registry.ParseList(x.names)
		if !slices.Equal(got, x.want) || !isRefusal(err, x.err) {
			t.Errorf("%q: %q, %v", x.names, got, err)
		}
	}
}

// isRefusal reports whether an error is Invalid, about the scheduler, and has this text; nil if text is "".
func isRefusal(err error, text string) bool {
	if err == nil || text == "" {
		return err == nil && text == ""
	}
	var f *fault.Error
	return errors.As(err, &f) && f.Kind == fault.Invalid && f.Code == scheduler.CodeScheduler &&
		strings.Contains(err.Error(), text)
}

func TestNewBuildsEveryArchitecture(t *testing.T) {
	fleet := scheduler.Fleet{Workers: 12, Slots: 2, Buyers: 3}
	for _, a := range registry.Abouts() {
		names := []string{a.Name}
		if a.Number != "" {
			names = append(names, a.Name+":2")
		}
		for _, name := range names {
			for _, compat := range []bool{false, true} {
				s, err := registry.New(name, fleet, registry.Options{Compat: compat})
				if err != nil {
					t.Errorf("%s: %v", name, err)
				} else if s.Parties().Workers == 0 {
					t.Errorf("%s has no worker", name)
				}
			}
		}
	}
	if s, err := registry.New("fifo:2", fleet, registry.Options{}); s != nil || err == nil {
		t.Error(s, err)
	}
}

func TestNumberReachesTheArchitecture(t *testing.T) {
	fleet := scheduler.Fleet{Workers: 12, Slots: 1, Buyers: 10}
	for name, buyers := range map[string]int{"market": 10, "market:3": 3} {
		s, err := registry.New(name, fleet, registry.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Parties().Buyers; got != buyers {
			t.Errorf("%s has %d buyers, want %d", name, got, buyers)
		}
	}
}
