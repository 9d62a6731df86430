// Command jobday submits some hundred small jobs of many sizes to a souk, at times as in a day of which the middle is
// too busy, and prints how many of the intervals held that said when jobs start and end. It is run by hand, on a souk that
// has no other jobs and has forgotten what it knew of forecasts:
//
//	souk dev --dir /tmp/day --cpus 16 --memory 16384
//	go run ./test/jobday --addr 127.0.0.1:4280 --token $(cat /tmp/day/token) --cores 16
//
// It asks for the status of each job right after its submission and scores the intervals in it by itself, beside what the
// member counts. Tasks sleep, and need no CPU time to speak of.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/core/eta"
	"github.com/soukhq/souk/core/jobs"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := work(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "jobday:", err)
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	addr, token, app string
	cores            int
	length           time.Duration
	load, off        float64
	seed             uint64
}

func work(ctx context.Context) error {
	var o options
	flag.StringVar(&o.addr, "addr", os.Getenv("SOUK_ADDR"), "the souk")
	flag.StringVar(&o.token, "token", os.Getenv("SOUK_TOKEN"), "a token of it")
	flag.StringVar(&o.app, "app", "default", "the app of the jobs")
	flag.IntVar(&o.cores, "cores", 16, "cores of all its workers")
	flag.DurationVar(&o.length, "for", 150*time.Second, "how long jobs are submitted")
	flag.Float64Var(&o.load, "load", 0.8, "work submitted, as a part of what the cores do; at noon 1.5 times as much")
	flag.Float64Var(&o.off, "off", 0.5, "how wrong estimates are: the standard deviation of the log of their ratio")
	flag.Uint64Var(&o.seed, "seed", 1, "of what is submitted when")
	flag.Parse()
	if o.addr == "" {
		return errors.New("--addr names a souk, HOST:PORT")
	}
	d := day{options: o, rng: rand.New(rand.NewPCG(o.seed, 0)), souk: client.New(o.addr, o.token)}
	if err := d.submitAll(ctx); err != nil {
		return err
	}
	if err := d.awaitAll(ctx); err != nil {
		return err
	}
	if err := d.probe(ctx); err != nil {
		return err
	}
	d.print()
	return nil
}

// day is one run.
type day struct {
	options
	rng    *rand.Rand
	souk   *client.Client
	seen   []jobs.Job // right after their submission
	waits  []time.Duration
	own    map[string]*eta.Coverage
	width  map[string][]float64 // seconds, of the intervals in own
	scored [3]eta.Coverage      // by the member: of starts, of ends said before the start, and of ends said later
}

// draw makes a job: one to a dozen tasks, each of which sleeps for about 100 ms to 3 s. Of one job all tasks take about as
// long. One in five has no estimate. work is in core-seconds.
func (d *day) draw() (spec jobs.Spec, work float64) {
	tasks := 1 + int(d.rng.ExpFloat64()*3)
	long := math.Min(5, math.Max(0.05, 0.5*math.Exp(0.8*d.rng.NormFloat64())))
	spec = jobs.Spec{App: d.app, Last: tasks - 1, CPUKind: "performance", CPUs: 1, MemoryMB: 64,
		Command: []string{"/bin/sleep", fmt.Sprintf("%.3f", long)}}
	if d.rng.Float64() < 0.8 {
		spec.EstimateMS = max(1, int64(1000*long*math.Exp(d.off*d.rng.NormFloat64())))
	}
	return spec, float64(tasks) * long
}

