// Command faultrun breaks a cluster of real souk agents in network namespaces, again and again with other seeds, and says
// whether it kept its promises. See packages faults and netns, and docs/decisions/0019-fault-harness.md.
//
//	go run ./testcluster/faultrun --fault partition --for 60s --runs 20 --json >> runs
//	go run ./testcluster/faultrun --report runs > docs/results-faults.md
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/soukhq/souk/testcluster/faults"
	"github.com/soukhq/souk/testcluster/netns"
)

func main() {
	os.Exit(netns.Main(func() int {
		if err := run(); err != nil {
			fmt.Fprintln(os.Stderr, "faultrun:", err)
			return 1
		}
		return 0
	}))
}

var errViolated = errors.New("at least one promise was broken")

func run() error {
	var o faults.Options
	which := flag.String("fault", "all", "the faults, with commas between: "+strings.Join(faults.All(), ", ")+", or all")
	flag.Uint64Var(&o.Seed, "seed", 0, "of the first run; the next have the next. 0: drawn, and printed")
	flag.IntVar(&o.Nodes, "nodes", 5, "members")
	flag.IntVar(&o.Clients, "clients", 10, "clients at work at once")
	flag.DurationVar(&o.For, "for", 10*time.Second, "how long a fault lasts")
	flag.IntVar(&o.Most, "launches", 0, "launches of a run at most (default: as many as there is time for)")
	flag.StringVar(&o.Exe, "souk", "", "the program (default: built from this directory)")
	runs := flag.Int("runs", 1, "runs of each fault, with a seed each")
	keep := flag.String("keep", "", "directory for the members' directories, logs and histories, which then stay")
	asJSON := flag.Bool("json", false, "print each report as a line of JSON")
	report := flag.String("report", "", "run nothing: read lines of reports from this file and print docs/results-faults.md")
	flag.Parse()
	if *report != "" {
		return writeReport(os.Stdout, *report)
	}
	if !netns.Inside() {
		return fmt.Errorf("hosts cannot be made here; lacking: %s", netns.Lacks())
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	base, err := workDir(*keep)
	if err != nil {
		return err
	}
	if *keep == "" {
		defer os.RemoveAll(base)
	}
	if o.Exe == "" {
		o.Exe = filepath.Join(base, "souk")
		if out, err := exec.CommandContext(ctx, "go", "build", "-o", o.Exe, "./cmd/souk").CombinedOutput(); err != nil {
			return fmt.Errorf("go build ./cmd/souk: %w\n%s", err, out)
		}
	}
	if o.Seed == 0 {
		o.Seed = rand.Uint64N(1 << 32)
	}
	hosts, err := netns.New(o.Nodes)
	if err != nil {
		return err
	}
	all := strings.Split(*which, ",")
	if *which == "all" {
		all = faults.All()
	}
	violated := false
	for _, f := range all {
		for range *runs {
			o.Fault = f
			bad, err := once(ctx, hosts, o, base, *asJSON)
			if err != nil {
				return fmt.Errorf("%s, seed %d: %w", f, o.Seed, err)
			}
			violated = violated || bad
			o.Seed++
		}
	}
	if violated {
		return errViolated
	}
	return nil
}

func workDir(keep string) (string, error) {
	if keep == "" {
		return os.MkdirTemp("", "souk-faults-*")
	}
	dir, err := filepath.Abs(keep)
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	return dir, err
}

// once does one run, and says whether a promise was broken.
func once(ctx context.Context, hosts netns.Hosts, o faults.Options, base string, asJSON bool) (bool, error) {
	o.Dir = filepath.Join(base, fmt.Sprintf("%s-%d", o.Fault, o.Seed))
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return false, err
	}
	o.Log = os.Stderr
	if asJSON {
		o.Log = io.Discard
	}
	rep, err := faults.Run(ctx, hosts, o)
	if err != nil {
		return false, err
	}
	if asJSON {
		return len(rep.Violations) > 0, json.NewEncoder(os.Stdout).Encode(rep)
	}
	fmt.Printf("%s, seed %d: %d launches, %d started (%d during the fault), %d refused, %d asked again, %d never answered; all agree after %.2f s; %d violations\n",
		rep.Fault, rep.Seed, rep.Launches, rep.Started, rep.During, rep.Refused, rep.Repeated, rep.Unsure, rep.Agreed, len(rep.Violations))
	for _, v := range rep.Violations {
		fmt.Println("  VIOLATED", v)
	}
	for _, a := range rep.Answers {
		fmt.Println("  odd answer:", a)
	}
	if len(rep.Violations) > 0 {
		fmt.Println("  repeat it with:", rep.Repeat)
	}
	return len(rep.Violations) > 0, nil
}
