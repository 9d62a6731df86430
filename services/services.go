// Package services keeps services as they are wanted. Each process has one Services: it carries the services whose
// steward its member is (release.StewardOf), and no others. The pure rollout.Steward decides what to do; this package
// gives it the time and the state of the machines, and carries out its orders.
//
// At rest it does nothing: it looks at a service when its wanted state, one of its machines, or the set of reachable
// members changes. See docs/decisions/0069-services.md.
package services

import (
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/core/rollout"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/fleet"
	"github.com/soukhq/souk/internal/wait"
	"github.com/soukhq/souk/store/catalog"
)

// Bounds of Services.
const (
	// settleFor is how long a member waits after its start before it manages services: it is still learning what the
	// others have.
	settleFor = 3 * time.Second
	// awaitFor is how long it then waits for known workers that have not reported since its start: after a power cut
	// hosts come back one after another, with their machines.
	awaitFor  = 15 * time.Second
	gather    = time.Millisecond // changes of the fleet are gathered for at least this long
	share     = 20               // pause after a look, in durations of that look, while the fleet changes
	busyShare = 4                // the same, while orders are given
	busyFor   = time.Second      // orders count as given for this long: a lasting lack of room must not raise the pace
	mostUnder = 128              // orders under way; others wait for their turn
	tellAgain = time.Second      // retry after a term could not be written
	// restFor is how long the steward of a service at rest is kept: after that its memory is of no use.
	restFor = 2 * time.Minute
)

// Options are the dependencies of Services.
type Options struct {
	Self    cluster.WorkerID // this member, named in its terms
	Members Members          // nil: this process is alone
	Catalog Catalog
	Fleet   *fleet.Fleet
	Hands   Hands
	// LostAfter is as in rollout.Want.
	LostAfter time.Duration
	Log       *slog.Logger
}

// Members knows which members may be stewards.
type Members interface {
	// Stewards lists the reachable ones, including this one.
	Stewards() []cluster.WorkerID
	// Stuck asks another member how long its services loop has not completed a round.
	Stuck(ctx context.Context, member cluster.WorkerID) (time.Duration, error)
}

// Catalog holds the wanted services.
type Catalog interface {
	// AllServices lists the apps that are services.
	AllServices() []string
	// Service returns the wanted service of an app; false: none.
	Service(app string) (catalog.Service, bool)
	// ServicesMoved returns a channel that is closed when TakeMovedServices has something new. Call it before
	// TakeMovedServices.
	ServicesMoved() <-chan struct{}
	// TakeMovedServices lists the apps whose wanted service or steward has changed since the last call.
	TakeMovedServices() []string
	// SetTenure stores a term durably, and announces it to all members.
	SetTenure(app string, t release.Tenure) error
}

// Hands carry out orders. They may be used from many goroutines, and bound their own duration.
type Hands interface {
	// CarryOut carries out a steward's order for the service of an app, with machines as release r says.
	CarryOut(ctx context.Context, app string, r *release.Release, o rollout.Order) error
	// Obey makes a worker obey a term for an app, durably, and returns the machines of the app's service there.
	Obey(ctx context.Context, app string, t cluster.Term, worker cluster.WorkerID) ([]rollout.Found, error)
	// Cordon cordons a worker for a while.
	Cordon(ctx context.Context, worker cluster.WorkerID, why string) error
}

// Services keeps the services that this process's member carries. Run it once.
type Services struct {
	o       Options
	apps    map[string]*kept
	members []cluster.WorkerID
	watch   *watch
	turns   chan struct{} // semaphore of running orders
	ends    chan func(now time.Time)
	quiet   time.Time                 // no orders before this
	patient time.Time                 // missing workers are awaited until this
	doubted map[cluster.WorkerID]bool // workers that this member has cordoned, or is about to
	begun   map[string]uint64         // the highest term that this process has begun, by the app's id
	last    map[string]uint64         // the highest known term, by the app's name; see rememberTerm
	since   atomic.Int64              // when the present round began, nanoseconds since 1970; 0: idle
}

