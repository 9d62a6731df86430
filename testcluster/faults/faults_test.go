package faults_test

import (
	"flag"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/soukhq/souk/fault"
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
	hosts, err := netns.New(3 + faults.Extra)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range faults.All() {
		t.Run(name, func(t *testing.T) {
			if name == faults.Mixed {
				t.Skip("needs another build: go run ./testcluster/faultrun --fault mixed --old PROGRAM")
			}
			rep, err := faults.Run(t.Context(), hosts, faults.Options{
				Fault:   name,
				Seed:    *seed,
				Exe:     exe,
				Dir:     t.TempDir(),
				Nodes:   3,
				Clients: 6,
				For:     2 * time.Second,
				Most:    300,
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
				t.Log("repeat it with: go test ./testcluster/faults -run TestFaults/"+name, "-seed", *seed)
			}
			if rep.Started == 0 || rep.Undecided > 0 {
				t.Errorf("the run says little: %+v", rep)
			}
		})
	}
}
