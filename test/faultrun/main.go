// Command faultrun breaks a cluster of real souk agents in network namespaces, repeatedly with different seeds, and
// reports whether it kept its promises. See packages faults and netns, and docs/decisions/0019-fault-harness.md.
//
//	go run ./test/faultrun --fault partition --for 60s --seed 7
//	go run ./test/faultrun --runs 20 --for 8s,partition=60s --rate 20 --parallel 3 --results runs
//	go run ./test/faultrun --report runs > docs/results-faults.md
//
// With --results each run is a process with namespaces of its own, and so many as --parallel says are at work at
// once. What came of a run is appended to the file when it is over; runs that the file has are not done again, so a
// campaign that was broken off goes on where it was. The directory of a run that failed or found something stays.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/soukhq/souk/test/faults"
	"github.com/soukhq/souk/test/netns"
)

func main() {
	var o options
	o.flags()
	if o.report != "" || o.results != "" {
		exit(o.campaignOrReport())
	}
	os.Exit(netns.Main(func() int { return code(o.here()) }))
}

func exit(err error) { os.Exit(code(err)) }

func code(err error) int {
	if err != nil {
		fmt.Fprintln(os.Stderr, "faultrun:", err)
		return 1
	}
	return 0
}

var errViolated = errors.New("at least one promise was broken")

// options are what the command line says.
type options struct {
	faults.Options
	which    string
	lasts    lasting
	runs     int
	parallel int
	keep     string
	asJSON   bool
	report   string
	results  string
}

func (o *options) flags() {
	o.lasts = lasting{"": 10 * time.Second}
	flag.StringVar(&o.which, "fault", "all",
		"the faults, with commas between: "+strings.Join(faults.All(), ", ")+", or all")
	flag.Uint64Var(&o.Seed, "seed", 0, "of the first run of each fault; the next have the next. 0: drawn, and printed")
	flag.IntVar(&o.Nodes, "nodes", 5, "members")
	flag.IntVar(&o.Clients, "clients", 10, "clients at work at once")
	flag.Float64Var(&o.Rate, "rate", 0,
		"launches a second that all clients together try (default: as many as they can)")
	flag.Var(o.lasts, "for", "how long a fault lasts; also for one of them: 8s,partition=60s (default 10s)")
	flag.IntVar(&o.Images, "images", 0, "percent of the launches that are of an image, which takes runc")
	flag.IntVar(&o.Services, "services", 0, "services that are kept beside, and changed all the time; 2 at most")
	flag.IntVar(&o.Jobs, "jobs", 0, fmt.Sprintf("jobs of short tasks that are submitted beside, spread over the run, "+
		"half of them by the auction and each other by a scheduler that the seed draws; %d at most", faults.MaxJobs))
	flag.IntVar(&o.Most, "launches", 0, "launches of a run at most (default: as many as there is time for)")
	flag.StringVar(&o.Exe, "souk", "", "the program (default: built from this directory)")
	flag.StringVar(&o.Old, "old", "",
		"another build of it, which half of the members run in mixed (default: one of 60 commits before)")
	flag.IntVar(&o.runs, "runs", 1, "runs of each fault, with a seed each")
	flag.StringVar(&o.keep, "keep", "", "directory for the members' directories, logs and histories, which then stay")
	flag.BoolVar(&o.asJSON, "json", false, "print each report as a line of JSON")
	flag.StringVar(&o.results, "results", "", "append reports to this file, and leave out the runs that it has")
	flag.IntVar(&o.parallel, "parallel", 1, "clusters at once, with --results")
	flag.StringVar(&o.report, "report", "",
		"run nothing: read lines of reports from this file and print docs/results-faults.md")
	flag.Parse()
}

// all lists the requested faults.
func (o *options) all() []string {
	if o.which == "all" {
		return faults.All()
	}
	return strings.Split(o.which, ",")
}