// kept is a service as this process sees it.
type kept struct {
	app     string
	changed bool // something changed since the last look
	due     time.Time
	steward *rollout.Steward // nil: another member carries it
	writing bool             // its term is being written
	ordered time.Time        // when its newest order was given
	rests   time.Time        // since when there is no work; zero: there is some
	over    oversight
}

// New returns services; Run keeps them.
func New(o Options) *Services {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Services{o: o, apps: map[string]*kept{}, begun: map[string]uint64{}, last: map[string]uint64{},
		doubted: map[cluster.WorkerID]bool{},
		watch:   newWatch(), turns: make(chan struct{}, mostUnder),
		ends: make(chan func(time.Time), mostUnder)}
}

// Run keeps services until ctx ends. Workers complete the orders begun by then.
func (s *Services) Run(ctx context.Context) {
	if s.o.Members != nil {
		began := time.Now()
		s.quiet, s.patient = began.Add(settleFor), began.Add(awaitFor)
	}
	for _, app := range s.o.Catalog.AllServices() {
		s.markChanged(app)
	}
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		began := time.Now()
		s.since.Store(began.UnixNano())
		moved := s.o.Catalog.ServicesMoved()
		past, next, busy := s.lookAtChanged(ctx)
		s.since.Store(0)
		took := time.Since(began)
		timer.Reset(next)
		select {
		case <-ctx.Done():
			return
		case <-moved:
		case <-past:
			pause := share * took
			if busy {
				pause = busyShare * took
			}
			if wait.For(ctx, max(gather, pause)) != nil {
				return
			}
		case <-timer.C:
		case end := <-s.ends:
			end(time.Now())
		}
	}
}

// Stuck returns how long the present round of the loop has taken; 0: the loop is idle.
func (s *Services) Stuck() time.Duration {
	since := s.since.Load()
	if since == 0 {
		return 0
	}
	return max(0, time.Since(time.Unix(0, since)))
}

// markChanged marks a service to be looked at.
func (s *Services) markChanged(app string) *kept {
	k := s.apps[app]
	if k == nil {
		k = &kept{app: app}
		s.apps[app] = k
	}
	k.changed = true
	return k
}

// lookAtChanged looks at the services that have changed or are due. past is closed when there is a newer snapshot of
// the fleet, next is the time until a service is due, and busy says that orders were given lately.
func (s *Services) lookAtChanged(ctx context.Context) (past <-chan struct{}, next time.Duration, busy bool) {
	for _, app := range s.o.Catalog.TakeMovedServices() {
		s.markChanged(app)
	}
	for len(s.ends) > 0 {
		(<-s.ends)(time.Now())
	}
	now := time.Now()
	snapshot := s.o.Fleet.Snapshot()
	changed := s.watch.lookAtFleet(snapshot)
	for _, app := range changed {
		s.markChanged(app)
	}
	if len(changed) > 0 && len(s.watch.loops) > 0 && s.isUpToDate(now) {
		s.suspectWorkers(ctx, now, snapshot)
	}
	if members := s.possibleStewards(); !slices.Equal(members, s.members) || s.watch.moved {
		s.members, s.watch.moved = members, false
		for _, k := range s.apps {
			k.changed = true
		}
	}
	next = time.Hour
	for app, k := range s.apps {
		if k.changed || !k.due.IsZero() && !now.Before(k.due) {
			k.changed, k.due = false, time.Time{}
			if !s.lookAt(ctx, now, k) {
				delete(s.apps, app)
				continue
			}
		}
		if !k.due.IsZero() {
			next = min(next, k.due.Sub(now))
		}
		busy = busy || now.Sub(k.ordered) < busyFor
	}
	return snapshot.Past(), max(next, 0), busy
}

// possibleStewards lists the members that may carry services.
func (s *Services) possibleStewards() []cluster.WorkerID {
	if s.o.Members == nil {
		return []cluster.WorkerID{s.o.Self}
	}
	return s.o.Members.Stewards()
}

