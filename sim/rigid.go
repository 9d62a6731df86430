package sim

import (
	"context"
	"fmt"
	"math"
	"path/filepath"

	core "github.com/soukhq/souk/core/backfill"
	"github.com/soukhq/souk/sim/backfill"
)

// RigidCase is a case of the tables of rigid jobs.
type RigidCase struct {
	Name, File string
	Processors int64
	Reading    backfill.Reading
	Seeds      int          // of estimates, from 1 on; figures are means over them
	Peers      []RigidPeers // policies and the peer's figures
}

// RigidPeers is what a peer's simulator has for one policy, means over the case's seeds.
type RigidPeers struct {
	Policy        core.Policy
	Wait, Bounded float64 // means over jobs: seconds, and the bounded slowdown
}

// RigidCases returns the cases of rigid jobs in docs/results.md. The peer is pyss, run on the jobs that souk sim backfill
// --swf writes, but for all of LCG, where it is the recursion for first come, first served on equal processors.
func RigidCases() []RigidCase {
	const nasa, lcg = "swf/NASA-iPSC-1993-3.1-cln.swf.zip", "swf/LCG.swf.gz"
	const fcfs, easy, conservative = core.FCFS, core.EASY, core.Conservative
	over := backfill.Reading{Estimates: backfill.ByFactor, Over: 5, Load: 1.2}
	faster := over
	faster.Load = 1.5
	return []RigidCase{
		{"NASA, exact", nasa, 128, backfill.Reading{}, 1, []RigidPeers{
			{fcfs, 8.005, 1.0260}, {easy, 4.028, 1.0118}, {conservative, 4.028, 1.0118}}},
		{"NASA x 1.2, exact", nasa, 128, backfill.Reading{Load: 1.2}, 1, []RigidPeers{
			{fcfs, 567.519, 12.0137}, {easy, 340.544, 5.5305}, {conservative, 274.732, 4.9787}}},
		{"NASA x 1.5, exact", nasa, 128, backfill.Reading{Load: 1.5}, 1, []RigidPeers{
			{fcfs, 43743.865, 1030.0788}, {easy, 4150.627, 69.7085}, {conservative, 4387.127, 71.0225}}},
		{"NASA x 1.2, f = 5", nasa, 128, over, 40, []RigidPeers{
			{easy, 346.794, 5.3694}, {conservative, 308.087, 4.8613}}},
		{"NASA x 1.5, f = 5", nasa, 128, faster, 40, []RigidPeers{
			{easy, 3792.622, 56.7915}, {conservative, 3843.697, 58.9953}}},
		{"LCG, one job of 50", lcg, 36, backfill.Reading{Every: 50}, 1, []RigidPeers{
			{fcfs, 22941.523, 171.4491}, {easy, 22941.523, 171.4491}, {conservative, 22941.523, 171.4491}}},
		{"LCG", lcg, 1800, backfill.Reading{}, 1, []RigidPeers{
			{fcfs, 13338.109, 109.2579}, {easy, 13338.109, 109.2579}}},
	}
}

// rigidMeans are means over the seeds of a case.
type rigidMeans struct{ wait, bounded, longest, utilisation, backfilled float64 }

// runRigid runs a case under a policy; singly is pyss's order of what happens at one moment.
func runRigid(dir string, c RigidCase, policy core.Policy, singly bool) (rigidMeans, error) {
	var m rigidMeans
	k := float64(c.Seeds)
	for seed := range uint64(c.Seeds) {
		src, done, err := FromFile(filepath.Join(dir, c.File))(seed)
		if err != nil {
			return m, err
		}
		c.Reading.Seed = seed + 1
		jobs, err := backfill.Read(src, c.Reading)
		if ended := done(); err == nil {
			err = ended
		}
		if err != nil {
			return m, err
		}
		r, _, err := backfill.Run(context.Background(), backfill.Config{Policy: policy, Processors: c.Processors,
			Singly: singly}, jobs)
		if err != nil {
			return m, err
		}
		m.wait += r.MeanWait / k
		m.bounded += r.Bounded / k
		m.longest += r.MaxWait / k
		m.utilisation += r.Utilisation / k
		m.backfilled += float64(r.Backfilled) / float64(r.Jobs) / k
	}
	return m, nil
}

