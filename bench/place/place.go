// Package place measures what one placement costs a souk process: everything from the parsed launch to the worker's
// answer, over any number of workers. It is the product's own path (gateway, broker, fleet, index, catalog, decision
// log) over workers in memory, each with a real ledger, that start no process.
package place

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/soukhq/souk/broker"
	"github.com/soukhq/souk/broker/known"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/fleet"
	"github.com/soukhq/souk/fleet/find"
	"github.com/soukhq/souk/gateway"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/store/catalog"
	"github.com/soukhq/souk/store/decisionlog"
	"github.com/soukhq/souk/store/journal/mem"
)

// Options say what is measured.
type Options struct {
	Workers  int
	Machines int // existing machines; 0: ten for each worker
	Creates  int // measured creates of each kind
	Callers  int // goroutines that create; 0: one for each core
}

// Result is what one placement costs. The CPU time is that of the whole process: the buyer, the workers' ledgers, the
// fleet's updates, the decision log and the garbage collector.
type Result struct {
	Workers  int `json:"workers"`
	Machines int `json:"machines"` // existing machines
	Creates  int `json:"creates"`
	Callers  int `json:"callers"`

	PerSecond      float64 `json:"per_second"`        // placements of unnamed machines
	CPU            float64 `json:"cpu_us_per_create"` // of unnamed machines
	CPUNamed       float64 `json:"cpu_us_per_named"`  // of named machines, in an app that has a fifth of all machines
	NamedPerSecond float64 `json:"named_per_second"`
	CPUAtTen       float64 `json:"cpu_us_per_create_at_10"` // as CPU, over ten workers with as many machines each
	CPUNamedAtTen  float64 `json:"cpu_us_per_named_at_10"`
	ToTen          float64 `json:"ratio_to_10"` // cpu_us_per_create / cpu_us_per_create_at_10
	// CPU of a grant alone: the worker's ledger, and the fleet's update
	Floor   float64 `json:"floor_us"`
	Ratio   float64 `json:"ratio"`       // cpu_us_per_create / floor_us
	Asked   float64 `json:"asked"`       // calls to workers per create besides its grant: should be 0
	Dropped uint64  `json:"log_dropped"` // decisions that the log could not keep up with
}

// Text is the result as printed for people.
func (r *Result) Text() string {
	return fmt.Sprintf("%d workers, %d machines known: %.0f placements/s by %d callers, %.1f us of CPU each (named "+
		"%.1f)\n"+
		"  %.2f times that at 10 workers (%.1f us); a grant alone is %.1f us: %.1f times the floor\n"+
		"  asked of workers beside the grant: %.2f a create; decisions that the log dropped: %d",
		r.Workers, r.Machines, r.PerSecond, r.Callers, r.CPU, r.CPUNamed, r.ToTen, r.CPUAtTen, r.Floor, r.Ratio,
		r.Asked, r.Dropped)
}

const (
	apps  = 100 // apps of the existing machines
	large = 5   // one app has 1/large of all machines
	// endEvery is how many creates are measured before their machines are removed again, which is not measured.
	endEvery = 1000
)

// testbed is a souk process over workers in memory.
type testbed struct {
	fleet   *fleet.Fleet
	sellers []*seller
	byID    map[cluster.WorkerID]*seller
	gateway *gateway.Gateway
	broker  *broker.Broker
	log     *decisionlog.Log
	dir     string
	made    atomic.Uint64 // numbers the machines
	chance  *rand.Rand
}

