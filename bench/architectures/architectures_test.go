package architectures

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/sim"
)

func TestLoadIsScaledAndSpaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "few.csv")
	text := "submit_s,tasks,duration_s\n10,2,4\n11,1,8\n14,4,2\n99,1,1\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := readLoad(path, 3, 0.5, 0)
	if err != nil {
		t.Fatal(err)
	}
	if l.name != "few" || l.tasks() != 7 || l.work() != 12 || l.cutoff != 4 {
		t.Errorf("%q: %d tasks of %g s, cutoff %g", l.name, l.tasks(), l.work(), l.cutoff)
	}
	// 12 slot seconds that are three quarters of 4 slots need 4 s. The gaps were as 1 to 3.
	want := []time.Duration{0, time.Second, 4 * time.Second}
	if got := l.space(0.75, 4); !slices.Equal(got, want) {
		t.Errorf("spaced at %v, not %v", got, want)
	}
	for _, c := range []struct{ text, want string }{
		{"submit_s,tasks,duration_s\n1,1,1\n", "1 jobs"},
		{"submit_s,tasks,duration_s\n1,20000,1.5\n2,1,1\n", ""}, // equal tasks need one duration
	} {
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := readLoad(path, 3, 1, 0)
		if got := ""; err != nil {
			if got = err.Error(); c.want == "" || !strings.Contains(got, c.want) {
				t.Errorf("%q: %s", c.text, got)
			}
		} else if c.want != "" {
			t.Errorf("%q was read", c.text)
		}
	}
}

func TestCommandSleepsAsLongAsTheTaskTakes(t *testing.T) {
	equal := job{tasks: []float64{0.5, 0.5}}
	if got := strings.Join(commandOf(&equal), " "); got != "/bin/sleep 0.5000" {
		t.Error(got)
	}
	unequal := job{tasks: []float64{0.5, 1.25}}
	if got := commandOf(&unequal); !slices.Equal(got[3:], []string{"sh", "0.5000", "1.2500"}) {
		t.Error(got)
	}
}

func TestIdleTimeIsFromASlotsEndToItsNextBeginning(t *testing.T) {
	at := func(ms int) *time.Time { return new(time.Unix(0, 0).Add(time.Duration(ms) * time.Millisecond)) }
	// two slots: 0-100, 103-200 and 0-150, 157-300; the worker between has one task only
	list := []jobs.Task{
		{Worker: "a", BeganAt: at(0), EndedAt: at(100)}, {Worker: "a", BeganAt: at(0), EndedAt: at(150)},
		{Worker: "b", BeganAt: at(1), EndedAt: at(102)},
		{Worker: "a", BeganAt: at(103), EndedAt: at(200)}, {Worker: "a", BeganAt: at(157), EndedAt: at(300)},
	}
	if got := idleBetween(list); got != 3 { // of 3 and 7, the lower by nearest rank
		t.Errorf("a slot is idle for %g ms", got)
	}
	if got := idleBetween(list[:3]); got != 0 {
		t.Errorf("without a second task a slot is idle for %g ms", got)
	}
}

func TestOrderNamesThePairsThatDiffer(t *testing.T) {
	row := func(name string, live, simulated float64) Row {
		return Row{Scheduler: name, Live: sim.Class{Mean: live}, Simulated: sim.Class{Mean: simulated}}
	}
	rows := []Row{row("a", 3, 3), row("b", 1, 1), row("c", 2, 4)}
	if got := orderText(rows); !strings.Contains(got, "b, c, a") || !strings.Contains(got, "Of 3 pairs 1 have") ||
		!strings.Contains(got, "c and a (2.000 and 3.000 live, 4.000 and 3.000 simulated)") {
		t.Error(got)
	}
	if got := orderText(rows[:2]); !strings.Contains(got, "The order is the same") {
		t.Error(got)
	}
}

func TestOptionsThatCannotBeMeasuredAreRefused(t *testing.T) {
	good := func() Options {
		return Options{Schedulers: []string{"sparrow"}, Traces: []string{"t"}, Loads: []float64{0.6}, Members: 2,
			Slots: 1, Jobs: 2, Scales: []float64{1}, Rounds: 1, Seeds: 1}
	}
	o := good()
	if err := o.Check(); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*Options){
		"no trace":          func(o *Options) { o.Traces = nil },
		"one member":        func(o *Options) { o.Members = 1 },
		"no slot":           func(o *Options) { o.Slots = 0 },
		"one job":           func(o *Options) { o.Jobs = 1 },
		"no round":          func(o *Options) { o.Rounds = 0 },
		"no seed":           func(o *Options) { o.Seeds = 0 },
		"scale 0":           func(o *Options) { o.Scales = []float64{0} },
		"too many scales":   func(o *Options) { o.Scales = []float64{1, 1} },
		"cutoff below 0":    func(o *Options) { o.Cutoff = -1 },
		"load of all slots": func(o *Options) { o.Loads = []float64{1} },
		"no load":           func(o *Options) { o.Loads = nil },
		"no such scheduler": func(o *Options) { o.Schedulers = []string{"bazaar"} },
		"number too large":  func(o *Options) { o.Schedulers = []string{"sparrow:0"} },
	} {
		o := good()
		if spoil(&o); o.Check() == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}