// lookAt looks at one service. It returns false if it need not be kept in memory.
func (s *Services) lookAt(ctx context.Context, now time.Time, k *kept) bool {
	wanted, is := s.o.Catalog.Service(k.app)
	if !is || wanted.App.Deleting || wanted.Release == nil {
		k.steward = nil
		return k.writing
	}
	s.rememberTerm(k.app, wanted.Tenure.Term.Number)
	if !s.isUpToDate(now) {
		k.due = laterTime(s.quiet, now.Add(time.Second))
		return true
	}
	if steward := release.StewardOf(wanted.App.ID, s.members, wanted.Tenure); steward != s.o.Self &&
		!s.overseeSteward(ctx, now, k, &wanted, steward) {
		k.steward = nil // orders under way end by themselves, in their term
		return k.writing || k.over.of != "" || !k.due.IsZero()
	}
	if k.steward == nil {
		k.steward = rollout.NewSteward(wanted.Tenure.Term)
	}
	if k.writing {
		return true // looked at again when the write is done
	}
	n := k.steward.Step(now, s.wantedOf(&wanted), s.watch.standingOf(k.app))
	k.due = n.Again
	if len(n.Orders) > 0 {
		k.ordered = now
	}
	next := wanted.Tenure
	switch {
	case n.Term > 0:
		next.Term, next.Busy = s.beginTerm(n.Term, k.steward, &wanted), true
		s.writeTenure(ctx, k, next)
	case n.Tell:
		if n.Progress.State != next.Progress.State || n.Progress.Undo != next.Progress.Undo {
			s.o.Log.Info("a rollout came to something", "app", k.app, "release", n.Progress.Release, "state",
				n.Progress.State, "undo", n.Progress.Undo, "why", n.Progress.Why)
		}
		s.noteScaled(k.app, next.Scaled, n.Scaled)
		next.Notes, next.Busy = n.Notes, n.Busy
		s.writeTenure(ctx, k, next)
	case !n.Busy && next.Busy:
		next.Busy = false
		s.writeTenure(ctx, k, next)
	}
	for i := range n.Orders {
		s.carryOutOrder(ctx, k, &wanted, n.Orders[i])
	}
	for _, worker := range n.Obey {
		s.imposeTerm(ctx, k, worker)
	}
	if n.Busy || !n.Again.IsZero() || k.writing {
		k.rests = time.Time{}
		return true
	}
	return k.isRemembered(now)
}

// isRemembered reports whether the steward of a service at rest is still kept: the fleet may not show all that it
// ordered yet. After restFor a new steward can read everything from the machines.
func (k *kept) isRemembered(now time.Time) bool {
	if k.rests.IsZero() {
		k.rests = now
	}
	if over := k.rests.Add(restFor); now.Before(over) && !k.steward.Blank() {
		k.due = over
		return true
	}
	k.steward = nil
	return false
}

// wantedOf converts a catalog service for a steward.
func (s *Services) wantedOf(x *catalog.Service) *rollout.Want {
	w := rollout.WantOf(&x.Service, x.App.ID)
	w.LostAfter, w.Places = s.o.LostAfter, s.o.Fleet.Snapshot().Places()
	if x.Release.Fences() || x.Before != nil && x.Before.Fences() {
		w.Workers = s.watch.workers
	}
	return w
}

// beginTerm returns this member's new term: its number is at least least, and higher than any other member's. It never
// reuses a term of this process, even if the cluster has forgotten it: orders of that term may still be under way.
func (s *Services) beginTerm(least uint64, of *rollout.Steward, wanted *catalog.Service) cluster.Term {
	if newest := wanted.Tenure.Term; newest.Member != s.o.Self {
		least = max(least, newest.Number+1)
	}
	if wanted.Tenure.Term.IsZero() {
		least = max(least, s.last[wanted.App.Name]+1)
	}
	if of.Term().IsZero() {
		least = max(least, s.begun[wanted.App.ID]+1)
	}
	s.begun[wanted.App.ID] = least
	return cluster.Term{Number: least, Member: s.o.Self}
}

// mostLast bounds the apps whose last term is remembered.
const mostLast = 1 << 16

// rememberTerm records an app's term, even beyond the app's deletion: workers go on refusing lower terms, so a new app
// of that name must begin with a higher one.
func (s *Services) rememberTerm(app string, term uint64) {
	if _, known := s.last[app]; term > s.last[app] && (known || len(s.last) < mostLast) {
		s.last[app] = term
	}
}

