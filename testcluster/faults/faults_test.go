package faults_test

import (
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime/oci"
	"github.com/soukhq/souk/testcluster/faults"
	"github.com/soukhq/souk/testcluster/netns"
	"github.com/soukhq/souk/testcluster/soukexe"
)

var seed = flag.Uint64("seed", 0, "of the runs; 0: drawn, and printed")

func TestMain(m *testing.M) { os.Exit(netns.Main(m.Run)) }

// short are the faults of which each kind has one: of processes, of the network, of hosts with their disks.
var short = []string{faults.Kill, faults.Partition, faults.PowerLoss} //nolint:gochecknoglobals // a constant

// allHosts makes the hosts of all runs, one after the other: a program makes hosts once.
var allHosts = sync.OnceValues(func() (netns.Hosts, error) { return netns.New(3 + faults.Extra) })

// TestFaults does one short run of one fault of each kind, with some launches each.
func TestFaults(t *testing.T) { runAll(t, short, time.Second, 150) }

// TestLongFaults does one short run of each fault, with a few hundred launches each. `make faults` does twenty long ones.
func TestLongFaults(t *testing.T) { runAll(t, faults.All(), 2*time.Second, 300) }

func runAll(t *testing.T, names []string, lasts time.Duration, launches int) {
	if !netns.Inside() {
		if os.Getenv("CI") == "true" {
			t.Fatalf("hosts cannot be made here; lacking: %s", netns.Lacks())
		}
		t.Skipf("lacking: %s", netns.Lacks())
	}
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
			if name == faults.Mixed {
				t.Skip("needs another build: go run ./testcluster/faultrun --fault mixed --old PROGRAM")
			}
			o := faults.Options{Fault: name, Seed: *seed, Exe: exe, Dir: t.TempDir(), Nodes: 3, Clients: 6, For: lasts,
				Most: launches, Images: images, Log: t.Output()}
			if slices.Contains(network, name) {
				o.Images = 0
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
		t.Logf("repeat it with: go test ./testcluster/faults -run %s -seed %d", t.Name(), *seed)
	}
	if rep.Started == 0 || rep.Undecided > 0 {
		t.Errorf("the run says little: %+v", rep)
	}
}

// network are the faults that containers are the same with as processes: what fails is between members. A campaign
// (faultrun --images) has containers with all.
var network = []string{faults.Partition, faults.OneWay, faults.Loss, faults.Delay, faults.Flap, faults.Slow,
	faults.Firewall}

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
