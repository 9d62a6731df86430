package trace_test

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/soukhq/souk/core/decision"
	"github.com/soukhq/souk/core/decision/decisiontest"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/sim/trace"
	"github.com/soukhq/souk/store/decisionlog"
)

// TestDecisionLogReadsAsATrace writes a log as souk does, and reads it as a trace: the folder, one file, and a torn one.
func TestDecisionLogReadsAsATrace(t *testing.T) {
	dir := t.TempDir()
	l, err := decisionlog.Open(decisionlog.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	view := decisiontest.Fleet(rng, 10)
	at := decisiontest.Epoch()
	for i := range 100 {
		r := decisiontest.Request(rng, view)
		b, err := decisiontest.Buy(rng, r, view, view, placement.Default())
		l.Append(decision.From(decision.Observation{ID: "X", At: at.Add(time.Duration(i) * time.Second),
			Purchase: b.Purchase(), Err: err}))
		if i%2 == 0 {
			l.End(decision.End{App: r.App, Machine: r.Machine, At: at.Add(time.Duration(i+5) * time.Second)})
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	names, err := decisionlog.Files(dir)
	if err != nil || len(names) != 1 {
		t.Fatal(names, err)
	}
	for _, path := range []string{dir, names[0]} {
		src, c, err := trace.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		in, err := trace.Scan(src, 0)
		if err != nil || in.Jobs != 100 || in.First != 0 || in.Last != 99 || in.SlotSeconds <= 250 {
			t.Errorf("%s: %+v, %v", path, in, err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	raw, err := os.ReadFile(names[0])
	if err != nil {
		t.Fatal(err)
	}
	torn := filepath.Join(t.TempDir(), filepath.Base(names[0]))
	for name, bytes := range map[string][]byte{"torn": raw[:len(raw)-100], "spoilt": spoilt(raw)} {
		if err := os.WriteFile(torn, bytes, 0o600); err != nil {
			t.Fatal(err)
		}
		src, c, err := trace.Open(torn)
		if err != nil {
			t.Fatal(err)
		}
		in, err := trace.Scan(src, 0)
		if name == "torn" && (err != nil || in.Jobs > 100) || name == "spoilt" && !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %+v, %v", name, in, err)
		}
		c.Close()
	}
}

func spoilt(raw []byte) []byte {
	out := append([]byte{}, raw...)
	out[len(out)/2] ^= 4
	return out
}

// TestDecisionBecomesOneArrival holds one arrival: when, for how long, and what.
func TestDecisionBecomesOneArrival(t *testing.T) {
	dir := t.TempDir()
	l, err := decisionlog.Open(decisionlog.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	r := placement.Request{App: "a", Machine: "m"}
	r.Resources.CPU, r.Scheduling.Band = 500, "batch"
	l.Append(&decision.Decision{At: decisiontest.Epoch(), Request: r})
	l.End(decision.End{App: "a", Machine: "m", At: decisiontest.Epoch().Add(7 * time.Second)})
	r.Machine, r.Scheduling.Band = "n", ""
	l.Append(&decision.Decision{At: decisiontest.Epoch().Add(9 * time.Second), Request: r})
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	names, _ := decisionlog.Files(dir)
	f, _, err := trace.OpenFile(names[0])
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got, err := trace.ReadDecisions("x", f)
	if err != nil || len(got) != 2 || got[0].Duration != 7 || got[0].Open || !got[0].Batch || got[0].Want.CPU != 500 ||
		got[1].Submit != 9 || !got[1].Open || got[1].Batch {
		t.Errorf("%+v %v", got, err)
	}
}