// isUpToDate reports whether this process knows the others' machines by now.
func (s *Services) isUpToDate(now time.Time) bool {
	return !now.Before(s.quiet) && s.watch.reported && (!s.watch.awaited || !now.Before(s.patient))
}

func laterTime(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// writeTenure announces the service's new steward, and then looks at the service again.
func (s *Services) writeTenure(ctx context.Context, k *kept, t release.Tenure) {
	k.writing = true
	steward := k.steward
	s.beginAside(ctx, func() func(time.Time) {
		err := s.o.Catalog.SetTenure(k.app, t)
		return func(now time.Time) {
			k.writing = false
			switch {
			case err != nil:
				s.o.Log.Error("the steward of a service could not be written", "app", k.app, "term", t.Term, "err", err)
				k.due = now.Add(tellAgain)
				return
			case t.Busy:
				steward.Begin(t.Term)
			default:
				steward.Rest()
			}
			s.markChanged(k.app)
		}
	})
}

// carryOutOrder carries out an order in the background.
func (s *Services) carryOutOrder(ctx context.Context, k *kept, wanted *catalog.Service, o rollout.Order) {
	steward, r := k.steward, wanted.Release
	if wanted.Head.Release != o.Replica.Release {
		r = wanted.Before
	}
	s.beginAside(ctx, func() func(time.Time) {
		err := s.o.Hands.CarryOut(ctx, k.app, r, o)
		return func(now time.Time) {
			steward.Done(now, &o, err)
			if ctx.Err() == nil {
				s.logOrder(k.app, &o, err, steward.Outbid())
			}
			s.markChanged(k.app)
		}
	})
}

// imposeTerm makes a worker obey the steward's term, in the background.
func (s *Services) imposeTerm(ctx context.Context, k *kept, worker cluster.WorkerID) {
	steward, term := k.steward, k.steward.Term()
	s.beginAside(ctx, func() func(time.Time) {
		has, err := s.o.Hands.Obey(ctx, k.app, term, worker)
		return func(now time.Time) {
			steward.Obeyed(now, term, worker, has, err)
			if err != nil && ctx.Err() == nil {
				s.o.Log.Log(ctx, levelOf(err, steward.Outbid()), "a worker does not obey the steward of a service yet",
					"app", k.app, "worker", worker, "term", term, "err", err)
			}
			s.markChanged(k.app)
		}
	})
}

// levelOf returns the log level of a failed order. A worker that has obeyed a higher term is no problem the first time:
// another member was steward before, also of an earlier app of that name, and this steward's next term is higher.
// outbid counts such refusals in a row.
func levelOf(err error, outbid int) slog.Level {
	if fault.CodeOf(err) == cluster.CodeOldTerm && outbid <= 1 {
		return slog.LevelInfo
	}
	return slog.LevelWarn
}

// logOrder logs the outcome of an order.
func (s *Services) logOrder(app string, o *rollout.Order, err error, outbid int) {
	if err != nil {
		s.o.Log.Log(context.Background(), levelOf(err, outbid), "a service is not as it is wanted yet", "app",
			app, "replica", o.Slot().String(), "order", o.Verb, "machine", o.Machine, "err", err)
		return
	}
	s.o.Log.Info("a service was changed", "app", app, "replica", o.Slot().String(), "order", o.Verb, "machine",
		o.Machine, "why", o.Why)
}

// noteScaled logs the groups that autoscaling has resized.
func (s *Services) noteScaled(app string, old, now map[string]release.Scaled) {
	for name, x := range now {
		if x.At != old[name].At {
			s.o.Log.Info("a group of a service is scaled", "app", app, "group", name, "from", x.From, "to", x.Count,
				"load", x.Load)
		}
	}
}

// beginAside runs do in the background once a turn is free; the loop then runs the function that do returned.
func (s *Services) beginAside(ctx context.Context, do func() func(now time.Time)) {
	go func() {
		select {
		case s.turns <- struct{}{}:
		case <-ctx.Done():
			return
		}
		end := do()
		<-s.turns
		s.endAside(ctx, end)
	}()
}

// endAside passes the end function of background work to the loop.
func (s *Services) endAside(ctx context.Context, end func(now time.Time)) {
	select {
	case s.ends <- end:
	case <-ctx.Done():
	}
}
