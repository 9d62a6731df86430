package check

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/internal/wait"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/member"
)

// aLife is the main process of one run of a machine, found on this host.
type aLife struct {
	pid     int
	machine string
	worker  string
	attempt string
}

// livesHere finds the main processes of machines on this host by their environment. Their child processes inherit the
// environment and are left out: the parent belongs to the same run.
func livesHere() []aLife {
	all := map[int]aLife{}
	parents := map[int]int{}
	dirs, _ := filepath.Glob("/proc/[0-9]*") // the pattern is well-formed
	for _, d := range dirs {
		pid, err := strconv.Atoi(filepath.Base(d))
		raw, errEnv := os.ReadFile(filepath.Join(d, "environ"))
		stat, errStat := os.ReadFile(filepath.Join(d, "stat"))
		if err != nil || errEnv != nil || errStat != nil {
			continue // it has ended, or belongs to another user
		}
		l := aLife{pid: pid}
		for kv := range strings.SplitSeq(string(raw), "\x00") {
			switch k, v, _ := strings.Cut(kv, "="); k {
			case "SOUK_MACHINE":
				l.machine = v
			case "SOUK_WORKER":
				l.worker = v
			case "SOUK_ATTEMPT":
				l.attempt = v
			}
		}
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		if l.machine == "" || len(fields) < 2 || fields[0] == "Z" {
			continue
		}
		all[pid] = l
		parents[pid], _ = strconv.Atoi(fields[1]) // on an error 0, which is no process here
	}
	var mains []aLife
	for pid, l := range all {
		if p, ok := all[parents[pid]]; ok && p.machine == l.machine && p.attempt == l.attempt {
			continue
		}
		mains = append(mains, l)
	}
	slices.SortFunc(mains, func(a, b aLife) int { return a.pid - b.pid })
	return mains
}

// checkProcesses compares this host's processes with the machines of the workers that answered. It ignores processes of
// other workers.
func checkProcesses(all census, lives []aLife) Invariant {
	i := Invariant{Number: 3, Name: "no orphan process, and never two lives of one machine"}
	known := map[string]bool{}
	for _, r := range all.records {
		known[string(r.Worker)] = true
	}
	machines := map[string]*machine.Machine{}
	for _, m := range all.machines {
		machines[m.ID] = m
	}
	of := map[string][]aLife{}
	looked, hosts := 0, map[string]bool{}
	for _, l := range lives {
		if !known[l.worker] {
			continue
		}
		looked++
		hosts[l.worker] = true
		of[l.machine] = append(of[l.machine], l)
		switch m := machines[l.machine]; {
		case m == nil || string(m.Worker) != l.worker:
			i.broken("process %d is of machine %s, which worker %s does not have", l.pid, l.machine, l.worker)
		case !up(m) && m.State != machine.Suspended && !m.State.Transient():
			i.broken("process %d is of machine %s, which is %s", l.pid, l.machine, m.State)
		}
	}
	for id, ls := range of {
		if len(ls) > 1 {
			i.broken("machine %s has %d main processes: %v", id, len(ls), ls)
		}
	}
	for _, m := range all.machines {
		if hosts[string(m.Worker)] && m.State == machine.Started && len(of[m.ID]) == 0 {
			i.broken("machine %s of worker %s is started, and has no process", m.ID, m.Worker)
		}
	}
	i.Checked = fmt.Sprintf("%d main processes on this host, of %d workers, against %s", looked, len(hosts),
		all.asked())
	return i.close()
}

// checkHolds waits until no worker has more in use than its machines occupy. Workers that run tasks are skipped, since
// tasks use room of their own.
func checkHolds(ctx context.Context, cl *client.Client, all census) (Invariant, error) {
	i := Invariant{Number: 6, Name: "holds end by themselves"}
	deadline := time.Now().Add(maxHolds)
	jobs, err := cl.UnfinishedJobs(ctx, "")
	if err != nil {
		return i, err
	}
	if len(jobs) > 0 {
		i.Checked = "nothing, for job " + jobs[0].ID + " has room of its own"
		return i.close(), nil
	}
	for {
		over := beyondMachines(all)
		i.Checked = all.asked() + fmt.Sprintf("; CPU and memory in use beyond what machines have, for up to %v",
			maxHolds)
		if len(over) == 0 || time.Now().After(deadline) {
			for _, o := range over {
				i.broken("%s", o)
			}
			return i.close(), nil
		}
		if err := wait.For(ctx, time.Second); err != nil {
			return i, err
		}
		if all, err = look(ctx, cl); err != nil {
			return i, err
		}
	}
}

