// Package services keeps services as they are wanted. Each process has one: it carries those services whose steward its
// member is (release.StewardOf), and leaves the others alone. What is to be done rollout.Steward decides; this package
// gives it time, what stands, and hands.
//
// At rest it does nothing: it looks at a service when what is wanted of it changes, or one of its machines, or which
// members can be heard. See docs/decisions/0069-services.md.
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

// Bounds of a process's services.
const (
	// settleFor is how long a member of a cluster leaves services alone after its start: what the others have it is
	// about to hear.
	settleFor = 3 * time.Second
	// awaitFor is how long it then waits for workers that belong to the cluster and of which nothing was heard since its
	// start: after a power cut hosts come back one after the other, with what they had.
	awaitFor  = 15 * time.Second
	gather    = time.Millisecond // at least, that changes of the fleet are looked at together
	share     = 20               // of its time a part in so many is spent on looking, while the fleet changes
	busyShare = 4                // the same, while orders are given
	busyFor   = time.Second      // after an order: what lacks room for long is no reason to look more often
	mostUnder = 128              // orders under way; others wait for their turn
	tellAgain = time.Second      // after a term that could not be written
	// restFor is how long the steward of a service at rest is kept: what it remembers is of no use any more.
	restFor = 2 * time.Minute
)

// Options are what services are kept with.
type Options struct {
	Self    cluster.WorkerID // the member, which stands in its terms
	Members Members          // nil: this process is alone
	Catalog Catalog
	Fleet   *fleet.Fleet
	Hands   Hands
	// LostAfter is rollout.Want's.
	LostAfter time.Duration
	Log       *slog.Logger
}

// Members tells which members may carry services.
type Members interface {
	// Stewards lists those that can be heard, this one among them.
	Stewards() []cluster.WorkerID
	// Stuck asks another for how long its services have not come round.
	Stuck(ctx context.Context, member cluster.WorkerID) (time.Duration, error)
}

// Catalog is what is wanted.
type Catalog interface {
	// AllServices lists the apps that are services.
	AllServices() []string
	// Service returns what is wanted of one; false: nothing.
	Service(app string) (catalog.Service, bool)
	// ServicesMoved returns a channel that is closed when TakeMovedServices has something new. It is called before that.
	ServicesMoved() <-chan struct{}
	// TakeMovedServices lists the apps of which something else is wanted, or that another steward carries, since the
	// last call.
	TakeMovedServices() []string
	// SetTenure has all know of a term, durably.
	SetTenure(app string, t release.Tenure) error
}

// Hands carry out orders. They may be used from many goroutines, and bound how long they take.
type Hands interface {
	// CarryOut does what a steward ordered for the service of an app, whose machines are to be as a release says.
	CarryOut(ctx context.Context, app string, r *release.Release, o rollout.Order) error
	// Obey has a worker obey a term for an app, durably, and returns which machines of its service it has then.
	Obey(ctx context.Context, app string, t cluster.Term, worker cluster.WorkerID) ([]rollout.Found, error)
	// Cordon has a worker take nothing new for a while.
	Cordon(ctx context.Context, worker cluster.WorkerID, why string) error
}

// Services keeps the services that this process's member carries. Run it once.
type Services struct {
	o       Options
	apps    map[string]*kept
	members []cluster.WorkerID
	watch   *watch
	turns   chan struct{} // of orders
	ends    chan func(now time.Time)
	quiet   time.Time                 // nothing is done before
	patient time.Time                 // no worker is awaited after that
	doubted map[cluster.WorkerID]bool // workers that this member has cordoned, or is about to
	begun   map[string]uint64         // the highest term that this process has begun, by the app's id
	last    map[string]uint64         // the highest term that was heard of, by the app's name; see rememberTerm
	since   atomic.Int64              // when the loop began to look, nanoseconds since 1970; 0: it waits
}

// kept is a service as this process sees it.
type kept struct {
	app     string
	changed bool // it was not looked at since something changed
	due     time.Time
	steward *rollout.Steward // nil: another member carries it
	writing bool             // its term is being written
	ordered time.Time        // when its newest order was given
	rests   time.Time        // since when nothing is to be done; zero: something is
	over    oversight
}

// New returns services that are kept once Run is called.
func New(o Options) *Services {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Services{o: o, apps: map[string]*kept{}, begun: map[string]uint64{}, last: map[string]uint64{},
		doubted: map[cluster.WorkerID]bool{},
		watch:   newWatch(), turns: make(chan struct{}, mostUnder),
		ends: make(chan func(time.Time), mostUnder)}
}

