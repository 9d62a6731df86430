// Command jobrun kills agents, reapers and hosts of a small cluster in network namespaces while one job runs there, and
// checks that in the end each of the job's tasks has exactly one result. It prints a table of what it did, and how long
// it took until the living members showed the job again. It is run by hand:
//
//	go run ./test/jobrun --tasks 20000 --nap 100ms
//
// See packages faults and netns.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/soukhq/souk/test/faults"
	"github.com/soukhq/souk/test/netns"
)

func main() {
	os.Exit(netns.Main(func() int {
		if err := work(); err != nil {
			fmt.Fprintln(os.Stderr, "jobrun:", err)
			return 1
		}
		return 0
	}))
}

var errViolated = errors.New("at least one promise was broken")

func work() error {
	o := faults.KillOptions{Out: os.Stdout}
	flag.StringVar(&o.Exe, "souk", "", "the program (default: built from this directory)")
	flag.StringVar(&o.Dir, "keep", "", "directory for the members' directories and logs, which then stay")
	flag.IntVar(&o.Nodes, "nodes", 3, "members")
	flag.IntVar(&o.CPUs, "cpus", 4, "cores of each member: so many tasks it runs at once")
	flag.IntVar(&o.Tasks, "tasks", 100_000, "tasks of the job")
	flag.DurationVar(&o.Nap, "nap", 0, "how long a task sleeps; 0: a task is \"true\"")
	flag.StringVar(&o.Scheduler, "scheduler", faults.DrawnScheduler, "of the job: NAME or NAME:N as for souk submit; "+
		faults.DrawnScheduler+": the seed says which, the auction about every second time")
	flag.IntVar(&o.Kills, "kills", 20, "kills")
	flag.DurationVar(&o.Cut, "cut", time.Minute, "how long the job's keeper is cut off, once; 0: never")
	flag.DurationVar(&o.Patience, "patience", 10*time.Minute, "until the job has ended, after the last kill")
	flag.Uint64Var(&o.Seed, "seed", rand.Uint64N(1<<32), "what is killed when (default: drawn)")
	flag.Parse()
	if !netns.Inside() {
		return fmt.Errorf("hosts cannot be made here; lacking: %s", netns.Lacks())
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if o.Dir == "" {
		dir, err := os.MkdirTemp("", "souk-jobrun-*")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		o.Dir = dir
	} else if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return err
	}
	if o.Exe == "" {
		o.Exe = filepath.Join(o.Dir, "souk")
		if out, err := exec.CommandContext(ctx, "go", "build", "-o", o.Exe, "./cmd/souk").CombinedOutput(); err != nil {
			return fmt.Errorf("go build ./cmd/souk: %w\n%s", err, out)
		}
	}
	hosts, err := netns.New(o.Nodes)
	if err != nil {
		return err
	}
	fmt.Printf("%d members, %d tasks, seed %d\n", o.Nodes, o.Tasks, o.Seed)
	wrong, err := faults.KillWhileJob(ctx, hosts, o)
	if err != nil {
		return err
	}
	fmt.Printf("%d promises were broken\n", len(wrong))
	if len(wrong) > 0 {
		return errViolated
	}
	return nil
}