const rigidHead = `
## Rigid jobs with and without backfill

Jobs that need all their processors at once, in one pool, by ` + "`souk sim backfill`" + `. NASA is the log of an iPSC/860 of 1993, 18,239
jobs on 128 processors. It has neither estimates nor waits: its submissions are starts, so that nearly nothing waits, and its
jobs also come 1.2 and 1.5 times as fast. *Exact* estimates are the run times; with *f = 5* they are drawn between the run time
and six times it (Mu'alem and Feitelson's model; means over seeds 1 to 40). LCG is a grid's log of 2005, 188,041 jobs of one
processor with estimates, which no job exceeds, on 1,800 processors, and one job of 50 on 36. Where no job needs more than one
processor all policies give the same waits; that tests the queue, and reservations that move. A bounded slowdown is (wait + run) /
max(run, 10 s), at least 1. Figures are means over all jobs.

*Peer's* is pyss, the Python Scheduling Simulator (GitHub dinesh121991/pyss at 44a2423, its last version, of 2007), run unchanged on
the jobs that ` + "`--swf`" + ` writes. *Its order* is how far off souk is with ` + "`--compat pyss`" + `, which has a pass of the policy for each
arrival and each early end of one moment, as pyss has; souk otherwise has one pass for all of them. For all of LCG pyss is too slow,
and the peer is the recursion for first come, first served: a job takes the processor that is free first.

| jobs | policy | mean wait | peer's | off | its order | bounded slowdown | peer's | off | its order | longest wait | utilisation | backfilled |
| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
`

const rigidFoot = `
With exact estimates, and on LCG, each job starts at the same second as the peer's. With f = 5 so it does in pyss's order, in 155 of
the 160 runs. In the other five, all conservative, 54 to 887 jobs differ, as pyss compresses once more for each end that comes exactly at its
estimate; with that, too, they are the same.

In souk's own order a run can differ more: which of two jobs starts first moves every job after it. At 1.5 times the load single
seeds of conservative backfill are up to 25 % off in mean wait, in both directions; over 100 seeds its mean wait is 0.3 % (standard error 0.5 %) and
EASY's 0.1 % (0.3 %) below those of pyss's order. An example of ten processors: jobs 1 and 2 have five each, ask for 20 s and end
at 5; job 3 comes at 1 and needs ten for 10 s, job 4 comes at 2 and needs five for 15 s. At 5 all are free, and souk starts job 3.
pyss looks at the end of job 1 alone. By its estimate job 2, which has ended too, runs until 20; by then job 4 would be done. So
pyss starts job 4, and job 3 waits until 20. souk takes what happens at one moment together because the capacity is free then.

Both take a run time of 0 s as 1 s. A job past its estimate, of which there is none here, pyss cuts off; in souk it goes on, and is
expected to end at any moment.

`

func (r *results) writeRigid() error {
	fmt.Fprint(r.out, rigidHead)
	for _, c := range RigidCases() {
		for _, p := range c.Peers {
			r.tell(fmt.Sprintf("%s: %v", c.Name, p.Policy))
			own, err := runRigid(r.dir, c, p.Policy, false)
			if err != nil {
				return err
			}
			theirs, err := runRigid(r.dir, c, p.Policy, true)
			if err != nil {
				return err
			}
			fmt.Fprintf(r.out, "| %s | %v | %s | %s | %+.1f %% | %+.1f %% | %.3f | %.3f | %+.1f %% | "+
				"%+.1f %% | %.0f | %.1f %% | %.0f %% |\n", c.Name, p.Policy, formatBrief(own.wait), formatBrief(p.Wait),
				percentOff(own.wait, p.Wait), percentOff(theirs.wait, p.Wait), own.bounded, p.Bounded,
				percentOff(own.bounded, p.Bounded), percentOff(theirs.bounded, p.Bounded), own.longest,
				100*own.utilisation, 100*own.backfilled)
		}
	}
	fmt.Fprint(r.out, rigidFoot)
	return nil
}

// percentOff returns how many percent got is above want, in tenths, so that 0 is printed without a minus.
func percentOff(got, want float64) float64 { return math.Round(1000*(got/want-1))/10 + 0 }