// Run keeps services until ctx ends. What it has begun by then workers go on with.
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

// Stuck returns for how long the services have not come round: 0 where they wait for something to do.
func (s *Services) Stuck() time.Duration {
	since := s.since.Load()
	if since == 0 {
		return 0
	}
	return max(0, time.Since(time.Unix(0, since)))
}

// markChanged has a service looked at.
func (s *Services) markChanged(app string) *kept {
	k := s.apps[app]
	if k == nil {
		k = &kept{app: app}
		s.apps[app] = k
	}
	k.changed = true
	return k
}

// lookAtChanged looks at the services of which something has changed, or whose time has come. It returns when the fleet
// is past what was looked at, for how long there is nothing to do if it is not, and whether orders were given of late.
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

// lookAt looks at one service. It returns false where there is nothing to remember of it.
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
		k.steward = nil // what it has under way ends by itself, in its term
		return k.writing || k.over.of != "" || !k.due.IsZero()
	}
	if k.steward == nil {
		k.steward = rollout.NewSteward(wanted.Tenure.Term)
	}
	if k.writing {
		return true // it is looked at when that is done
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

// isRemembered reports whether the steward of a service at rest is kept. It is for a while: the fleet may not have told
// of all that it ordered. Later ones read the same off the machines.
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

// wantedOf returns what is wanted, as a steward reads it.
func (s *Services) wantedOf(x *catalog.Service) *rollout.Want {
	w := rollout.WantOf(&x.Service, x.App.ID)
	w.LostAfter, w.Places = s.o.LostAfter, s.o.Fleet.Snapshot().Places()
	if x.Release.Fences() || x.Before != nil && x.Before.Fences() {
		w.Workers = s.watch.workers
	}
	return w
}

// beginTerm returns the term that this member begins: its number is at least least, and beyond that of any other
// member. A steward begins none that an earlier one of this process had, whatever the cluster remembers of it: its
// orders may be on their way.
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

// rememberTerm notes a term of an app. It is remembered when the app is gone: workers go on to refuse what is lower, so
// that the first term of another app of that name is to be higher.
func (s *Services) rememberTerm(app string, term uint64) {
	if _, known := s.last[app]; term > s.last[app] && (known || len(s.last) < mostLast) {
		s.last[app] = term
	}
}

// isUpToDate reports whether this process has heard by now what the others have.
func (s *Services) isUpToDate(now time.Time) bool {
	return !now.Before(s.quiet) && s.watch.reported && (!s.watch.awaited || !now.Before(s.patient))
}

func laterTime(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// writeTenure has all know of the service's steward, and then has the service looked at again.
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

// carryOutOrder has an order carried out.
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

// imposeTerm has a worker obey the steward's term.
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

// levelOf returns how an order that failed is logged. That a worker has obeyed a higher term is nothing wrong where it
// is the first time: another member carried the service before, or an app of its name, and the steward's next term is
// higher. outbid is how often that came in a row.
func levelOf(err error, outbid int) slog.Level {
	if fault.CodeOf(err) == cluster.CodeOldTerm && outbid <= 1 {
		return slog.LevelInfo
	}
	return slog.LevelWarn
}

// logOrder logs what came of an order.
func (s *Services) logOrder(app string, o *rollout.Order, err error, outbid int) {
	if err != nil {
		s.o.Log.Log(context.Background(), levelOf(err, outbid), "a service is not as it is wanted yet", "app",
			app, "replica", o.Slot().String(), "order", o.Verb, "machine", o.Machine, "err", err)
		return
	}
	s.o.Log.Info("a service was changed", "app", app, "replica", o.Slot().String(), "order", o.Verb, "machine",
		o.Machine, "why", o.Why)
}

// noteScaled logs which groups have chosen to have another number of machines.
func (s *Services) noteScaled(app string, old, now map[string]release.Scaled) {
	for name, x := range now {
		if x.At != old[name].At {
			s.o.Log.Info("a group of a service is scaled", "app", app, "group", name, "from", x.From, "to", x.Count,
				"load", x.Load)
		}
	}
}

// beginAside does something beside the loop, in its turn; the loop then is told how it ended.
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

// endAside has the loop told how something ended.
func (s *Services) endAside(ctx context.Context, end func(now time.Time)) {
	select {
	case s.ends <- end:
	case <-ctx.Done():
	}
}
