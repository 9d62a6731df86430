package lifecycle_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/fsm"
	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// TestStoriesMatchTheirTranscripts runs the executable stories of testdata/stories: what is written, done, told and answered, step by step.
// `go test ./core/lifecycle -run Stories -rewrite` writes what happens now.
//
//	grant [skip-launch] [restart=POLICY] [retries=N] [auto-destroy] [schedule=hourly] [mount=VOLUME] [lease=SECONDS] [id=ID] [name=NAME] [cpu=MILLI] [band=BAND] [evict] [budget=N] [service-check] [check=NAME] [term=N:MEMBER] [replica=GROUP/INDEX]
//	VERB [id=ID] [kill] [to-disk] [nonce=last|wrong] [skip-launch] [signal=NAME] [timeout=DURATION] [cpu=MILLI] [band=BAND] [image=NAME] [term=N:MEMBER] [expect=INSTANCE] [replica=GROUP/INDEX]     one of lifecycle's verbs
//	lease [ttl=DURATION] [nonce=last|wrong] [release]
//	obey term=N:MEMBER [app=APP]
//	volume VERB [id=ID]
//	step            carry out the next effect
//	settle          carry out all effects, and let an hour pass where something waits
//	exit code=N     the machine's process ends
//	awake TEXT      from now on nothing is suspended to disk, for that reason
//	forget          from now on no memory comes back from disk
//	stubborn        from now on processes ignore signals
//	pass DURATION   time goes by
//	vanish, orphan  the process is gone, or another one runs, and nobody told; audit finds it
//	check NAME STATUS [attempt=N]  a health check says something of the attempt, and why
//	crash           souk is killed and comes back; the processes run on
//	power-loss      souk and all processes are gone; souk comes back
//	fail KIND TEXT  the next effect of KIND fails for good; "again": in a way that is worth a retry
//	show            the machine and the ledger
func TestStoriesMatchTheirTranscripts(t *testing.T) {
	datadriven.Walk(t, "testdata/stories", func(t *testing.T, path string) {
		st := &story{d: newDriver(newWorld())}
		datadriven.RunTest(t, path, func(t *testing.T, td *datadriven.TestData) string {
			out := &strings.Builder{}
			st.t = t
			st.d.trace = func(format string, args ...any) { fmt.Fprintf(out, format, args...) }
			if err := st.run(td, out); err != nil {
				fmt.Fprintf(out, "  %v\n", err)
			}
			for _, v := range st.d.w.violations {
				t.Errorf("%s: %s", td.Pos, v)
			}
			if out.Len() == 0 {
				return "nothing\n"
			}
			return out.String()
		})
	})
}

type story struct {
	t     *testing.T
	d     *driver
	nonce string
}

