package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"strings"
	"time"

	"github.com/soukhq/souk/cli/check/history"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/test/netns"
)

// The phases around a fault, and the bounds of those after it.
const (
	before   = time.Second // of clients at work before the fault
	askPause = 100 * time.Millisecond
	after    = time.Second      // and behind it
	resolve  = 60 * time.Second // until calls without an answer are given up
	agreeIn  = 45 * time.Second // until all members must know the same
	searchIn = 5 * time.Minute  // search time of the models

	// Bound is how long a run may last beyond its fault: its context ends then.
	Bound = 6 * time.Minute
)

// explain dumps all goroutines of the harness and, to their logs, of the agents, which ends them.
func (r *run) explain() {
	_ = pprof.Lookup("goroutine").WriteTo(r.o.Log, 1) // only for debugging
	for _, m := range r.ms {
		m.dump()
	}
}

// run is one run.
type run struct {
	o       Options
	hosts   netns.Hosts
	ms      []*member
	rng     *rand.Rand
	rec     *history.Recorder
	load    *load
	kept    []*keeper
	batch   *submitter
	witness witness
	inside  *containers
	rep     Report
	begin   time.Time
	from    time.Time // of the fault
	till    time.Time

	smaller []string // members on the smaller side of a partition
	forgot  bool     // a worker's disk went back in time
	// the members whose disk went back in time
	forgotten map[string]bool
	extra     *netns.Host
	ended     []*member // copies or originals that must not live
}

// Run does one run on intact hosts, and leaves them intact. An error is the harness's; violations of the cluster are in
// the report.
func Run(ctx context.Context, hosts netns.Hosts, o Options) (rep Report, err error) {
	if err := o.settle(); err != nil {
		return rep, fault.Wrap(err, fault.Invalid, codeFault, "the options of the run are invalid")
	}
	if len(hosts) < o.Nodes+Extra {
		return rep, fault.New(fault.Invalid, codeHosts, "%d members need as many hosts and %d more; there are %d",
			o.Nodes, Extra, len(hosts))
	}
	o.Log = &lockedWriter{w: o.Log}
	file, err := os.Create(filepath.Join(o.Dir, "history"))
	if err != nil {
		return rep, fault.Wrap(err, fault.Internal, fault.CodeHistory, "the history cannot be written")
	}
	defer file.Close()
	ctx, cancel := context.WithTimeoutCause(ctx, o.For+Bound,
		fault.New(fault.Timeout, codeRun, "the run was not over after %v", o.For+Bound))
	defer cancel()
	r := &run{
		o:     o,
		hosts: hosts[:o.Nodes],
		extra: hosts[o.Nodes],
		rng:   rand.New(rand.NewPCG(o.Seed, 1)),
		rec:   history.NewRecorder(file),
		begin: time.Now(),

		forgotten: map[string]bool{},
	}
	r.rep = Report{
		Fault:      o.Fault,
		Seed:       o.Seed,
		Nodes:      o.Nodes,
		FaultSecs:  o.For.Seconds(),
		Images:     o.Images,
		Services:   o.Services,
		Violations: []string{},
		Answers:    []string{},
		Repeat: fmt.Sprintf("go run ./test/faultrun --fault %s --seed %d --nodes %d --clients %d --rate %g "+
			"--for %s --images %d --services %d --jobs %d",
			o.Fault, o.Seed, o.Nodes, o.Clients, o.Rate, o.For, o.Images, o.Services, o.Jobs),
	}
	defer func() {
		if err != nil {
			r.explain()
		}
		end(append(r.ms, r.ended...))
	}()
	if r.witness, err = newWitness(o.Dir); err != nil {
		return r.rep, err
	}
	if r.ms, err = build(ctx, &r.o, r.hosts); err != nil {
		return r.rep, err
	}
	r.say("%d members serve", len(r.ms))
	if _, err := r.ms[0].cl.CreateApp(ctx, app); err != nil {
		return r.rep, err
	}
	if err := r.everywhere(ctx); err != nil {
		return r.rep, err
	}
	seen, err := r.useImages(ctx)
	if err != nil {
		return r.rep, err
	}
	defer seen()
	if err := r.breakIt(ctx); err != nil {
		return r.rep, err
	}
	err = r.judge(ctx)
	r.rep.TookSecs = time.Since(r.begin).Seconds()
	return r.rep, err
}

