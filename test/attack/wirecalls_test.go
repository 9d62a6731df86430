package attack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/mesh/wire"
	"github.com/soukhq/souk/runtime"
)

// call is one thing that a member may be asked over the wire.
type call struct {
	route string // below /wire/
	ask   func(ctx context.Context, to *wire.Worker) error
	seen  func() string // what shows elsewhere that it was done; nil: that it is answered says it
}

var errEnough = errors.New("enough")

// enough ends a stream at its first word, and says that there was one.
func enough(err error, some bool) error {
	if some && (err == nil || errors.Is(err, errEnough) || strings.Contains(err.Error(), errEnough.Error())) {
		return nil
	}
	return err
}

func aLaunch(id string) (placement.Request, *machine.Launch) {
	c := &machine.Config{Image: "souk/host", Init: machine.Init{Exec: []string{"/bin/sleep", "1000"}},
		Guest: &machine.Guest{CPUKind: "shared", CPUs: 1, MemoryMB: 256}}
	return placement.Request{App: app, Machine: id, Resources: machine.Resources(c)}, &machine.Launch{Config: c}
}

// workerCalls asks everything that a worker may be asked, of a machine. mark is different for each time; witness is a
// file that a command would make.
func workerCalls(id, mark, witness string) []call {
	req, launch := aLaunch("fe" + mark)
	ref := func(f func(context.Context, *wire.Worker) error) func(context.Context, *wire.Worker) error { return f }
	return []call{
		{route: "record", ask: ref(func(ctx context.Context, w *wire.Worker) error {
			_, err := w.Record(ctx)
			return err
		})},
		{route: "quote", ask: func(ctx context.Context, w *wire.Worker) error {
			_, err := w.Quote(ctx, req)
			return err
		}},
		{route: "hold", ask: func(ctx context.Context, w *wire.Worker) error {
			_, err := w.Hold(ctx, lifecycle.HoldCommand{Token: mark, TTL: time.Second, Request: req})
			return err
		}},
		{route: "release", ask: func(ctx context.Context, w *wire.Worker) error { return w.Release(ctx, mark) }},
		{route: "cordon", ask: func(ctx context.Context, w *wire.Worker) error {
			_, err := w.Cordon(ctx, lifecycle.CordonCommand{Owner: mark, Reason: "theft", TTL: time.Millisecond})
			_, ended := w.Cordon(ctx, lifecycle.CordonCommand{Owner: mark, End: true})
			return errors.Join(err, ended)
		}},
		{route: "grant", ask: func(ctx context.Context, w *wire.Worker) error {
			_, err := w.Grant(ctx, lifecycle.Grant{Request: req, Launch: launch, Region: "local"})
			return err
		}},
		{route: "do", ask: func(ctx context.Context, w *wire.Worker) error {
			_, err := w.Do(ctx, lifecycle.Command{Verb: lifecycle.SetMetadata, App: app, Machine: id,
				Metadata: map[string]*string{mark: &mark}})
			return err
		}},
		{route: "term", ask: func(ctx context.Context, w *wire.Worker) error {
			_, err := w.Obey(ctx, app, cluster.Term{Number: 1, Member: cluster.WorkerID(mark)})
			return answered(err)
		}},
		{route: "lease", ask: func(ctx context.Context, w *wire.Worker) error {
			l, err := w.Lease(ctx, lifecycle.LeaseCommand{App: app, Machine: id, TTL: time.Minute, Owner: mark})
			if err == nil {
				_, err = w.Lease(ctx, lifecycle.LeaseCommand{App: app, Machine: id, Nonce: l.Nonce, Release: true})
			}
			return err
		}},
		{route: "lease-now", ask: func(ctx context.Context, w *wire.Worker) error {
			_, err := w.CurrentLease(ctx, app, id)
			return answered(err)
		}},
		{route: "machine", ask: func(ctx context.Context, w *wire.Worker) error {
			_, err := w.Machine(ctx, app, id)
			return err
		}},
		{route: "keyed", ask: func(ctx context.Context, w *wire.Worker) error {
			_, err := w.Keyed(ctx, app, cluster.HashKey(app, mark))
			return answered(err) // nothing was made under it
		}},
		{route: "machines", ask: func(ctx context.Context, w *wire.Worker) error {
			_, err := w.Machines(ctx, "", true)
			return err
		}},
		{route: "versions", ask: func(ctx context.Context, w *wire.Worker) error {
			_, err := w.Versions(ctx, app, id)
			return err
		}},
		{route: "watch", ask: func(ctx context.Context, w *wire.Worker) error {
			some := false
			err := w.Watch(ctx, app, id, func(*machine.Machine) bool { some = true; return false })
			return enough(err, some)
		}},
		{route: "events", ask: func(ctx context.Context, w *wire.Worker) error {
			some := false
			err := w.Events(ctx, app, func(machine.EventOf) error { some = true; return errEnough })
			return enough(err, some)
		}},
		{route: "exec", ask: func(ctx context.Context, w *wire.Worker) error {
			_, err := w.Exec(ctx, app, id, runtime.ExecRequest{Argv: []string{"touch", witness}, Stdout: io.Discard,
				Stderr: io.Discard})
			return err
		}, seen: func() string {
			if _, err := os.Stat(witness); err == nil {
				return "a command was executed"
			}
			return ""
		}},
		{route: "dial", ask: func(ctx context.Context, w *wire.Worker) error {
			c, err := w.Dial(ctx, app, id, 9) // where nobody listens
			if err == nil {
				return c.Close()
			}
			if fault.CodeOf(err) == "no_listener" {
				return nil
			}
			return err
		}},
		{route: "processes", ask: func(ctx context.Context, w *wire.Worker) error {
			_, err := w.Processes(ctx, app, id)
			return err
		}},
		{route: "logs", ask: func(ctx context.Context, w *wire.Worker) error {
			return w.Logs(ctx, app, id, machine.LogQuery{}, func(machine.LogLine) error { return nil })
		}},
		{route: "copy-out", ask: func(ctx context.Context, w *wire.Worker) error {
			return w.CopyOut(ctx, app, id, ".", io.Discard)
		}},
		{route: "copy-in", ask: func(ctx context.Context, w *wire.Worker) error {
			return w.CopyIn(ctx, app, id, ".", bytes.NewReader(make([]byte, 1024)))
		}},
		{route: "volumes", ask: func(ctx context.Context, w *wire.Worker) error {
			_, err := w.Volumes(ctx, app)
			return err
		}},
		{route: "volume", ask: func(ctx context.Context, w *wire.Worker) error {
			_, err := w.Volume(ctx, lifecycle.VolumeCommand{Verb: "create", App: app, Volume: "vol_" + mark,
				Spec: machine.Volume{Name: "theft", SizeGB: 1}})
			return err
		}},
		{route: "examine", ask: func(ctx context.Context, w *wire.Worker) error {
			if f := w.Examine(ctx); len(f) == 0 || f[0].Name == "worker "+string(w.ID()) {
				return fault.New(fault.Denied, "role", "nothing was examined")
			}
			return nil
		}},
		{route: "stats", ask: func(_ context.Context, w *wire.Worker) error {
			if s := w.Stats(); reflect.DeepEqual(s, lifecycle.Stats{}) {
				return fault.New(fault.Denied, "role", "no stats were given")
			}
			return nil
		}},
		{route: "images", ask: func(ctx context.Context, w *wire.Worker) error {
			_, err := w.Images(ctx)
			return answered(err) // one without runc says that it keeps none
		}},
		{route: "tasks", ask: func(ctx context.Context, w *wire.Worker) error {
			_, err := w.RunningTasks(ctx)
			return err
		}},
		{route: "use", ask: func(ctx context.Context, w *wire.Worker) error {
			_, err := w.Use(ctx)
			return err
		}},
	}
}

