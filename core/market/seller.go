package market

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// Seller is the only authority over one worker's capacity. It keeps the ledger: what has been granted, what is held,
// and so what is free. It answers at once and never waits; all of its answers are functions of what it was asked
// before and of now. It is not safe for concurrent use: a worker asks it from one place.
//
// The ledger keeps, for each machine, the part it occupies as long as it exists (disk) and the part it occupies only
// while it is up (the rest): a stopped machine gives its CPU and memory back, and needs new room to start again. If
// requests may wake it, that room is counted separately, as promised.
type Seller struct {
	EvictionHistory
	rec      cluster.Record // Used and the GPUs' Free count grants and holds
	kinds    kinds          // of its GPUs
	grants   map[string]*grant
	holds    holds
	wanted   wanted
	refusals map[string]uint64 // by failing clause

	leaving   map[string]string // machines that are being evicted -> the machine that gets their room
	ready     []string          // see Ready
	evictable evictableRanks
	kept      keptMachines
	busy      func(machine string) bool // see Busy; nil: no machine is busy
	funds     Funding                   // nil: everything can be paid for
	sick      []Share                   // the free parts of unhealthy devices
}

type grant struct {
	app    string
	kinds  kinds // of its seller's GPUs
	want   cluster.Resources
	gpus   []Share // while it is up
	up     bool
	volume bool // not counted as a machine
	task   bool // a volume that may be evicted: see DescribeTask
	tenant Tenant
	claim  *evictionClaim // it waits for the room of others; nil: it has its room
}

// occupiedAmount returns what the grant occupies in the ledger now.
func (g *grant) occupiedAmount() amount {
	switch {
	case !g.up:
		return g.asleepAmount()
	case g.claim != nil:
		return g.kinds.amountOf(g.want, g.gpus).sub(g.claim.need)
	}
	return g.kinds.amountOf(g.want, g.gpus)
}

// asleepAmount returns what the grant occupies while its machine is down.
func (g *grant) asleepAmount() amount {
	a := amount{res: cluster.Resources{Disk: g.want.Disk}}
	if g.tenant.Wakes {
		a.promised = g.want.Sub(a.res)
	}
	return a
}

// NewSeller makes the seller of an empty worker. rec names the worker and its capacity.
func NewSeller(rec cluster.Record) *Seller {
	rec.Used, rec.Machines, rec.Starting, rec.Evictable, rec.Full = cluster.Resources{}, 0, 0, nil, nil
	rec.Promised, rec.Tasks, rec.Wanted = cluster.Resources{}, cluster.Resources{}, nil
	rec.Apps, rec.Volumes, rec.VolumesOf = map[string]int{}, map[string]string{}, map[string]int{}
	rec.GPUs = slices.Clone(rec.GPUs)
	for i := range rec.GPUs {
		rec.GPUs[i].Free = 1000
	}
	s := &Seller{rec: rec, kinds: kindsOf(&rec), grants: map[string]*grant{}, holds: newHolds(),
		wanted: wanted{}, refusals: map[string]uint64{}, leaving: map[string]string{},
		kept:            newKeptMachines(),
		EvictionHistory: EvictionHistory{byApp: map[string][]machine.Preemption{}},
		evictable:       evictableRanks{byRank: map[int]*cluster.Evictable{}}}
	s.setApart()
	return s
}

// Record returns the worker's record at now. It is not changed afterwards.
func (s *Seller) Record(now time.Time) cluster.Record {
	s.expireHolds(now)
	r := s.rec
	r.Apps, r.Volumes, r.VolumesOf = maps.Clone(s.rec.Apps), maps.Clone(s.rec.Volumes), maps.Clone(s.rec.VolumesOf)
	r.Evictable, r.At = s.evictable.listByRank(), now
	return r
}

// SetImages sets the images that the worker can start without a pull.
func (s *Seller) SetImages(names []string) {
	if !slices.Equal(s.rec.Images, names) {
		s.rec.Images = names
		s.bumpVersion()
	}
}

// Ask returns what Grant would answer now, without reserving anything. If it would refuse and the request may preempt,
// the quote includes the eviction that Claim would choose.
func (s *Seller) Ask(now time.Time, r placement.Request) Quote {
	s.expireHolds(now)
	s.setFunds(now, &r)
	q := Quote{Verdict: placement.Judge(r, s.recordWithout(r.Machine)), Record: s.Record(now)}
	if !q.Verdict.Fits {
		q.Evict = s.searchVictims(now, &r, s.recordWithout(r.Machine))
	}
	return q
}