// submitAll submits jobs at random times, at first and at last half as many as on average.
func (d *day) submitAll(ctx context.Context) error {
	mean := 0.0
	for range 1000 {
		_, work := d.draw()
		mean += work / 1000
	}
	began := time.Now()
	for at := 0.0; ; {
		part := at / d.length.Seconds()
		rate := d.load * float64(d.cores) / mean * (1 - 0.5*math.Cos(2*math.Pi*part))
		if at += d.rng.ExpFloat64() / rate; at > d.length.Seconds() {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Until(began.Add(time.Duration(at * float64(time.Second))))):
		}
		spec, _ := d.draw()
		j, err := d.souk.SubmitJob(ctx, "", spec)
		if err == nil {
			j, err = d.souk.Job(ctx, j.ID)
		}
		if err != nil {
			return err
		}
		d.note(&j)
		d.seen = append(d.seen, j)
	}
}

// note keeps the newest counts of the member.
func (d *day) note(j *jobs.Job) {
	if j.ETA == nil {
		return
	}
	for i, x := range []*jobs.Expected{j.ETA.Starts, j.ETA.Ends} {
		if i == 1 && j.ETA.Starts == nil {
			i = 2
		}
		if x != nil && x.Coverage.Of >= d.scored[i].Of {
			d.scored[i] = x.Coverage
		}
	}
}

// awaitAll waits for the jobs, and scores what was said of them.
func (d *day) awaitAll(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	d.own, d.width = map[string]*eta.Coverage{}, map[string][]float64{}
	for i := range d.seen {
		said := &d.seen[i]
		j, err := d.souk.WaitJob(ctx, said.ID, said.Tasks, time.Minute)
		if err != nil {
			return err
		}
		tasks, err := d.souk.JobTasks(ctx, said.ID)
		switch {
		case err != nil:
			return err
		case j.State != jobs.Succeeded || j.Ended == nil:
			return fmt.Errorf("job %s %s", j.ID, j.State)
		}
		start := *j.Ended
		for _, t := range tasks {
			if t.BeganAt != nil && t.BeganAt.Before(start) {
				start = *t.BeganAt
			}
		}
		d.waits = append(d.waits, start.Sub(j.Submitted))
		if said.ETA != nil {
			d.score("starts of jobs that waited when asked", said.ETA.Starts, start)
			d.score("ends", said.ETA.Ends, *j.Ended)
		}
	}
	return nil
}

// probe asks with one more job for all that the member has counted.
func (d *day) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	n := d.cores
	spec := jobs.Spec{App: d.app, Last: 4*n - 1, CPUKind: "performance", CPUs: 1, MemoryMB: 64, EstimateMS: 500,
		Command: []string{"/bin/sleep", "0.5"}}
	j, err := d.souk.SubmitJob(ctx, "", spec)
	for err == nil && !j.State.Final() {
		if j, err = d.souk.WaitJob(ctx, j.ID, j.Done(), time.Minute); err == nil {
			d.note(&j)
		}
	}
	return err
}

func (d *day) score(what string, x *jobs.Expected, at time.Time) {
	if x == nil {
		return
	}
	if d.own[what] == nil {
		d.own[what] = &eta.Coverage{}
	}
	d.own[what].Of++
	if !at.Before(x.Low) && !at.After(x.High) {
		d.own[what].Held++
	}
	d.width[what] = append(d.width[what], x.High.Sub(x.Low).Seconds())
}

func (d *day) print() {
	slices.Sort(d.waits)
	fmt.Printf("%d jobs; half waited for %v at most, nine of ten for %v\n", len(d.seen),
		d.waits[len(d.waits)/2].Round(time.Millisecond), d.waits[9*len(d.waits)/10].Round(time.Millisecond))
	for i, what := range []string{"start, when it came", "end, when it came", "end, at its start and half"} {
		fmt.Printf("by the member, %s: %s\n", what, coverageText(d.scored[i]))
	}
	for what, c := range d.own {
		w := d.width[what]
		slices.Sort(w)
		fmt.Printf("asked after the submission, %s: %s, median width %.2f s\n", what, coverageText(*c), w[len(w)/2])
	}
}

func coverageText(c eta.Coverage) string {
	return fmt.Sprintf("%d of %d held, %.1f %%", c.Held, c.Of, 100*float64(c.Held)/float64(max(1, c.Of)))
}
