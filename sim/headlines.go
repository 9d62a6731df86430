package sim

import (
	"fmt"

	"github.com/soukhq/souk/core/scheduler"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/sim/slots"
	"github.com/soukhq/souk/sim/trace"
)

// equal is a trace whose tasks all take the same time.
type equal struct {
	trace.Source
	seconds float64
}

// Next implements trace.Source.
func (e equal) Next() (trace.Job, error) {
	j, err := e.Source.Next()
	j.Mean = e.seconds
	for i := range j.Durations {
		j.Durations[i] = e.seconds
	}
	return j, err
}

// Throughput runs a scheduler on 200 slots and 1,000 jobs that come nearly at once, with as many tasks as those of a
// shape and all tasks equally long, and returns how many tasks end in a second.
func Throughput(name, shape string, seconds float64) (float64, error) {
	src, err := trace.Generate(trace.Shape{Name: shape, Jobs: 1000, Slots: 100_000, Load: 10, Seed: 1})
	if err != nil {
		return 0, err
	}
	row, err := Run(equal{src, seconds}, Setup{Scheduler: name, Workers: 100, Slots: 2,
		Options: slots.Options{Cutoff: 90, Seed: 1}})
	if err == nil && row.Unfinished > 0 {
		err = fault.New(fault.Internal, codeUnfinished, "%s did not end %d jobs", name, row.Unfinished)
	}
	return float64(row.Tasks) / row.Makespan, err
}

// Uneven runs a scheduler on 200 workers of 8 slots of uneven speed, at a load by the tasks' best speed, and jobs of 100
// tasks that take 100 ms on average there.
func Uneven(name string, load, uneven float64, seeds int, each func(slots.Result)) (Summary, error) {
	open := func(seed uint64) (trace.Source, func() error, error) {
		src, err := trace.Generate(trace.Shape{Name: "sparrow", Jobs: 1500, Slots: 1600, Load: load, Seed: seed})
		return src, func() error { return nil }, err
	}
	return Each(open, Setup{Scheduler: name, Workers: 200, Slots: 8, Warmup: 0.5, Options: slots.Options{Cutoff: 1000,
		Slowing: scheduler.Slowing{Uneven: uneven}, Each: each}}, seeds, nil)
}

const tarcilHead = `## Tarcil against sampling

Tarcil's paper has tasks take 41 % less time than with a sampling scheduler, for short jobs on a highly loaded cluster of uneven
servers. Here 200 workers of 8 slots run jobs of 100 tasks of 100 ms on average; on a worker that does not suit a job its tasks take
up to so many times as long (*uneven*), uniformly. The load is such that Sparrow has the share *busy* of the slots busy. Means of
the jobs' runtimes in milliseconds, and messages a task.

| uneven | busy | sparrow | batch | tarcil | less than sparrow | tarcil's busy | messages: sparrow, tarcil |
| --- | --- | --- | --- | --- | --- | --- | --- |
`

const mercuryHead = `
## Mercury against YARN

Mercury's paper has more than 35 % more task throughput than YARN on production-derived loads. Here 200 slots run 1,000 jobs that come
nearly at once, of as many tasks as the shapes' jobs have and all equally long; tasks a second.

| tasks of | heartbeats of | yahoo: yarn | mercury | gain | cloudera: yarn | mercury | gain |
| --- | --- | --- | --- | --- | --- | --- | --- |
`

const mercuryFoot = `
The gain is what heartbeats cost YARN: a slot idles from a task's end until those of its node and of the next task's master have
come, about one interval in all. 35 % more takes tasks of 3 s, or heartbeats of 2 s with tasks of 5 s. A real YARN has delays
besides heartbeats. Mercury's guaranteed containers kill queueable ones in their way; here they wait for the first to end.
`

// writeHeadlines writes what Tarcil's and Mercury's papers claim, and what comes out here.
func (r *results) writeHeadlines() error {
	fmt.Fprint(r.out, tarcilHead)
	for _, c := range []struct{ load, uneven float64 }{{0.48, 0.5}, {0.64, 0.5}, {0.72, 0.5}, {0.4, 1}, {0.53, 1},
		{0.6, 1}, {0.3, 2}, {0.4, 2}, {0.45, 2}} {
		r.tell(fmt.Sprintf("Tarcil, uneven %g, load %g", c.uneven, c.load))
		var rows [3]Summary
		for i, name := range []string{"sparrow", "batch", "tarcil"} {
			s, err := Uneven(name, c.load, c.uneven, r.seeds, nil)
			if err != nil {
				return err
			}
			rows[i] = s
		}
		sparrow, batch, tarcil := rows[0], rows[1], rows[2]
		fmt.Fprintf(r.out, "| %g | %.0f %% | %.1f | %.1f | %.1f | %.0f %% | %.0f %% | %.1f, %.1f |\n", 1+c.uneven,
			100*sparrow.Busy, 1000*sparrow.Mean, 1000*batch.Mean, 1000*tarcil.Mean, 100*(1-tarcil.Mean/sparrow.Mean),
			100*tarcil.Busy, sparrow.Messages, tarcil.Messages)
	}
	fmt.Fprint(r.out, mercuryHead)
	for _, c := range []struct{ seconds, beat float64 }{{3, 1}, {5, 1}, {10, 1}, {30, 1}, {60, 1}, {5, 2}} {
		r.tell(fmt.Sprintf("Mercury, tasks of %g s", c.seconds))
		fmt.Fprintf(r.out, "| %g s | %g s |", c.seconds, c.beat)
		for _, shape := range []string{"yahoo", "cloudera"} {
			yarn, err := Throughput(fmt.Sprintf("yarn:%g", c.beat), shape, c.seconds)
			if err != nil {
				return err
			}
			mercury, err := Throughput(fmt.Sprintf("mercury:%g", c.beat), shape, c.seconds)
			if err != nil {
				return err
			}
			fmt.Fprintf(r.out, " %.2f | %.2f | %.0f %% |", yarn, mercury, 100*(mercury/yarn-1))
		}
		fmt.Fprintln(r.out)
	}
	fmt.Fprint(r.out, mercuryFoot)
	return nil
}