// jobCalls asks everything that a member may be asked about jobs, of one that nobody submitted.
func jobCalls() []call {
	const job = "jfefefefefe"
	return []call{
		{route: "jobs", ask: func(ctx context.Context, w *wire.Worker) error {
			_, err := w.Jobs().List(ctx, "", true)
			return answered(err)
		}},
		{route: "job", ask: func(ctx context.Context, w *wire.Worker) error {
			_, err := w.Jobs().Status(ctx, job)
			return answered(err)
		}},
		{route: "job-report", ask: func(ctx context.Context, w *wire.Worker) error {
			_, err := w.Jobs().JobReport(ctx, job)
			return answered(err)
		}},
		{route: "job-standing", ask: func(ctx context.Context, w *wire.Worker) error {
			_, err := w.Jobs().Standing(ctx, job)
			return answered(err)
		}},
		{route: "job-accounts", ask: func(ctx context.Context, w *wire.Worker) error {
			_, err := w.Jobs().Accounts(ctx, 0)
			return answered(err)
		}},
		{route: "job-tasks", ask: func(ctx context.Context, w *wire.Worker) error {
			_, _, err := w.Jobs().Tasks(ctx, job, jobs.TaskQuery{Limit: 1})
			return answered(err)
		}},
		{route: "job-cancel", ask: func(ctx context.Context, w *wire.Worker) error {
			_, err := w.Jobs().Cancel(ctx, job)
			return answered(err)
		}},
		{route: "job-hold", ask: func(ctx context.Context, w *wire.Worker) error {
			_, err := w.Jobs().SetHold(ctx, job, true)
			return answered(err)
		}},
		{route: "job-requeue", ask: func(ctx context.Context, w *wire.Worker) error {
			_, _, err := w.Jobs().Requeue(ctx, job, nil)
			return answered(err)
		}},
		{route: "job-tasks-cancel", ask: func(ctx context.Context, w *wire.Worker) error {
			_, _, err := w.Jobs().CancelTasks(ctx, job, jobs.Indices{{First: 1, Last: 1}})
			return answered(err)
		}},
		{route: "job-wait", ask: func(ctx context.Context, w *wire.Worker) error {
			_, err := w.Jobs().Wait(ctx, job, 0, time.Second)
			return answered(err)
		}},
		{route: "job-logs", ask: func(ctx context.Context, w *wire.Worker) error {
			return answered(w.Jobs().Logs(ctx, job, 0, machine.LogQuery{}, func(machine.LogLine) error { return nil }))
		}},
		{route: "job-tasks-logs", ask: func(ctx context.Context, w *wire.Worker) error {
			return answered(w.Jobs().TaskOutput(ctx, job, jobs.OutputQuery{},
				func(jobs.TaskLine) error { return nil }))
		}},
		{route: "job-keep", ask: func(ctx context.Context, w *wire.Worker) error {
			_, err := w.CopyJobs(ctx, []jobs.Copy{{Job: job, Probe: true}})
			return answered(err)
		}},
		{route: "job-claims", ask: func(ctx context.Context, w *wire.Worker) error {
			_, err := w.JobClaims(ctx, []string{job}, true)
			return answered(err)
		}},
		{route: "job-copy", ask: func(ctx context.Context, w *wire.Worker) error {
			_, err := w.Jobs().StatusOfCopy(ctx, job)
			return answered(err)
		}},
		{route: "job-copies", ask: func(ctx context.Context, w *wire.Worker) error {
			_, err := w.Jobs().ListCopies(ctx, "", true, []cluster.WorkerID{"nobody"})
			return answered(err)
		}},
		{route: "job-copy-report", ask: func(ctx context.Context, w *wire.Worker) error {
			_, err := w.Jobs().ReportOfCopy(ctx, job)
			return answered(err)
		}},
		{route: "job-copy-tasks", ask: func(ctx context.Context, w *wire.Worker) error {
			_, _, err := w.Jobs().TasksOfCopy(ctx, job, jobs.TaskQuery{Limit: 1})
			return answered(err)
		}},
	}
}

