package main

import (
	"bufio"
	"bytes"
	"context"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/test/faults"
)

// tries bounds how often a run with a failed harness is repeated.
const tries = 2

// job is one run of a campaign.
type job struct {
	fault string
	seed  uint64
}

// campaign does all runs that the results file lacks, several at once as the options say.
func (o *options) campaign(ctx context.Context) error {
	base, err := workDir(o.keep)
	if err != nil {
		return err
	}
	if err := o.build(ctx, base); err != nil {
		return err
	}
	before, err := readReports(o.results)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	c := &campaign{o: o, base: base, commit: commitOf(o.Exe), failed: map[job]int{}}
	if c.out, err = os.OpenFile(o.results, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644); err != nil {
		return err
	}
	defer c.out.Close()
	todo := o.todo(before)
	fmt.Fprintf(os.Stderr, "faultrun: %d runs to do, of commit %s, with seeds from %d\n", len(todo), c.commit, o.Seed)
	var all sync.WaitGroup
	queue := make(chan job)
	for range max(1, o.parallel) {
		all.Go(func() {
			runtime.LockOSThread() // a child run dies with the thread that started it
			for j := range queue {
				c.run(ctx, j)
			}
		})
	}
	for _, j := range todo {
		select {
		case queue <- j:
		case <-ctx.Done():
		}
	}
	close(queue)
	all.Wait()
	if err := errors.Join(c.err, ctx.Err()); err != nil {
		return err
	}
	if c.violated > 0 || c.broken > 0 {
		return fmt.Errorf("%d runs broke a promise, %d say nothing, for the harness failed; their directories are "+
			"below %s",
			c.violated, c.broken, base)
	}
	return os.RemoveAll(base)
}

// todo lists the missing runs, one of each fault in turn.
func (o *options) todo(before []faults.Report) (out []job) {
	there := map[job]bool{}
	least := uint64(0)
	for _, r := range before {
		there[job{r.Fault, r.Seed}] = r.Harness == ""
		if least == 0 || r.Seed < least {
			least = r.Seed
		}
	}
	if o.Seed == 0 {
		o.Seed = least // continue an earlier campaign
	}
	if o.Seed == 0 {
		o.Seed = 1 + rand.Uint64N(1<<32)
	}
	for k := range uint64(o.runs) {
		for _, f := range o.all() {
			if j := (job{f, o.Seed + k}); !there[j] {
				out = append(out, j)
			}
		}
	}
	return out
}

// campaign is the state of a campaign.
type campaign struct {
	o      *options
	base   string
	commit string

	mu       sync.Mutex
	out      *os.File
	err      error
	failed   map[job]int // how often the harness failed
	violated int
	broken   int
}

func (c *campaign) run(ctx context.Context, j job) {
	for ctx.Err() == nil {
		rep := c.child(ctx, j)
		if ctx.Err() != nil || c.note(j, rep) {
			return
		}
	}
}

// note records the result of a run, and reports whether the run is done.
func (c *campaign) note(j job, rep faults.Report) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	rep.Commit = c.commit
	if err := json.NewEncoder(c.out).Encode(rep); err != nil {
		c.err = errors.Join(c.err, err)
	}
	fmt.Fprintf(os.Stderr,
		"faultrun: %s, seed %d: %d launches, %d started, %d jobs of %d tasks, %d violations, agreed after %.1f s, "+
			"took %.0f s %s\n",
		rep.Fault, rep.Seed, rep.Launches, rep.Started, rep.Jobs, rep.Tasks, len(rep.Violations), rep.Agreed,
		rep.TookSecs, rep.Harness)
	if rep.Harness == "" {
		if len(rep.Violations) > 0 {
			c.violated++
		}
		return true
	}
	if c.failed[j]++; c.failed[j] < tries {
		return false
	}
	c.broken++
	return true
}

// child does one run in a process of its own, with its own namespaces.
func (c *campaign) child(ctx context.Context, j job) faults.Report {
	o := c.o
	dir, err := os.MkdirTemp(c.base, fmt.Sprintf("%s-%d-*", j.fault, j.seed))
	if err != nil {
		return faults.Report{Fault: j.fault, Seed: j.seed, Harness: err.Error()}
	}
	cmd := exec.CommandContext(ctx, "/proc/self/exe", o.childArgs(j, dir)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGTERM) }
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	err = cmd.Run()
	var rep faults.Report
	if json.Unmarshal(out.Bytes(), &rep) == nil && rep.Fault != "" {
		if len(rep.Violations) == 0 {
			err = os.RemoveAll(dir)
		} else {
			err = os.WriteFile(filepath.Join(dir, "said"), said.Bytes(), 0o600)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "faultrun:", err)
		}
		return rep
	}
	if errW := os.WriteFile(filepath.Join(dir, "said"), said.Bytes(), 0o600); errW != nil {
		fmt.Fprintln(os.Stderr, "faultrun:", errW)
	}
	lines := strings.Split(strings.TrimSpace(said.String()), "\n")
	return faults.Report{Fault: j.fault, Seed: j.seed, Harness: fmt.Sprintf("%v: %.300s", err, lines[len(lines)-1])}
}

// childArgs returns the arguments of the process of one run, which are the options of the campaign.
func (o *options) childArgs(j job, dir string) []string {
	return []string{"--fault", j.fault, "--seed", fmt.Sprint(j.seed), "--nodes", fmt.Sprint(o.Nodes), "--clients",
		fmt.Sprint(o.Clients), "--rate", fmt.Sprint(o.Rate), "--launches", fmt.Sprint(o.Most), "--for",
		o.lasts.of(j.fault).String(), "--images", fmt.Sprint(o.Images), "--services", fmt.Sprint(o.Services), "--jobs",
		fmt.Sprint(o.Jobs), "--souk", o.Exe, "--old", o.Old, "--keep", dir, "--json"}
}

// commitOf returns the commit that a program was built from; "": unknown.
func commitOf(exe string) (commit string) {
	info, err := buildinfo.ReadFile(exe)
	if err != nil {
		return ""
	}
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			commit = s.Value[:min(len(s.Value), 10)] + commit
		case s.Key == "vcs.modified" && s.Value == "true":
			commit += "+changes"
		}
	}
	return commit
}

// readReports reads a results' file.
func readReports(path string) (all []faults.Report, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, 1<<22)
	for sc.Scan() {
		var r faults.Report
		if err := json.Unmarshal(sc.Bytes(), &r); err != nil {
			return nil, fmt.Errorf("%s holds a line that is no report: %w", path, err)
		}
		all = append(all, r)
	}
	return all, sc.Err()
}