// recordWithout returns the record without what one machine occupies, since a machine that is already here needs only
// what it does not yet occupy.
func (s *Seller) recordWithout(machine string) cluster.Record {
	if g, here := s.grants[machine]; here {
		rec := recordWithoutGone(s.rec, g.occupiedAmount())
		rec.Full, rec.PromiseLimit = nil, 0 // it is already counted, and has its promise
		return rec
	}
	return s.rec
}

// recordWithoutGone returns the record without the amount gone. rec is not changed.
func recordWithoutGone(rec cluster.Record, gone amount) cluster.Record {
	rec.Used, rec.Promised = rec.Used.Sub(gone.res), rec.Promised.Sub(gone.promised)
	rec.GPUs = devicesFreed(rec.GPUs, gone.gpus, 1)
	return rec
}

// devicesFreed returns the devices with shares freed (sign 1) or taken (-1).
func devicesFreed(devices []cluster.GPU, shares []Share, sign int64) []cluster.GPU {
	if len(shares) == 0 {
		return devices
	}
	out := slices.Clone(devices)
	for _, sh := range shares {
		out[sh.Device].Free += sign * sh.Milli
	}
	return out
}

// Grant gives the request its room for as long as the machine exists; up: it occupies all of it now, not only its
// disk. A repeated grant for the same machine changes nothing and returns nil. token redeems a hold; if the hold has
// expired, the request is judged like any other.
func (s *Seller) Grant(now time.Time, r placement.Request, token string, up bool) error {
	s.expireHolds(now)
	if g, here := s.grants[r.Machine]; here {
		return sameApp(g, r)
	}
	s.endHold(now, token, r.Machine)
	s.setFunds(now, &r)
	if v := placement.Judge(r, s.recordWithout(r.Machine)); !v.Fits {
		return s.refuseRequest(now, r, v, "")
	}
	s.grantWanted(&r, token)
	g := grantOf(r, up)
	if up {
		g.gpus = pickDevices(s.rec.GPUs, r.Resources.GPU, r.GPUKind, nil)
	}
	s.enterGrant(r.Machine, g)
	return nil
}

func sameApp(g *grant, r placement.Request) error {
	if g.app != r.App {
		return fault.New(fault.Conflict, fault.CodeIDInUse, "machine id %s is in use; choose another", r.Machine)
	}
	return nil
}

func grantOf(r placement.Request, up bool) *grant {
	return &grant{app: r.App, want: r.Resources, up: up,
		tenant: Tenant{Namespace: r.Namespace, Rank: r.Scheduling.Rank(), Budget: r.Scheduling.Budget(),
			GPUKind: r.GPUKind, Wakes: r.Wakes}}
}

// Restore enters an existing grant at start-up, without judging it. gpus are its devices, if it is up and the worker
// lists devices; without gpus they are chosen.
func (s *Seller) Restore(machine, app string, want cluster.Resources, up bool, gpus ...Share) {
	s.Free(machine)
	g := grantOf(placement.Request{App: app, Resources: want}, up)
	if up {
		g.gpus = s.restoredShares(want, gpus)
	}
	s.enterGrant(machine, g)
}

// restoredShares returns the devices of a restored grant.
func (s *Seller) restoredShares(want cluster.Resources, gpus []Share) []Share {
	if len(s.rec.GPUs) == 0 {
		return nil
	}
	gpus = slices.DeleteFunc(slices.Clone(gpus), func(sh Share) bool { // a worker may restart with fewer
		return sh.Device < 0 || sh.Device >= len(s.rec.GPUs) || sh.Milli <= 0 || sh.Milli > 1000
	})
	if len(gpus) == 0 {
		return pickDevices(s.rec.GPUs, want.GPU, "", nil)
	}
	return combineShares(nil, gpus, 1)
}

// enterGrant puts a new grant into the ledger.
func (s *Seller) enterGrant(id string, g *grant) {
	s.grants[id], g.kinds = g, s.kinds
	s.useAmount(g.occupiedAmount(), 1)
	s.countTask(g, 1)
	s.tallyEvictable(id, g, 1)
	if !g.volume {
		s.rec.Machines++
		s.rec.Apps[g.app]++
		s.kept.countMachine(g, 1, &s.rec)
	}
}

