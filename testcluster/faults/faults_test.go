package faults_test

import (
	"flag"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime/oci"
	"github.com/soukhq/souk/testcluster/faults"
	"github.com/soukhq/souk/testcluster/netns"
)

var seed = flag.Uint64("seed", 0, "of the runs; 0: drawn, and printed")

func TestMain(m *testing.M) { os.Exit(netns.Main(m.Run)) }

// TestFaults does one short run of each fault, with a few hundred launches each. `make faults` does twenty long ones.
func TestFaults(t *testing.T) {
	if testing.Short() {
		t.Skip("takes two minutes")
	}
	if !netns.Inside() {
		if os.Getenv("CI") == "true" {
			t.Fatalf("hosts cannot be made here; lacking: %s", netns.Lacks())
		}
		t.Skipf("lacking: %s", netns.Lacks())
	}
	exe := filepath.Join(t.TempDir(), "souk")
	if out, err := exec.Command("go", "build", "-o", exe, "../../cmd/souk").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
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
	hosts, err := netns.New(3 + faults.Extra)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range faults.All() {
		t.Run(name, func(t *testing.T) {
			if name == faults.Mixed {
				t.Skip("needs another build: go run ./testcluster/faultrun --fault mixed --old PROGRAM")
			}
			dir, images := t.TempDir(), images
			if slices.Contains(network, name) {
				images = 0
			}
			rep, err := faults.Run(t.Context(), hosts, faults.Options{
				Fault:   name,
				Seed:    *seed,
				Exe:     exe,
				Dir:     dir,
				Nodes:   3,
				Clients: 6,
				For:     2 * time.Second,
				Most:    300,
				Images:  images,
				Log:     t.Output(),
			})
			if name == faults.PIDs && fault.Is(err, fault.Precondition) {
				t.Skip(err)
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, v := range rep.Violations {
				t.Error(v)
			}
			if len(rep.Violations) > 0 {
				warnings(t, dir)
				t.Log("repeat it with: go test ./testcluster/faults -run TestFaults/"+name, "-seed", *seed)
			}
			if rep.Started == 0 || rep.Undecided > 0 {
				t.Errorf("the run says little: %+v", rep)
			}
		})
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