func (s *story) run(td *datadriven.TestData, out *strings.Builder) error {
	d := s.d
	switch td.Cmd {
	case "grant":
		g := s.grant(td)
		d.grant(g)
	case "lease":
		return s.lease(td)
	case "obey":
		out, err := d.sup.Obey(d.now, arg(td, "app", "app"), *termOf(td))
		d.take(out)
		return err
	case "apart": // for how long no other member was heard
		silent, err := time.ParseDuration(td.CmdArgs[0].Key)
		if err != nil {
			return err
		}
		d.take(d.sup.Apart(d.now, silent))
	case "volume":
		id := arg(td, "id", "vol_1")
		d.volume(lifecycle.VolumeCommand{Verb: td.CmdArgs[0].Key, App: "app", Volume: id,
			Spec: machine.Volume{Name: "data", SizeGB: 1}})
	case "step":
		if !d.step() {
			return fmt.Errorf("nothing to do")
		}
	case "settle":
		d.settle(time.Hour)
	case "exit":
		var code int
		td.MaybeScanArgs(s.t, "code", &code)
		d.end(m1, code)
	case "pass":
		wait, err := time.ParseDuration(td.CmdArgs[0].Key)
		if err != nil {
			return err
		}
		d.now = d.now.Add(wait)
		d.take(d.sup.Tick(d.now))
	case "crash":
		d.boot()
	case "awake":
		d.w.awake = strings.TrimSpace(td.Input)
	case "forget":
		d.w.forgets = true
	case "stubborn":
		d.w.stubborn = true
	case "orphan": // a process of the machine's next attempt runs, and nobody knows why
		d.w.procs[m1] = &proc{attempt: 99, running: true}
	case "vanish": // the process is gone and nobody told
		delete(d.w.procs, m1)
	case "audit":
		d.take(d.sup.Audit(d.now, d.now, d.w.lives()))
	case "power-loss":
		clear(d.w.procs)
		clear(d.w.exits)
		d.acked = "" // what was said before is no longer so
		d.boot()
	case "fail":
		kind := fault.Precondition
		if has(td, "again") {
			kind = fault.Unavailable
		}
		d.w.failures[td.CmdArgs[0].Key] = append(d.w.failures[td.CmdArgs[0].Key],
			fault.New(kind, "test", "%s", strings.TrimSpace(td.Input)))
	case "forget-steps": // a run as another souk left it
		for k, r := range d.w.journal {
			if r.Bucket == fsm.RunBucket {
				r.Value = []byte(strings.Replace(string(r.Value), `"steps":["launch"`, `"steps":["launch-v9"`, 1))
				d.w.journal[k] = r
			}
		}
	case "check":
		c := lifecycle.CheckResult{Machine: m1, Attempt: 1, Name: td.CmdArgs[0].Key, Status: td.CmdArgs[1].Key,
			Output: strings.TrimSpace(td.Input)}
		td.MaybeScanArgs(s.t, "attempt", &c.Attempt)
		d.take(d.sup.Checked(d.now, []lifecycle.CheckResult{c}))
	case "show":
		out.WriteString(indent(facts(d) + checksOf(d)))
	default:
		c := lifecycle.Command{Verb: lifecycle.Verb(td.Cmd), App: arg(td, "app", "app"), Machine: arg(td, "id", m1),
			Nonce: s.nonceOf(td), Source: arg(td, "source", ""),
			Kill: has(td, "kill"), ToDisk: has(td, "to-disk"), Signal: arg(td, "signal", "")}
		if c.Verb == lifecycle.Update {
			newConfig(has(td, "skip-launch"))(&c)
			td.MaybeScanArgs(s.t, "cpu", &c.Resources.CPU)
			c.Launch.Scheduling = schedulingOf(s.t, td)
			c.Launch.CurrentVersion = arg(td, "current", "")
			if image := arg(td, "image", ""); image != "" {
				c.Launch.Config.Image, c.Pulled = image, lifecycle.Pulled{Digest: digest, Volumes: volumesOf[image]}
			}
		}
		c.Term, c.Replica, c.Expect = termOf(td), replicaOf(td), arg(td, "expect", "")
		if v := arg(td, "timeout", ""); v != "" {
			c.Timeout, _ = time.ParseDuration(v)
		}
		d.do(c)
	}
	return nil
}

func (s *story) grant(td *datadriven.TestData) lifecycle.Grant {
	return grantOf(arg(td, "id", m1), func(g *lifecycle.Grant) {
		g.Request.App = arg(td, "app", "app")
		g.Term, g.Replica = termOf(td), replicaOf(td)
		g.Launch.Name = arg(td, "name", "m")
		g.Launch.SkipLaunch = has(td, "skip-launch")
		c := g.Launch.Config
		c.Restart.Policy = arg(td, "restart", "no")
		td.MaybeScanArgs(s.t, "retries", &c.Restart.MaxRetries)
		c.AutoDestroy = has(td, "auto-destroy")
		g.Launch.Attach = has(td, "attach")
		c.Schedule = arg(td, "schedule", "")
		td.MaybeScanArgs(s.t, "lease", &g.Launch.LeaseTTL)
		td.MaybeScanArgs(s.t, "cpu", &g.Request.Resources.CPU)
		if sc := schedulingOf(s.t, td); sc != nil {
			g.Launch.Scheduling, g.Request.Scheduling, g.Evict = sc, *sc, has(td, "evict")
		}
		c.Image = arg(td, "image", c.Image)
		if has(td, "service-check") {
			c.Services = []machine.Service{{InternalPort: 8080, Checks: []machine.ServiceCheck{{}}}}
		}
		if v := arg(td, "check", ""); v != "" {
			port, kind := 9090, machine.KindReadiness
			c.Checks = map[string]machine.CheckConfig{v: {ServiceCheck: machine.ServiceCheck{Port: &port}, Kind: &kind}}
		}
		if v := arg(td, "mount", ""); v != "" {
			c.Mounts = []machine.Mount{{Volume: v, Path: "/data"}}
		}
	})
}