func (r *run) say(format string, a ...any) {
	fmt.Fprintf(r.o.Log, "%7.3fs %s\n", time.Since(r.begin).Seconds(), fmt.Sprintf(format, a...))
}

// everywhere waits until each member knows the app and all other members.
func (r *run) everywhere(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	for _, m := range r.ms {
		for {
			_, err := m.cl.App(ctx, app)
			w, errW := m.cl.Workers(ctx)
			if err == nil && errW == nil && len(w.Workers) == len(r.ms) {
				break
			}
			if err := wait(ctx, 20*time.Millisecond); err != nil {
				return fault.New(fault.Timeout, codeCluster,
					"%s does not know all others after %v", m.id, startPatience)
			}
		}
	}
	return nil
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// breakIt runs the clients before, during and after the fault, and repairs it.
func (r *run) breakIt(ctx context.Context) error {
	r.load = &load{ms: slices.Clone(r.ms), o: &r.o, rec: r.rec, command: r.witness.command(), soon: soon,
		stop: make(chan struct{})}
	var err error
	if r.kept, err = r.keepers(ctx); err != nil {
		return err
	}
	if r.batch, err = r.newSubmitter(); err != nil {
		return err
	}
	r.load.work(ctx)
	r.load.wg.Go(func() { r.batch.work(ctx) })
	r.load.wg.Go(func() { r.batch.watch(ctx) })
	watching, unwatch := context.WithCancel(ctx)
	defer unwatch()
	r.batch.watchMembers(watching)
	for _, k := range r.kept {
		r.load.wg.Go(func() { k.work(ctx) })
	}
	err = wait(ctx, before+time.Duration(r.rng.Int64N(int64(before))))
	r.from = time.Now()
	if err == nil {
		r.say("fault: %s", r.o.Fault)
		err = r.fault(ctx)
	}
	if heal := r.hosts.Heal(); err == nil {
		err = heal
	}
	r.till = time.Now()
	r.say("all is mended")
	whole := make(chan float64, 1)
	looking, found := context.WithTimeout(ctx, after+resolve)
	defer found()
	go func() { whole <- r.whole(looking) }()
	if err == nil {
		err = wait(ctx, after)
	}
	r.load.until = time.Now().Add(resolve)
	close(r.load.stop)
	if err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() { r.load.wg.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(resolve + 30*time.Second):
		return fault.New(fault.Internal, codeClients, "the clients did not come to an end: a bug of the harness")
	}
	r.rep.Answered = time.Since(r.till).Seconds()
	r.rep.Whole = <-whole
	r.say("every call has its answer, or was given up; all members hear all others after %.1f s", r.rep.Whole)
	return nil
}

// whole waits until each member sees all others alive, and returns the time since the fault; 0: never.
func (r *run) whole(ctx context.Context) float64 {
	for _, m := range r.ms {
		for {
			try, cancel := context.WithTimeout(ctx, askTime)
			list, err := m.cl.Members(try)
			cancel()
			alive := 0
			for _, x := range list {
				if x.State == cluster.MemberAlive {
					alive++
				}
			}
			if err == nil && alive == len(r.ms) {
				break
			}
			if wait(ctx, 50*time.Millisecond) != nil {
				return 0
			}
		}
	}
	return time.Since(r.till).Seconds()
}

// judge checks the clients' answers against the cluster and the models.
func (r *run) judge(ctx context.Context) error {
	ops, err := r.rec.Ops()
	if err != nil {
		return fault.Wrap(err, fault.Internal, fault.CodeHistory, "the history cannot be written")
	}
	r.count(ops)
	for _, m := range r.ms {
		if err := m.ready(ctx); err != nil {
			r.rep.Violations = append(r.rep.Violations, err.Error())
			return nil
		}
	}
	r.exits()
	if err := r.keeps(ctx); err != nil {
		return err
	}
	if err := r.jobsEnd(ctx); err != nil {
		return err
	}
	if err := r.doctor(ctx); err != nil {
		return err
	}
	if err := r.outside(ctx, ops); err != nil {
		return err
	}
	slots := r.o.Slots
	switch r.o.Fault {
	case Power, OldDisk, DiskFull, PowerLoss, LostFile:
		slots = 0 // stopped machines occupy no room, and the history does not say which are
	}
	if r.o.Fault == PIDs && r.rep.Kills > 0 {
		slots = 0 // an agent that ended has forgotten its holds
	}
	if r.forgot {
		slots = 0 // nor does it say which holds the worker forgot
	}
	res := history.Check(ops, slots, searchIn)
	r.rep.Histories, r.rep.Undecided = res.Parts, res.Unknown
	r.rep.Violations = append(r.rep.Violations, res.Violations...)
	r.rep.Answers = append(r.rep.Answers, r.load.odd...)
	r.say("%d histories searched, %d violations in all", res.Parts, len(r.rep.Violations))
	return r.nothingLeft(ctx)
}

// exits reports agents that ended by themselves without the fault causing it.
func (r *run) exits() {
	for _, m := range slices.Concat(r.ms, r.ended) {
		m.mu.Lock()
		n := m.exits
		m.mu.Unlock()
		switch {
		case n == 0 || r.o.Fault == LostFile:
		case m.pids != "": // Go ends a program without new threads; it must come back by itself
			r.rep.Kills += n
		default:
			r.rep.Violations = append(r.rep.Violations,
				fmt.Sprintf("the agent of %s ended by itself, %d times; see %s", m.id, n, m.log.Name()))
		}
	}
}

// keeps reports services that are not as last requested, and violations that their machines saw. A worker whose disk
// went back in time, or a copy, has forgotten which terms it obeyed.
func (r *run) keeps(ctx context.Context) error {
	for _, k := range r.kept {
		begin := time.Now()
		wrong := k.settled(ctx, r.say)
		said, err := k.said(!r.forgot && r.o.Fault != Clone)
		if err != nil {
			return fault.Wrap(err, fault.Internal, codeWitness, "what a service's witnesses say cannot be read")
		}
		r.rep.Releases += k.n
		r.rep.Violations = append(r.rep.Violations, append(wrong, said...)...)
		r.say("service %s: %d releases, as wanted after %.1f s, %d sentences", k.app, k.n, time.Since(begin).Seconds(),
			len(wrong)+len(said))
	}
	return nil
}

// doctor runs souk doctor, the users' checker, on a member's host.
func (r *run) doctor(ctx context.Context) error {
	at := r.ms[r.rng.IntN(len(r.ms))]
	begin := time.Now()
	out, err := at.souk(ctx, "doctor", "--invariants", "--json", "--history", filepath.Join(r.o.Dir, "history"),
		"--within", agreeIn.String())
	found := 0
	for line := range strings.Lines(out) {
		var i struct {
			Number   int
			Name     string
			OK       bool
			Checked  string
			Evidence []string
		}
		if json.Unmarshal([]byte(line), &i) != nil {
			continue
		}
		found++
		r.say("invariant %d: %v, %s", i.Number, i.OK, i.Checked)
		if i.Number == 12 && i.OK {
			if at := strings.LastIndex(i.Checked, ", for "); at >= 0 {
				if d, err := time.ParseDuration(i.Checked[at+len(", for "):]); err == nil {
					r.rep.Agreed = (begin.Sub(r.till) + d).Seconds()
				}
			}
		}
		if !i.OK {
			for _, e := range i.Evidence {
				r.rep.Violations = append(r.rep.Violations, fmt.Sprintf("invariant %d: %s", i.Number, e))
			}
		}
	}
	if found == 0 {
		return fault.Wrap(err, fault.Internal, codeDoctor, "souk doctor --invariants says nothing")
	}
	return nil
}

func (r *run) count(ops []history.Op) {
	for _, o := range ops {
		if o.Tries > 1 {
			r.rep.Repeated++
		}
		switch {
		case o.Kind == history.Create && o.Outcome == history.Yes:
			r.rep.Launches++
			r.rep.Started++
			if o.Return > r.from.UnixNano() && o.Return < r.till.UnixNano() {
				r.rep.During++
				if slices.Contains(r.smaller, o.Gateway) {
					r.rep.Smaller++
				}
			}
		case o.Kind == history.Create && o.Outcome == history.No:
			r.rep.Launches++
			r.rep.Refused++
		case o.Outcome == history.Unsure:
			r.rep.Unsure++
		case o.Kind == history.Destroy && o.Outcome == history.Yes:
			r.rep.Destroyed++
		case o.Kind == history.Hold && o.Outcome == history.Yes:
			r.rep.Holds++
		case o.Kind == history.Lease && o.Outcome == history.Yes:
			r.rep.Leases++
		}
	}
}