// editGrant changes a grant and updates the sums. What a leaving machine frees goes to its beneficiary.
func (s *Seller) editGrant(id string, f func(g *grant)) {
	g := s.grants[id]
	before := g.occupiedAmount()
	s.tallyEvictable(id, g, -1)
	s.kept.countResting(g, -1, &s.rec)
	f(g)
	after := g.occupiedAmount()
	s.tallyEvictable(id, g, 1)
	s.kept.countResting(g, 1, &s.rec)
	s.useAmount(before, -1)
	s.useAmount(after, 1)
	s.passToBeneficiary(id, before.sub(s.kinds.leastOf(before, after)), !g.up)
}

// useAmount adds an amount to the used room (sign 1) or removes it (-1).
func (s *Seller) useAmount(r amount, sign int64) {
	if sign > 0 {
		s.rec.Used, s.rec.Promised = s.rec.Used.Add(r.res), s.rec.Promised.Add(r.promised)
	} else {
		s.rec.Used, s.rec.Promised = s.rec.Used.Sub(r.res), s.rec.Promised.Sub(r.promised)
	}
	if s.rec.GPUs = devicesFreed(s.rec.GPUs, r.gpus, -sign); len(r.gpus) > 0 {
		s.setApart()
	}
	s.bumpVersion()
}

// SetUp makes a granted machine occupy its whole room, or only its disk. It may refuse to go up. A machine that goes
// down stops waiting for the room of others.
func (s *Seller) SetUp(now time.Time, machine string, up bool) error {
	g, ok := s.grants[machine]
	if !ok || g.up == up {
		return nil
	}
	return s.changeGrant(now, machine, g.want, up)
}

// Resize changes what a granted machine may occupy. It may refuse to grow; a refusal changes nothing.
func (s *Seller) Resize(now time.Time, machine string, want cluster.Resources) error {
	g, ok := s.grants[machine]
	if !ok {
		return fault.New(fault.Internal, codeLedger, "the ledger has no machine %s", machine)
	}
	return s.changeGrant(now, machine, want, g.up)
}

func (s *Seller) changeGrant(now time.Time, id string, want cluster.Resources, up bool) error {
	s.expireHolds(now)
	g := s.grants[id]
	to := grant{kinds: s.kinds, want: want, up: up, gpus: g.gpus}
	rec := s.recordWithout(id)
	if !up {
		to.gpus = nil
	} else if !g.up || want.GPU != g.want.GPU { // a running machine keeps its devices
		if to.gpus = pickDevices(rec.GPUs, want.GPU, g.tenant.GPUKind, g.gpus); want.GPU > g.want.GPU &&
			!coversShares(to.gpus, g.gpus) {
			to.gpus = nil
		}
	}
	if grown := to.occupiedAmount(); g.claim == nil && !grown.res.Fits(g.occupiedAmount().res) {
		// only the growth must fit, whatever the worker's state
		r := s.requestOf(id, grown.res)
		if s.funds != nil {
			r.Funds = s.funds(now, id, &r)
		}
		footprint := s.footprintOf(id)
		if v := footprint.Judge(r, s.rec); !v.Fits {
			return s.refuseFootprint(now, r, v, footprint)
		}
	}
	if g.claim != nil && !up {
		s.dropClaim(id)
	}
	s.editGrant(id, func(g *grant) { g.want, g.up, g.gpus = to.want, to.up, to.gpus })
	return nil
}

// requestOf returns a request of a machine that is here for want.
func (s *Seller) requestOf(id string, want cluster.Resources) placement.Request {
	g := s.grants[id]
	return placement.Request{App: g.app, Machine: id, Resources: want, GPUKind: g.tenant.GPUKind}
}

// Free removes a machine from the ledger, if it is there.
func (s *Seller) Free(machine string) {
	g, ok := s.grants[machine]
	if !ok {
		return
	}
	if g.claim != nil {
		s.dropClaim(machine)
	}
	had := g.occupiedAmount()
	s.tallyEvictable(machine, g, -1)
	delete(s.grants, machine)
	s.countTask(g, -1)
	s.useAmount(had, -1)
	s.passToBeneficiary(machine, had, true)
	if g.volume {
		return
	}
	s.kept.countMachine(g, -1, &s.rec)
	s.rec.Machines--
	if s.rec.Apps[g.app]--; s.rec.Apps[g.app] <= 0 {
		delete(s.rec.Apps, g.app)
	}
}

// SetStarting sets how many machines are starting; it counts against MaxStarting.
func (s *Seller) SetStarting(n int) {
	if s.rec.Starting != n {
		s.rec.Starting = n
		s.bumpVersion()
	}
}

