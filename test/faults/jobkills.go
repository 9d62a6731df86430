package faults

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/test/netns"
)

// KillOptions say what a run of KillWhileJob is. Exe and Dir are needed.
type KillOptions struct {
	Exe   string
	Dir   string
	Nodes int           // members
	CPUs  int           // of each member: so many tasks it runs at once
	Tasks int           // of the one job
	Nap   time.Duration // that a task sleeps; 0: a task is "true"
	// Scheduler of the job: NAME or NAME:N; "": the auction, DrawnScheduler: drawn by Seed
	Scheduler string
	Kills     int
	Cut       time.Duration // the job's keeper is cut from the others for so long, once; 0: never
	Seed      uint64
	Patience  time.Duration // until the job has ended, after the last kill
	Out       io.Writer     // the table
}

// DrawnScheduler stands for the auction, or one of Architectures.
const DrawnScheduler = "drawn"

// Pauses of KillWhileJob.
const (
	killRest  = time.Second      // between two kills, at least
	killAway  = 2 * time.Second  // a killed member is away for so long at least
	killMore  = 6 * time.Second  // and at most so much longer
	heirIn    = 20 * time.Second // until a job has an heir
	agreeJob  = 90 * time.Second // until all members list the job once
	listTasks = time.Minute      // for all tasks of the job
)

// jobKiller breaks a cluster while one job runs.
type jobKiller struct {
	o     KillOptions
	ms    []*member
	rng   *rand.Rand
	id    string
	from  time.Time
	wrong []string
}

// KillWhileJob submits one job, and kills processes of souk and hosts while it runs: each comes back after some seconds.
// Once it cuts the member that keeps the job from the others. In the end each task must have one result. It returns what
// is wrong, in sentences; an error is the harness's.
func KillWhileJob(ctx context.Context, hosts netns.Hosts, o KillOptions) (wrong []string, err error) {
	r := Options{Fault: Kill, Exe: o.Exe, Dir: o.Dir, Nodes: o.Nodes, Flags: []string{"--cpus", fmt.Sprint(o.CPUs)}}
	if err := r.settle(); err != nil {
		return nil, fault.Wrap(err, fault.Invalid, codeFault, "the options of the run are invalid")
	}
	k := &jobKiller{o: o, rng: rand.New(rand.NewPCG(o.Seed, 3000))}
	k.ms, err = build(ctx, &r, hosts[:o.Nodes])
	defer func() { end(k.ms) }()
	if err != nil {
		return nil, err
	}
	if _, err := k.ms[0].cl.CreateApp(ctx, app); err != nil {
		return nil, err
	}
	if err := (&run{o: r, ms: k.ms}).everywhere(ctx); err != nil {
		return nil, err
	}
	if err := k.submit(ctx); err != nil {
		return nil, err
	}
	if err := k.breakAll(ctx); err != nil {
		return k.wrong, err
	}
	return k.wrong, k.judge(ctx)
}

func (k *jobKiller) submit(ctx context.Context) error {
	k.id, k.from = jobs.ID(k.rng.Uint64()), time.Now()
	spec := jobs.Spec{App: app, Name: "killed", Last: k.o.Tasks - 1, CPUKind: machine.Performance, CPUs: 1,
		MemoryMB: taskMB, Command: []string{"true"}, Scheduler: k.o.Scheduler}
	if spec.Scheduler == DrawnScheduler { // apart from rng, so that a seed kills the same for every scheduler
		spec.Scheduler = drawScheduler(rand.New(rand.NewPCG(k.o.Seed, 3001)))
	}
	k.print("the job's scheduler is %s", schedulerName(spec.Scheduler))
	if k.o.Nap > 0 {
		spec.Command = []string{"sleep", fmt.Sprint(k.o.Nap.Seconds())}
	}
	_, err := k.ms[0].cl.SubmitJob(ctx, k.id, spec)
	return err
}

func (k *jobKiller) print(format string, a ...any) { fmt.Fprintf(k.o.Out, format+"\n", a...) }

func (k *jobKiller) isWrong(format string, a ...any) {
	text := fmt.Sprintf(format, a...)
	k.wrong = append(k.wrong, text)
	k.print("WRONG: %s", text)
}

// member returns the member with an id.
func (k *jobKiller) member(id string) *member {
	i := slices.IndexFunc(k.ms, func(m *member) bool { return m.id == id })
	if i < 0 {
		return nil
	}
	return k.ms[i]
}

// look asks any member for the job.
func (k *jobKiller) look(ctx context.Context) (j jobs.Job, err error) {
	for _, m := range k.ms {
		try, cancel := context.WithTimeout(ctx, askTime)
		j, err = m.cl.Job(try, k.id)
		cancel()
		if err == nil {
			return j, nil
		}
	}
	return j, err
}