func Run(ctx context.Context, o Options) (r *Result, err error) {
	if o.Machines == 0 {
		o.Machines = 10 * o.Workers
	}
	if o.Callers == 0 {
		o.Callers = defaultCallers()
	}
	r = &Result{Workers: o.Workers, Machines: o.Machines, Creates: o.Creates, Callers: o.Callers}
	each := max(1, o.Machines/o.Workers)
	if err := r.atTen(ctx, o, each); err != nil {
		return nil, err
	}
	t, err := openTestbed(o.Workers, o.Machines)
	if err != nil {
		return nil, err
	}
	defer t.close()
	if r.Floor, err = t.measureFloor(o); err != nil {
		return nil, err
	}
	var named, unnamed cost
	if unnamed, err = t.measureCreates(ctx, o, false); err == nil {
		named, err = t.measureCreates(ctx, o, true)
	}
	if err != nil {
		return nil, err
	}
	r.PerSecond, r.CPU, r.NamedPerSecond, r.CPUNamed = unnamed.perSecond(), unnamed.cpuMicros(), named.perSecond(),
		named.cpuMicros()
	r.ToTen, r.Ratio = r.CPU/r.CPUAtTen, r.CPU/r.Floor
	r.Asked = unnamed.asked
	r.Dropped = t.log.Stats().Dropped
	return r, nil
}

func (r *Result) atTen(ctx context.Context, o Options, each int) error {
	t, err := openTestbed(10, 10*each)
	if err != nil {
		return err
	}
	defer t.close()
	unnamed, err := t.measureCreates(ctx, o, false)
	if err != nil {
		return err
	}
	named, err := t.measureCreates(ctx, o, true)
	r.CPUAtTen, r.CPUNamedAtTen = unnamed.cpuMicros(), named.cpuMicros()
	return err
}

// openTestbed makes workers, and machines on them that the fleet knows.
func openTestbed(workers, machines int) (t *testbed, err error) {
	t = &testbed{fleet: fleet.New(), byID: map[cluster.WorkerID]*seller{}, chance: rand.New(rand.NewPCG(1, 2))}
	if t.dir, err = os.MkdirTemp("", "souk-bench-"); err != nil {
		return nil, fault.Wrap(err, fault.Internal, fault.CodeBench,
			"no temporary directory can be made for the decision log")
	}
	for i := range workers {
		s := newSeller(t.workerRecord(i), t.fleet)
		t.sellers, t.byID[s.id] = append(t.sellers, s), s
	}
	rows, err := catalog.Open(mem.New(), filepath.Join(t.dir, "key"))
	if err != nil {
		return nil, err
	}
	for i := range apps {
		if _, err := rows.Apps.CreateApp(appName(i), "", "", ""); err != nil {
			return nil, err
		}
	}
	for i := range machines {
		app := appName(i % apps)
		if i%large == 0 {
			app = appName(0)
		}
		if err := t.stockWorker(t.sellers[i%workers], app); err != nil {
			return nil, err
		}
	}
	for _, s := range t.sellers {
		s.own.Worker(s.sell.Record(time.Now()))
	}
	if t.log, err = decisionlog.Open(decisionlog.Options{Dir: t.dir, MaxBytes: 1 << 30}); err != nil {
		return nil, err
	}
	directory := &find.Directory{Fleet: t.fleet, Apps: rows.Apps,
		Worker: func(id cluster.WorkerID) (find.Worker, bool) {
			s, known := t.byID[id]
			return s, known
		}}
	broker, claims := known.New(known.Options{Directory: directory, Catalog: rows, Region: "iad", Log: t.log})
	t.broker = broker
	t.gateway, err = gateway.New(gateway.Options{Directory: directory, Catalog: rows, Broker: broker, Claims: claims,
		Token: "none", Region: "iad", Decisions: t.log})
	return t, err
}

func (t *testbed) close() {
	if t.broker != nil {
		t.broker.Close()
	}
	if t.log != nil {
		_ = t.log.Close() // the log is discarded
	}
	os.RemoveAll(t.dir)
}

// workerRecord returns the record of a worker, of one of three sizes and four regions.
func (t *testbed) workerRecord(i int) cluster.Record {
	size := int64(1 + i%3)
	return cluster.Record{Worker: cluster.WorkerID(fmt.Sprintf("w%05d", i)),
		Region: cluster.Region([]string{"iad", "fra", "nrt", "syd"}[i%4]),
		State:  cluster.Ready, Incarnation: 1,
		Capacity: cluster.Resources{CPU: 1_000_000 * size, Memory: 4_000_000 * size, Disk: 1 << 30, Ports: 100_000},
		Attributes: cluster.Attributes{"arch": cluster.Text("amd64"), "zone": cluster.Text(fmt.Sprint("z", i%12)),
			"rack": cluster.Text(fmt.Sprint("r", i%200))}}
}