// SetCordon cordons the worker; nil ends the cordon. The caller must not change c afterwards.
func (s *Seller) SetCordon(c *cluster.Cordon) {
	s.rec.Cordon, s.rec.State = c, c.State()
	s.bumpVersion()
}

// Cordon returns the cordon, or nil.
func (s *Seller) Cordon() *cluster.Cordon { return s.rec.Cordon }

// SetVolume adds a volume of an app, with the machine it is attached to ("" for none).
func (s *Seller) SetVolume(id, app, holder string) {
	if _, here := s.rec.Volumes[id]; !here {
		s.rec.VolumesOf[app]++
	}
	s.rec.Volumes[id] = holder
	s.bumpVersion()
}

// ForgetVolume removes a volume of an app.
func (s *Seller) ForgetVolume(id, app string) {
	if _, here := s.rec.Volumes[id]; !here {
		return
	}
	delete(s.rec.Volumes, id)
	if s.rec.VolumesOf[app]--; s.rec.VolumesOf[app] <= 0 {
		delete(s.rec.VolumesOf, app)
	}
	s.bumpVersion()
}

// Counters returns how many holds have expired, and the refusals by failing clause.
func (s *Seller) Counters() (expired uint64, refusals map[string]uint64) {
	return s.holds.expired, maps.Clone(s.refusals)
}

// Check panics if the ledger does not add up or is overdrawn. The check stays on in production.
func (s *Seller) Check() {
	sum, tasks := s.sharesAmount(s.sick), cluster.Resources{}
	for _, g := range s.grants {
		sum = sum.add(g.occupiedAmount())
		if g.task {
			tasks = tasks.Add(g.occupiedAmount().res)
		}
	}
	if diff := tasks.Sub(s.rec.Tasks); !diff.IsZero() {
		panic(fmt.Sprintf("market: the ledger says tasks use %v, its entries add up to %v", s.rec.Tasks, tasks))
	}
	for _, h := range s.holds.byToken {
		sum = sum.add(h.amount)
	}
	if diff := sum.res.Sub(s.rec.Used); !diff.IsZero() {
		panic(fmt.Sprintf("market: the ledger says %v is used, its entries add up to %v", s.rec.Used, sum.res))
	}
	if diff := sum.promised.Sub(s.rec.Promised); !diff.IsZero() {
		panic(fmt.Sprintf("market: the ledger says %v is promised, its entries add up to %v", s.rec.Promised,
			sum.promised))
	}
	for i, d := range s.rec.GPUs {
		if n := milliOf(sum.gpus, i); d.Free != 1000-n {
			panic(fmt.Sprintf("market: the ledger says %d thousandths of device %d are free, its entries add up to %d",
				d.Free, i, n))
		}
	}
	s.checkClaims()
}

func (s *Seller) bumpVersion() { s.rec.Version++ }

// Refuse returns a typed refusal for a reason that no record shows, so that the buyer goes on to the next worker.
func Refuse(s *Seller, now time.Time, r placement.Request, failing []machine.Clause) error {
	s.expireHolds(now)
	return s.refuseRequest(now, r, placement.Verdict{Failing: failing}, "")
}

// refuseRequest makes the typed refusal: the failing clauses, and the record that updates the buyer's view.
func (s *Seller) refuseRequest(now time.Time, r placement.Request, v placement.Verdict, format string,
	args ...any) *fault.Error {
	e := &fault.Error{Kind: fault.Exhausted, Code: fault.CodeNoCapacity, Scope: fault.ScopeHost, Op: "market.seller"}
	e.Text = "the worker cannot take the machine: " + placement.VerdictText(v)
	if v.Never {
		e.Code = fault.CodeNeverFits
	}
	if format != "" {
		e.Text = fmt.Sprintf(format, args...)
		e.RetryAfter = time.Second
	}
	for _, c := range v.Failing {
		s.refusals[c.Code]++
		if c.Code == placement.CodeStartRate {
			e.Code, e.RetryAfter = fault.CodeBusy, 100*time.Millisecond
		} else if c.Code == placement.CodeQuota {
			e.Code, e.Scope, e.RetryAfter = fault.CodeQuota,
				fault.ScopeQuota, r.Funds.Wait // a judge with this clause has set Funds
		} else if e.Resource == "" && r.Resources.Get(c.Code) > 0 {
			e.Resource = c.Code
		}
	}
	e.Detail = Refusal{Verdict: v, Record: s.Record(now), RetryAfter: e.RetryAfter}
	return e
}