func beyondMachines(all census) (over []string) {
	for _, r := range all.records {
		var sum cluster.Resources
		for _, m := range all.machines {
			if m.Worker == r.Worker && up(m) && m.Config != nil {
				sum = sum.Add(machine.Resources(m.Config))
			}
		}
		if r.Used.CPU > sum.CPU || r.Used.Memory > sum.Memory {
			over = append(over, fmt.Sprintf("worker %s has %v in use, its machines have %v", r.Worker, r.Used, sum))
		}
	}
	return over
}

// checkAgreement waits until all reachable members know the same.
func checkAgreement(ctx context.Context, cl *client.Client, within time.Duration) (Invariant, error) {
	i := Invariant{Number: 12, Name: "members that hear each other come to know the same"}
	begin := time.Now()
	for {
		members, err := cl.Members(ctx)
		if err != nil {
			return i, err
		}
		ex, err := cl.Doctor(ctx)
		if err != nil {
			return i, err
		}
		digests := digestsOf(ex)
		why := disagreement(members, ex, digests)
		took := time.Since(begin).Round(10 * time.Millisecond)
		if len(why) == 0 || took > within {
			i.Checked = fmt.Sprintf("the digests of %d members' records, for %v", len(digests), took)
			for _, id := range twinsOf(ex) {
				i.Checked += fmt.Sprintf("; without member %s, of which a copy was alive: the two are not one member "+
					"until "+
					"\"souk agent lives\" is said on the host of the one that is to live", id)
			}
			for _, w := range why {
				i.broken("%s", w)
			}
			return i.close(), nil
		}
		if err := wait.For(ctx, 200*time.Millisecond); err != nil {
			return i, err
		}
	}
}

func digestsOf(ex []api.Examination) map[cluster.WorkerID]string {
	digests := map[cluster.WorkerID]string{}
	for _, e := range ex {
		for _, f := range e.Findings {
			if d, ok := strings.CutPrefix(f.Have, member.DigestWord); ok && f.Name == member.FindingRegistry {
				digests[e.Worker], _, _ = strings.Cut(d, ",")
			}
		}
	}
	return digests
}

// twinsOf lists the members that found a live copy of themselves.
func twinsOf(ex []api.Examination) (ids []cluster.WorkerID) {
	for _, e := range ex {
		if slices.ContainsFunc(e.Findings, func(f cluster.Finding) bool { return f.Name == member.FindingTwin }) {
			ids = append(ids, e.Worker)
		}
	}
	return ids
}

// disagreement lists the members that differ from the first one in what they know, or cannot be asked. It includes
// workers that the asked member expects and has not met, since a member without contact trivially agrees with itself.
func disagreement(members []cluster.Member, ex []api.Examination, digests map[cluster.WorkerID]string) (why []string) {
	for _, e := range ex {
		if len(members) > 0 && !slices.ContainsFunc(members, func(m cluster.Member) bool { return m.ID == e.Worker }) {
			why = append(why, fmt.Sprintf("worker %s is expected, and no member has heard of it", e.Worker))
		}
	}
	twins := twinsOf(ex)
	members = slices.DeleteFunc(slices.Clone(members), func(m cluster.Member) bool {
		return slices.Contains(twins, m.ID)
	})
	for _, m := range members {
		switch {
		case m.State == cluster.MemberDead || m.State == cluster.MemberLeft:
			why = append(
				why,
				fmt.Sprintf("member %s is %s, so nobody can say what it knows; souk node rm forgets one that is "+
					"gone for good",
					m.ID, m.State),
			)
		case digests[m.ID] == "":
			why = append(why, fmt.Sprintf("member %s does not tell what it knows", m.ID))
		}
	}
	first := ""
	for _, m := range members {
		d := digests[m.ID]
		if d == "" {
			continue
		}
		if first == "" {
			first = d
		}
		if d != first {
			why = append(why, fmt.Sprintf("the digest of member %s is %s, that of the first is %s", m.ID, d, first))
		}
	}
	return why
}
