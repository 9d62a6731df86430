package faults_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime/oci"
	"github.com/soukhq/souk/test/faults"
	"github.com/soukhq/souk/test/netns"
	"github.com/soukhq/souk/test/soukexe"
)

var (
	seed     = flag.Uint64("seed", 0, "of the runs; 0: drawn, and printed")
	services = flag.Int("services", 1, "kept beside the clients of each run")
	batch    = flag.Int("jobs", 3, "jobs submitted beside the clients of each run")
)

// envApart says that this process is to have hosts: it runs one test, or one part of it.
const envApart = "SOUK_FAULTS_APART"

func TestMain(m *testing.M) {
	if port := os.Getenv(envServe); port != "" {
		os.Exit(serve(port))
	}
	if os.Getenv(envApart) != "" {
		os.Exit(netns.Main(m.Run))
	}
	os.Exit(m.Run())
}

// kinds are all faults but the mixed build, which needs another one: go run ./test/faultrun --fault mixed --old FILE.
var kinds = map[string][]string{ //nolint:gochecknoglobals // a constant
	"processes": {faults.Kill, faults.Reaper, faults.Stall, faults.Exhaustion, faults.PIDs, faults.Clone},
	"network": {faults.Partition, faults.OneWay, faults.Loss, faults.Delay, faults.Flap, faults.Slow,
		faults.Firewall},
	"disks": {faults.PowerLoss, faults.Power, faults.OldDisk, faults.DiskFull, faults.LostFile},
}

// TestFaultsKeepInvariants does one short run of the first fault of each kind, with some launches each.
func TestFaultsKeepInvariants(t *testing.T) {
	t.Parallel()
	apart(t, func() {
		for _, names := range kinds {
			runAll(t, names[:1], time.Second, 150)
		}
	})
}

// TestLongFaultsKeepInvariants does one short run of each fault, with a few hundred launches each. `make faults` does twenty long ones.
func TestLongFaultsKeepInvariants(t *testing.T) {
	all := []string{faults.Mixed}
	for kind, names := range kinds {
		all = append(all, names...)
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			apart(t, func() { runAll(t, names, 2*time.Second, 300) })
		})
	}
	if slices.Sort(all); !slices.Equal(all, slices.Sorted(slices.Values(faults.All()))) {
		t.Errorf("the kinds have %v; there are %v", all, faults.All())
	}
}

// apart runs a test, or a part of one, in a process whose namespaces have hosts of its own, and that sees no other's.
func apart(t *testing.T, test func()) {
	t.Helper()
	switch lacks := netns.Lacks(); {
	case netns.Inside():
		test()
		return
	case lacks != "" && os.Getenv("CI") == "true":
		t.Fatalf("hosts cannot be made here; lacking: %s", lacks)
	case lacks != "":
		t.Skipf("lacking: %s", lacks)
	}
	name := "^" + strings.ReplaceAll(t.Name(), "/", "$/^") + "$"
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run="+name, "-test.v", "-test.count=1",
		fmt.Sprint("-seed=", *seed), fmt.Sprint("-rollouts=", *rollouts), fmt.Sprint("-deaths=", *deaths),
		fmt.Sprint("-per-host=", *perHost), fmt.Sprint("-bad-for=", *badFor), fmt.Sprint("-services=", *services),
		fmt.Sprint("-drawn=", *drawn), fmt.Sprint("-jobs=", *batch))
	cmd.Env = append(os.Environ(), envApart+"=1")
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}

// TestDrawnJobsKeepTheirResults does one run of agents that are killed, with many jobs and few machines. A campaign
// (faultrun --jobs) has all faults.
func TestDrawnJobsKeepTheirResults(t *testing.T) {
	t.Parallel()
	apart(t, func() {
		exe, err := soukexe.Path(false)
		if err != nil {
			t.Fatal(err)
		}
		if *seed == 0 {
			*seed = rand.Uint64N(1 << 32)
		}
		hosts, err := allHosts()
		if err != nil {
			t.Fatal(err)
		}
		runOne(t, hosts, faults.Options{Fault: faults.Kill, Seed: *seed, Exe: exe, Dir: t.TempDir(), Nodes: 3,
			Clients: 2, Rate: 4, Jobs: 8, For: 5 * time.Second, Log: t.Output()})
	})
}

// allHosts makes the hosts of all runs of a process, one after the other: a process makes hosts once.
var allHosts = sync.OnceValues(func() (netns.Hosts, error) { return netns.New(3 + faults.Extra) })

func runAll(t *testing.T, names []string, lasts time.Duration, launches int) {
	exe, err := soukexe.Path(false)
	if err != nil {
		t.Fatal(err)
	}
	if *seed == 0 {
		*seed = rand.Uint64N(1 << 32)
	}
	images := 30
	if err := oci.Able(oci.DefaultEngine); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Logf("without containers: %v", err)
		images = 0
	}
	hosts, err := allHosts()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			o := faults.Options{Fault: name, Seed: *seed, Exe: exe, Dir: t.TempDir(), Nodes: 3, Clients: 6, For: lasts,
				Most: launches, Images: images, Services: *services, Jobs: *batch, Log: t.Output()}
			if slices.Contains(kinds["network"], name) {
				o.Images = 0 // containers are the same as processes here: a campaign (faultrun --images) has them
			}
			runOne(t, hosts, o)
		})
	}
}

func runOne(t *testing.T, hosts netns.Hosts, o faults.Options) {
	rep, err := faults.Run(t.Context(), hosts, o)
	if o.Fault == faults.PIDs && fault.Is(err, fault.Precondition) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range rep.Violations {
		t.Error(v)
	}
	if len(rep.Violations) > 0 {
		warnings(t, o.Dir)
		t.Logf("repeat it with: go test ./test/faults -run %s -seed %d", t.Name(), *seed)
	}
	if rep.Started == 0 || rep.Undecided > 0 || o.Jobs > 0 && rep.Tasks == 0 {
		t.Errorf("the run says little: %+v", rep)
	}
}

// warnings prints what members warned of, for their logs go with the test.
func warnings(t *testing.T, dir string) {
	logs, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range logs {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(raw)) {
			if strings.Contains(line, "WARN") || strings.Contains(line, "ERROR") {
				t.Logf("%s: %s", filepath.Base(file), line)
			}
		}
	}
}