// issuersRoute is the one that only an issuer may ask, which nobody here is who tries it.
const issuersRoute = "keys"

// memberCalls asks what a member may be asked besides.
func memberCalls(renew func(ctx context.Context, at string) error, refresh func(ctx context.Context,
	at string) error, at func() string, mark string) []call {
	return []call{
		{route: "hello", ask: func(ctx context.Context, w *wire.Worker) error { _, err := w.Hello(ctx); return err }},
		{route: "pull", ask: func(ctx context.Context, w *wire.Worker) error {
			_, err := w.Pull(ctx, nil)
			return answered(err)
		}},
		{route: "tokens", ask: func(ctx context.Context, w *wire.Worker) error {
			_, err := w.LetsIn(ctx, []string{"x"})
			return err
		}},
		{route: issuersRoute, ask: func(ctx context.Context, w *wire.Worker) error {
			return w.NewerKeys(ctx, 99, "127.0.0.1:1")
		}},
		{route: "claim", ask: func(ctx context.Context, w *wire.Worker) error {
			_, err := w.Claim(ctx, cluster.Claim{Kind: cluster.ClaimName, Step: cluster.ClaimTake, App: app,
				Value: "stolen-" + mark, Holder: mark, Machine: "fe" + mark})
			return err
		}},
		{route: "buyer", ask: func(ctx context.Context, w *wire.Worker) error {
			_, conn, err := w.Tasks(ctx, jobs.Hello{}, func(jobs.Message) {}, func() {})
			if err == nil {
				conn.End()
			}
			return err
		}},
		{route: "task-output", ask: func(ctx context.Context, w *wire.Worker) error {
			err := w.TaskOutput(ctx, jobs.Life{Job: jobs.ID(1), Attempt: 1, CPU: 100, Memory: 64}, machine.LogQuery{},
				func(machine.LogLine) error { return nil })
			return answered(err) // no such task runs
		}},
		{route: "task-files", ask: func(ctx context.Context, w *wire.Worker) error {
			return answered(w.TaskFiles(ctx, jobs.Life{Job: jobs.ID(1), Attempt: 1, CPU: 100, Memory: 64}, io.Discard))
		}},
		{route: "sent", ask: func(ctx context.Context, w *wire.Worker) error {
			return answered(w.ReadSent(ctx, app, "no digest", io.Discard))
		}},
		{route: "sent-secure", ask: func(ctx context.Context, w *wire.Worker) error {
			return answered(w.SecureSent(ctx, app, "no digest", w.ID()))
		}},
		{route: "agree", ask: func(ctx context.Context, w *wire.Worker) error { return w.Agree(ctx, false) }},
		{route: "steward", ask: func(ctx context.Context, w *wire.Worker) error {
			_, err := w.Stuck(ctx)
			return err
		}},
		{route: "challenge", ask: func(ctx context.Context, w *wire.Worker) error {
			_, _, err := w.Challenge(ctx, app+".localhost", "token")
			return err
		}},
		{route: "certificate", ask: func(ctx context.Context, w *wire.Worker) error {
			_, key, err := w.Certificate(ctx, "shop.example.com", true)
			if err == nil && len(key) == 0 {
				return fault.New(fault.Denied, "role", "no key was given")
			}
			return answered(err) // there is none
		}},
		{route: "renew", ask: func(ctx context.Context, _ *wire.Worker) error { return renew(ctx, at()) }},
		{route: "bundle", ask: func(ctx context.Context, _ *wire.Worker) error { return refresh(ctx, at()) }},
	}
}