// settled waits until the job has an heir, or has ended.
func (k *jobKiller) settled(ctx context.Context) (j jobs.Job, err error) {
	for until := time.Now().Add(heirIn); ; {
		j, err = k.look(ctx)
		if err == nil && (j.Heir != "" || j.State.Final()) {
			return j, nil
		}
		if time.Now().After(until) {
			k.isWrong("%v after all members serve, the job has no heir: kept by %s, %v", heirIn, claim(&j), err)
			return j, err
		}
		if err := wait(ctx, askPause); err != nil {
			return j, err
		}
	}
}

// breakAll kills, and once cuts.
func (k *jobKiller) breakAll(ctx context.Context) error {
	k.print("| at (s) | what | kept by | heir | done before | away (s) | shown after (s) | then kept by | back (s) |")
	k.print("| ---: | --- | --- | --- | ---: | ---: | ---: | --- | ---: |")
	for n := range k.o.Kills {
		if err := wait(ctx, killRest+time.Duration(k.rng.Int64N(int64(killRest)))); err != nil {
			return err
		}
		j, err := k.settled(ctx)
		if err != nil {
			return err
		}
		if j.State.Final() {
			k.print("the job has ended before kill %d of %d", n+1, k.o.Kills)
			return nil
		}
		if err := k.killOne(ctx, &j); err != nil {
			return err
		}
		if n == k.o.Kills/2 && k.o.Cut > 0 {
			if err := k.cut(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// killOne kills a process of a random member, or all of the keeper's host.
func (k *jobKiller) killOne(ctx context.Context, j *jobs.Job) error {
	m, what := k.ms[k.rng.IntN(len(k.ms))], []string{"agent", "reaper", "host"}[k.rng.IntN(3)]
	if what == "host" {
		m = k.member(string(j.Member))
	}
	away := killAway + time.Duration(k.rng.Int64N(int64(killMore)))
	at := time.Since(k.from)
	switch what {
	case "agent":
		m.kill(false)
	case "reaper":
		m.signal("reaper", syscall.SIGKILL) // its agent starts another one
		away = 0
	default:
		m.powerOff()
	}
	shown, err := k.watch(ctx, j, m, away)
	if err != nil {
		return err
	}
	then := "no member that answers"
	if after, err := k.look(ctx); err == nil {
		then = claim(&after)
	}
	begin := time.Now()
	if what != "reaper" {
		if err := m.start(); err != nil {
			return err
		}
		if err := m.ready(ctx); err != nil {
			return err
		}
	}
	k.agreed(ctx)
	how := "-"
	if m.id == string(j.Member) && what != "reaper" && j.Heir != "" {
		how = fmt.Sprintf("%.2f", shown.Seconds())
		if shown > showIn {
			k.isWrong("the keeper %s was killed (%s), and the job was shown after %.2f s", m.id, what, shown.Seconds())
		}
	}
	k.print("| %.0f | %s of %s | %s | %s | %d | %.1f | %s | %s | %.1f |", at.Seconds(), what, m.id, claim(j), j.Heir,
		j.Done(), away.Seconds(), how, then, time.Since(begin).Seconds())
	return nil
}

// watch asks all members but the dead one for the job for a while. It returns the longest time that one of them did not
// show it.
func (k *jobKiller) watch(ctx context.Context, j *jobs.Job, dead *member,
	during time.Duration) (longest time.Duration, err error) {
	var all sync.WaitGroup
	var mu sync.Mutex
	until := time.Now().Add(during)
	for _, m := range k.ms {
		if m == dead {
			continue
		}
		all.Go(func() {
			for asked := false; !asked || time.Now().Before(until); asked = true {
				begin := time.Now()
				try, cancel := context.WithTimeout(ctx, showGive)
				for {
					x, err := m.cl.Job(try, k.id)
					if err == nil && x.ID == j.ID || wait(try, showPause/4) != nil {
						break
					}
				}
				cancel()
				mu.Lock()
				longest = max(longest, time.Since(begin))
				mu.Unlock()
				_ = wait(ctx, showPause) // it ends with ctx
			}
		})
	}
	all.Wait()
	return longest, ctx.Err()
}

// cut cuts the member that keeps the job from the others for a while.
func (k *jobKiller) cut(ctx context.Context) error {
	j, err := k.settled(ctx)
	if err != nil {
		return err
	}
	at := time.Since(k.from)
	var hosts netns.Hosts
	for _, m := range k.ms {
		hosts = append(hosts, m.host)
	}
	err = hosts.Part(func(i int) bool { return k.ms[i].id == string(j.Member) })
	if err == nil {
		err = wait(ctx, k.o.Cut)
	}
	var sides []string
	for _, m := range k.ms {
		try, cancel := context.WithTimeout(ctx, askTime)
		x, errX := m.cl.Job(try, k.id)
		cancel()
		if errX != nil {
			sides = append(sides, m.id+" says "+errX.Error())
			continue
		}
		sides = append(sides, fmt.Sprintf("%s says %s, %d done", m.id, claim(&x), x.Done()))
	}
	if heal := hosts.Heal(); err == nil {
		err = heal
	}
	if err != nil {
		return err
	}
	begin := time.Now()
	k.agreed(ctx)
	after, err := k.look(ctx)
	k.print("| %.0f | %s is cut off | %s | %s | %d | %.1f | - | %s | %.1f |", at.Seconds(), j.Member, claim(&j), j.Heir,
		j.Done(), k.o.Cut.Seconds(), claim(&after), time.Since(begin).Seconds())
	k.print("at the end of the cut: %s", strings.Join(sides, "; "))
	return err
}

// agreed waits until all members list the job once, with the same keeper.
func (k *jobKiller) agreed(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, agreeJob)
	defer cancel()
	s := &submitter{load: &load{ms: k.ms}}
	for {
		try, cancel := context.WithTimeout(ctx, askTime)
		j, err := k.look(try)
		if err == nil {
			err = s.agreed(try, &j)
		}
		cancel()
		if err == nil {
			return
		}
		if wait(ctx, askPause) != nil {
			k.isWrong("%v later not all members list the job once with the same keeper: %v", agreeJob, err)
			return
		}
	}
}

// judge waits until the job has ended, and looks at all of its tasks at each member.
func (k *jobKiller) judge(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, k.o.Patience+agreeJob+time.Duration(len(k.ms))*listTasks)
	defer cancel()
	var j jobs.Job
	for until := time.Now().Add(k.o.Patience); !j.State.Final(); {
		var err error
		if j, err = k.look(ctx); err == nil && j.State.Final() {
			break
		}
		if time.Now().After(until) {
			k.isWrong("%v after the last kill the job is %s, kept by %s, with %d of %d tasks done, %d running, "+
				"%d waiting: %s (%v)", k.o.Patience, j.State, claim(&j), j.Done(), j.Tasks, j.Running, j.Waiting,
				j.Why, err)
			return nil
		}
		if err := wait(ctx, askPause); err != nil {
			return err
		}
	}
	k.print("the job ended after %.0f s: %s, kept by %s, heir %s; %d succeeded, %d failed, %d cancelled; "+
		"%d attempts lost, %d retried", time.Since(k.from).Seconds(), j.State, claim(&j), j.Heir, j.Succeeded, j.Failed,
		j.Cancelled, j.Lost, j.Retried)
	k.agreed(ctx)
	var first []jobs.Task
	for _, m := range k.ms {
		list, err := m.cl.JobTasks(ctx, k.id)
		if err != nil {
			k.isWrong("%s does not list the tasks: %v", m.id, err)
			continue
		}
		k.checkTasks(m, list)
		if first == nil {
			first = list
			k.printShares(list)
		}
		for i := range min(len(list), len(first)) {
			if a, b := list[i], first[i]; a.Index != b.Index || a.Worker != b.Worker || a.Attempt != b.Attempt {
				k.isWrong("%s lists task %d of attempt %d at %s, and %s of attempt %d at %s", m.id, a.Index, a.Attempt,
					a.Worker, k.ms[0].id, b.Attempt, b.Worker)
				break
			}
		}
	}
	return nil
}

// checkTasks checks that each index has one result.
func (k *jobKiller) checkTasks(at *member, list []jobs.Task) {
	seen, open := map[int]int{}, 0
	for _, t := range list {
		seen[t.Index]++
		if !isEnded(t) || t.ExitCode == nil {
			open++
		}
	}
	lacks, twice := 0, 0
	for i := range k.o.Tasks {
		switch seen[i] {
		case 0:
			lacks++
		case 1:
		default:
			twice++
		}
	}
	if lacks+twice+open > 0 || len(list) != k.o.Tasks {
		k.isWrong("%s lists %d tasks of %d: %d are missing, %d are there twice, %d have no result", at.id, len(list),
			k.o.Tasks, lacks, twice, open)
	}
}

// printShares prints how many results are of each member.
func (k *jobKiller) printShares(list []jobs.Task) {
	share, code := map[string]int{}, map[string]int{}
	for _, t := range list {
		share[string(t.Worker)]++
		code[t.State]++
	}
	k.print("| member | results | share |")
	k.print("| --- | ---: | ---: |")
	for _, id := range slices.Sorted(maps.Keys(share)) {
		k.print("| %s | %d | %.1f %% |", id, share[id], 100*float64(share[id])/float64(len(list)))
	}
	for _, s := range slices.Sorted(maps.Keys(code)) {
		k.print("%d tasks %s", code[s], s)
	}
}
