package sim_test

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/core/scheduler"
	"github.com/soukhq/souk/core/scheduler/registry"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/sim"
	"github.com/soukhq/souk/sim/slots"
)

// report is everything that a comparison of all schedulers says, but for the processor time.
func report(t testing.TB) []byte {
	t.Helper()
	var rows []sim.Summary
	for _, name := range registry.Names() {
		s, err := sim.Each(generated("cloudera", 60, 80), sim.Setup{Scheduler: name, Workers: 20, Slots: 4, Reserve: 10,
			Options: slots.Options{Cutoff: 200, Error: 0.2, Slowing: scheduler.Slowing{Beside: 0.1, Uneven: 0.5},
				Think: [2]slots.Think{{PerTask: 10}, {PerJob: 1000}}}}, 2, nil)
		if err != nil {
			t.Fatal(err)
		}
		s.CPU = 0
		rows = append(rows, s)
	}
	text, err := json.MarshalIndent(rows, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestHelperWritesAReport writes the report where SOUK_TEST_REPORT says: it is how the next test runs it in another build.
func TestHelperWritesAReport(t *testing.T) {
	path := os.Getenv("SOUK_TEST_REPORT")
	if path == "" {
		t.Skip("only for TestLongRaceDetectorChangesNoResult, which sets SOUK_TEST_REPORT")
	}
	if err := os.WriteFile(path, report(t), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestLongRaceDetectorChangesNoResult builds the simulator with the race detector, another compiler pipeline, and compares
// what it reports, hashes of all events and all, with what this build reports. SOUK_TEST_TOOLCHAIN=go1.N.P does it with
// another Go.
func TestLongRaceDetectorChangesNoResult(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report.json")
	args := []string{"test", "-race", "-count=1", "-run", "^TestHelperWritesAReport$", "."}
	cmd := exec.Command("go", args...)
	cmd.Env = append(os.Environ(), "SOUK_TEST_REPORT="+path)
	if v := os.Getenv("SOUK_TEST_TOOLCHAIN"); v != "" {
		cmd.Env = append(cmd.Env, "GOTOOLCHAIN="+v)
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if want := report(t); string(got) != string(want) {
		t.Errorf("the other build reports\n%s\nand this one\n%s", got, want)
	}
}

// TestEventHashTellsRunsApart: the hash tells runs apart that a report of rounded figures might not, and is the same for the same.
func TestEventHashTellsRunsApart(t *testing.T) {
	hash := func(scheduler string, seed uint64) sim.Hash {
		s, err := sim.Each(generated("yahoo", 100, 100), sim.Setup{Scheduler: scheduler, Workers: 100,
			Options: slots.Options{Cutoff: 90, Seed: seed}}, 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		return s.Hash
	}
	seen := map[sim.Hash]string{}
	for _, name := range registry.Names() {
		a, b := hash(name, 1), hash(name, 1)
		if a != b {
			t.Errorf("%s: one seed, hashes %x and %x", name, a, b)
		}
		if hash(name, 2) == a {
			t.Errorf("%s: two seeds, one hash", name)
		}
		if other := seen[a]; other != "" && !slices.Contains([]string{"monolithic", "multipath"}, name) {
			// these are fifo without decision times
			t.Errorf("%s and %s have one hash", name, other)
		}
		seen[a] = name
	}
	text, err := json.Marshal(sim.Hash(10))
	if err != nil || string(text) != `"000000000000000a"` {
		t.Error(string(text), err)
	}
}

// TestLongSubscoresRecompute: of a million scored candidates of 250,000 placements, what was stored (some through JSON)
// recomputes to the decision: every subscore adds up, the policy scores the same again, and the first candidate is the
// best that fits.
func TestLongSubscoresRecompute(t *testing.T) { subscoresRecompute(t, 250_000) }

// TestSubscoresRecompute does it for 20,000 placements.
func TestSubscoresRecompute(t *testing.T) { subscoresRecompute(t, 20_000) }

func subscoresRecompute(t *testing.T, n int) {
	rng, p := rand.New(rand.NewPCG(14, 0)), placement.Default()
	regions := []cluster.Region{"fra", "ams", "iad"}
	bad := 0
	var view cluster.View
	for i := range n {
		if i%64 == 0 {
			view.Workers = view.Workers[:0]
			for w := range 4 {
				r := cluster.Record{Worker: cluster.WorkerID("w" + strconv.Itoa(w)), Region: regions[rng.IntN(3)],
					State: cluster.Ready, MaxStarting: 10, Apps: map[string]int{"a": rng.IntN(5)}}
				r.Capacity = cluster.Resources{CPU: 64000, Memory: 1 << 38, Disk: 1 << 40, Ports: 1000}
				r.Used = cluster.Resources{CPU: rng.Int64N(64000), Memory: rng.Int64N(1 << 38)}
				view.Workers = append(view.Workers, r)
			}
		}
		req := placement.Request{App: "a", Machine: strconv.Itoa(i), Resources: cluster.Resources{CPU: rng.Int64N(8000),
			Memory: rng.Int64N(1 << 34)}}
		if rng.IntN(2) == 0 {
			req.Regions = []cluster.Region{regions[rng.IntN(3)]}
		}
		made := placement.Rank(req, view, p)
		if i%16 == 0 { // JSON is what takes the time
			text, err := json.Marshal(made)
			if err != nil {
				t.Fatal(err)
			}
			made = nil
			if err := json.Unmarshal(text, &made); err != nil {
				t.Fatal(err)
			}
		}
		if !recomputes(req, view, p, made) {
			if bad++; bad < 3 {
				t.Errorf("placement %d does not recompute: %+v", i, made)
			}
		}
	}
	if bad > 0 {
		t.Errorf("%d of %d", bad, n)
	}
}

func recomputes(req placement.Request, view cluster.View, p placement.Policy, made []machine.Candidate) bool {
	for i, c := range made {
		w := view.Workers[slices.IndexFunc(view.Workers,
			func(w cluster.Record) bool { return string(w.Worker) == c.Worker })]
		if c.Fits != p.Judge(&req, &w).Fits {
			return false
		}
		if !c.Fits {
			continue
		}
		sum := 0.0
		for _, t := range c.Terms {
			sum += t.Value
		}
		if again, _ := p.Score(req, w); again != c.Score || math.Abs(sum-c.Score) > 1e-9 || i > 0 &&
			(!made[i-1].Fits || c.Score > made[i-1].Score) {
			return false
		}
	}
	return true
}