func (o *options) campaignOrReport() error {
	if o.report != "" {
		return writeReport(os.Stdout, o.report)
	}
	if lacks := netns.Lacks(); lacks != "" {
		return fmt.Errorf("hosts cannot be made here; lacking: %s", lacks)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return o.campaign(ctx)
}

// lasting is how long faults last, by name; "": all others.
type lasting map[string]time.Duration

func (l lasting) String() string { return "" }

// Set implements flag.Value.
func (l lasting) Set(text string) error {
	for part := range strings.SplitSeq(text, ",") {
		name, long, named := strings.Cut(part, "=")
		if !named {
			name, long = "", part
		}
		d, err := time.ParseDuration(long)
		if err != nil {
			return err
		}
		l[name] = d
	}
	return nil
}

func (l lasting) of(fault string) time.Duration {
	if d, own := l[fault]; own {
		return d
	}
	return l[""]
}

// here does all runs one after another in this process, which is inside the namespaces.
func (o *options) here() error {
	if !netns.Inside() {
		return fmt.Errorf("hosts cannot be made here; lacking: %s", netns.Lacks())
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	base, err := workDir(o.keep)
	if err != nil {
		return err
	}
	if o.keep == "" {
		defer os.RemoveAll(base)
	}
	if err := o.build(ctx, base); err != nil {
		return err
	}
	if o.Seed == 0 {
		o.Seed = rand.Uint64N(1 << 32)
	}
	hosts, err := netns.New(o.Nodes + faults.Extra)
	if err != nil {
		return err
	}
	violated := false
	for _, f := range o.all() {
		for k := range o.runs {
			run := o.Options
			run.Fault, run.Seed, run.For = f, o.Seed+uint64(k), o.lasts.of(f)
			bad, err := once(ctx, hosts, run, base, o.asJSON)
			if err != nil {
				return fmt.Errorf("%s, seed %d: %w", f, run.Seed, err)
			}
			violated = violated || bad
		}
	}
	if violated {
		return errViolated
	}
	return nil
}

// build builds souk, unless it is given, and for the fault mixed an older commit, too.
func (o *options) build(ctx context.Context, dir string) error {
	if o.Old == "" && slices.Contains(o.all(), faults.Mixed) {
		if err := o.buildOld(ctx, dir); err != nil {
			return err
		}
	}
	if o.Exe != "" {
		return nil
	}
	o.Exe = filepath.Join(dir, "souk")
	if out, err := exec.CommandContext(ctx, "go", "build", "-buildvcs=auto", "-o", o.Exe,
		"./cmd/souk").CombinedOutput(); err != nil {
		return fmt.Errorf("go build ./cmd/souk: %w\n%s", err, out)
	}
	return nil
}

// oldCommit is the commit that is mixed with this one.
const oldCommit = "HEAD~60"

func (o *options) buildOld(ctx context.Context, dir string) error {
	source := filepath.Join(dir, "old")
	o.Old = filepath.Join(dir, "souk-old")
	script := `mkdir "$1" && git archive "$2" | tar -x -C "$1" && cd "$1" && go build -o "$3" ./cmd/souk && rm -rf "$1"`
	cmd := exec.CommandContext(ctx, "sh", "-c", script, "sh", source, oldCommit, o.Old)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("the program of %s cannot be built: %w\n%s", oldCommit, err, out)
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

// once does one run, and reports whether a promise was broken.
func once(ctx context.Context, hosts netns.Hosts, o faults.Options, base string, asJSON bool) (bool, error) {
	o.Dir = filepath.Join(base, fmt.Sprintf("%s-%d", o.Fault, o.Seed))
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return false, err
	}
	o.Log = os.Stderr
	stuck := time.AfterFunc(o.For+faults.Bound+time.Minute, func() { // even the run's own timeout hangs
		_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 1) // only for debugging
		os.Exit(3)
	})
	defer stuck.Stop()
	rep, err := faults.Run(ctx, hosts, o)
	if err != nil {
		return false, err
	}
	if asJSON {
		return len(rep.Violations) > 0, json.NewEncoder(os.Stdout).Encode(rep)
	}
	fmt.Printf(
		"%s, seed %d: %d launches, %d started (%d during the fault), %d refused, %d asked again, %d never answered; "+
			"all "+
			"agree after %.2f s; %d violations\n",
		rep.Fault,
		rep.Seed,
		rep.Launches,
		rep.Started,
		rep.During,
		rep.Refused,
		rep.Repeated,
		rep.Unsure,
		rep.Agreed,
		len(rep.Violations),
	)
	if rep.Jobs > 0 {
		fmt.Printf("  %d jobs of %d tasks have ended after %.2f s: %d attempts, %d tasks at another member, "+
			"%d cancelled, %d lost too often\n", rep.Jobs, rep.Tasks, rep.JobsEnded, rep.Attempts, rep.Away,
			rep.Cancelled, rep.Lost)
		fmt.Println("  jobs of each scheduler:", faults.CountsText(rep.Schedulers))
	}
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