func appName(i int) string { return fmt.Sprintf("app-%03d", i) }

// stockWorker gives a worker an existing machine.
func (t *testbed) stockWorker(s *seller, app string) error {
	id := fmt.Sprintf("%014x", t.made.Add(1))
	req := placement.Request{App: app, Machine: id, Start: true, Resources: cluster.Resources{CPU: 100, Memory: 256,
		Disk: 1000}}
	if err := s.sell.Grant(time.Now(), req, "", true); err != nil {
		return err
	}
	s.own.Machine(&machine.Machine{ID: id, App: app, Name: "stock-" + id, State: machine.Started, Worker: s.id,
		Region: "iad"})
	return nil
}

// cost is the measured cost of creates.
type cost struct {
	creates   int
	wall, use time.Duration
	asked     float64
}

func (c cost) perSecond() float64 { return float64(c.creates) / c.wall.Seconds() }
func (c cost) cpuMicros() float64 { return float64(c.use.Nanoseconds()) / 1000 / float64(c.creates) }

// measureCreates makes creates, in rounds: after each round their machines are removed again.
func (t *testbed) measureCreates(ctx context.Context, o Options, named bool) (c cost, err error) {
	if err := t.createRound(ctx, o.Callers, endEvery, named, nil); err != nil { // fill the caches of index and runtime
		return c, err
	}
	before := t.countCalls()
	for c.creates < o.Creates {
		if err := t.createRound(ctx, o.Callers, endEvery, named, &c); err != nil {
			return c, err
		}
	}
	c.asked = float64(t.countCalls()-before) / float64(c.creates)
	return c, t.log.Flush(ctx)
}

// createRound makes n machines with some callers, adds the cost to c, and removes them again.
func (t *testbed) createRound(ctx context.Context, callers, n int, named bool, c *cost) error {
	made := make([]*machine.Machine, n)
	launches := make([]*machine.Launch, n)
	for i := range launches {
		launches[i] = t.newLaunch(named)
	}
	var next atomic.Int64
	var failed atomic.Pointer[error]
	var all sync.WaitGroup
	begin, used := time.Now(), cpuTime()
	for range callers {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				app := appName(0)
				if !named {
					app = appName(i % apps)
				}
				p, err := t.broker.Place(ctx, broker.Intent{App: app, Launch: launches[i]})
				if err != nil {
					failed.Store(&err)
					return
				}
				made[i] = p.Machines[0]
			}
		})
	}
	all.Wait()
	if c != nil {
		c.wall, c.use, c.creates = c.wall+time.Since(begin), c.use+cpuTime()-used, c.creates+n
	}
	if err := failed.Load(); err != nil {
		return *err
	}
	for _, m := range made {
		t.byID[m.Worker].endMachine(m.ID)
	}
	return nil
}

// newLaunch returns a launch of one of 24 shapes.
func (t *testbed) newLaunch(named bool) *machine.Launch {
	n := t.made.Add(1)
	guest := machine.Guest{CPUKind: "shared", CPUs: 1 + int(n%4), MemoryMB: 256 * (1 + int(n%6))}
	l := &machine.Launch{Config: &machine.Config{Image: "souk/host", Guest: &guest,
		Init: machine.Init{Exec: []string{"/bin/sleep", "1000"}}}}
	if named {
		l.Name = fmt.Sprint("named-", n)
	}
	return l
}

// countCalls counts the calls to workers other than grants.
func (t *testbed) countCalls() (n int64) {
	for _, s := range t.sellers {
		s.mu.Lock()
		n += s.seen
		s.mu.Unlock()
	}
	return n
}

// cpuTime returns the CPU time that the process has used.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