// checksOf prints the checks of the machine as it shows them, and whether requests may go there.
func checksOf(d *driver) (out string) {
	m := d.sup.Machine("app", m1)
	if m == nil || len(m.Checks) == 0 {
		return ""
	}
	for _, ch := range m.Checks {
		out += fmt.Sprintf("check %s %s at %v: %q\n", ch.Name, ch.Status, ch.UpdatedAt.Sub(epoch), ch.Output)
	}
	return out + fmt.Sprintf("failing %v, ready %v, checked is attempt %d\n", m.Failing(), m.Ready(),
		d.sup.CheckedAttempt(m1))
}

// termOf reads term=NUMBER:MEMBER; nil where it is not given.
func termOf(td *datadriven.TestData) *cluster.Term {
	n, id, ok := strings.Cut(arg(td, "term", ""), ":")
	if !ok {
		return nil
	}
	number, _ := strconv.ParseUint(n, 10, 64)
	return &cluster.Term{Number: number, Member: cluster.WorkerID(id)}
}

// replicaOf reads replica=GROUP/INDEX and stop-after; nil where the first is not given.
func replicaOf(td *datadriven.TestData) *machine.Replica {
	group, n, ok := strings.Cut(arg(td, "replica", ""), "/")
	if !ok {
		return nil
	}
	index, _ := strconv.Atoi(n)
	after, _ := time.ParseDuration(arg(td, "stop-after", "0s"))
	return &machine.Replica{Group: group, Index: index, Epoch: 1, Spec: "5bec", Release: "1a2b3c4d", StopAfter: after}
}

func schedulingOf(t *testing.T, td *datadriven.TestData) *machine.Scheduling {
	band := arg(td, "band", "")
	if band == "" {
		return nil
	}
	sc := &machine.Scheduling{Band: machine.Band(band)}
	if n := -1; td.HasArg("budget") {
		td.ScanArgs(t, "budget", &n)
		sc.EvictionBudget = &machine.EvictionBudget{Max: n}
	}
	return sc
}

func (s *story) lease(td *datadriven.TestData) error {
	c := lifecycle.LeaseCommand{App: "app", Machine: m1, Owner: "ann", Nonce: s.nonceOf(td),
		Release: has(td, "release")}
	if v := arg(td, "ttl", ""); v != "" {
		ttl, err := time.ParseDuration(v)
		if err != nil {
			return err
		}
		c.TTL = ttl
	}
	t := s.d.send(func(now time.Time, t uint64) lifecycle.Out { return s.d.sup.Lease(now, t, c) })
	if r := s.d.replies[t]; r.Err == nil {
		s.nonce = r.Lease.Nonce
	}
	return nil
}

func (s *story) nonceOf(td *datadriven.TestData) string {
	switch arg(td, "nonce", "") {
	case "last":
		return s.nonce
	case "wrong":
		return "00000000000000000000000000000000"
	}
	return ""
}

func arg(td *datadriven.TestData, key, def string) string {
	for _, a := range td.CmdArgs {
		if a.Key == key && len(a.Vals) > 0 {
			return a.Vals[0]
		}
	}
	return def
}

func has(td *datadriven.TestData, key string) bool {
	for _, a := range td.CmdArgs {
		if a.Key == key && len(a.Vals) == 0 {
			return true
		}
	}
	return false
}

func indent(s string) string {
	return "  " + strings.ReplaceAll(strings.TrimSpace(s), "\n", "\n  ") + "\n"
}