// answered takes an answer that says no for another reason than who asks for an answer.
func answered(err error) error {
	if fault.Is(err, fault.Denied) || fault.Is(err, fault.Unavailable) {
		return err
	}
	return nil
}

// routesOfTheWire reads from the source which routes there are, so that none is forgotten here.
func routesOfTheWire() (all []string, err error) {
	files, err := filepath.Glob("../../mesh/wire/*.go")
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		raw, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for _, m := range regexp.MustCompile(`= "/wire/([a-z-]+)"`).FindAllStringSubmatch(string(raw), -1) {
			all = append(all, m[1])
		}
	}
	return all, nil
}

// wireAttacks calls everything at each member, with the certificate of the disk.
func (x *thief) wireAttacks() (all []attack) {
	x.t.Helper()
	routes, err := routesOfTheWire()
	must(x.t, err)
	var tried []string
	for _, at := range []*agent{x.a, x.b} {
		calls := func(x *thief) []call {
			client := wire.NewClient(x.id, nil)
			witness, _ := x.witness()
			return slices.Concat(workerCalls(x.machineAt(at), fmt.Sprintf("%012d", x.n), witness), jobCalls(),
				memberCalls(client.Renew, client.Refresh, func() string { return at.said.Wire }, fmt.Sprint(x.n)))
		}
		for i, k := range calls(x) {
			tried = append(tried, k.route)
			if at == x.b && (k.route == "renew" || k.route == "bundle") {
				continue // it is no issuer
			}
			all = append(all, attack{name: "the wire of " + at.name + ": " + k.route, works: k.route != issuersRoute,
				try: func(x *thief) func() string {
					k := calls(x)[i]
					ctx, cancel := context.WithTimeout(x.t.Context(), soon)
					defer cancel()
					err := k.ask(ctx, x.near[at])
					if err != nil && k.seen != nil {
						return k.seen
					}
					if err != nil && x.phase == before {
						x.t.Logf("%s: %v", k.route, err)
					}
					return said("it was answered", err)
				}})
		}
	}
	for _, r := range routes {
		if r != "join" && !slices.Contains(tried, r) {
			x.t.Errorf("the route /wire/%s is not tried", r)
		}
	}
	return all
}
