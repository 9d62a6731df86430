package wire

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/core/market"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/mesh/pki"
	"github.com/soukhq/souk/runtime"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	_ Served = (*Worker)(nil)
	_ Signer = (*pki.CA)(nil)
)

// stub is a worker whose answers the test gives, by the name of the call. Each answer is the call's first result, or an
// error, or a func of the call's own type for those that do more. The last question of each call is kept.
type stub struct {
	mu    sync.Mutex
	give  map[string]any
	asked map[string]any
	count map[string]int
}

func newStub() *stub {
	return &stub{give: map[string]any{}, asked: map[string]any{}, count: map[string]int{}}
}

func (s *stub) hear(call string, question any) any {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked[call] = question
	s.count[call]++
	return s.give[call]
}

func (s *stub) calls(call string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count[call]
}

func answer[T any](s *stub, call string, question any) (T, error) {
	return as[T](s.hear(call, question))
}

func as[T any](given any) (T, error) {
	var none T
	switch g := given.(type) {
	case error:
		return none, g
	case T:
		return g, nil
	}
	return none, nil
}

type pair struct{ App, ID string }

func (s *stub) ID() cluster.WorkerID { return "w1" }
func (s *stub) Record(context.Context) (cluster.Record, error) {
	return answer[cluster.Record](s, "Record", nil)
}
func (s *stub) Quote(_ context.Context, r placement.Request) (market.Quote, error) {
	return answer[market.Quote](s, "Quote", r)
}
func (s *stub) Hold(_ context.Context, c lifecycle.HoldCommand) (time.Time, error) {
	return answer[time.Time](s, "Hold", c)
}
func (s *stub) Release(_ context.Context, token string) error {
	_, err := answer[none](s, "Release", token)
	return err
}
func (s *stub) Grant(ctx context.Context, g lifecycle.Grant) (*machine.Machine, error) {
	given := s.hear("Grant", g)
	if f, ok := given.(func(context.Context, lifecycle.Grant) (*machine.Machine, error)); ok {
		return f(ctx, g)
	}
	return as[*machine.Machine](given)
}
func (s *stub) Cordon(_ context.Context, c lifecycle.CordonCommand) (cluster.Record, error) {
	return answer[cluster.Record](s, "Cordon", c)
}
func (s *stub) Do(_ context.Context, c lifecycle.Command) (lifecycle.Outcome, error) {
	return answer[lifecycle.Outcome](s, "Do", c)
}
func (s *stub) Obey(_ context.Context, app string, t cluster.Term) ([]lifecycle.Replica, error) {
	return answer[[]lifecycle.Replica](s, "Obey", termArgs{app, t})
}
func (s *stub) Lease(_ context.Context, c lifecycle.LeaseCommand) (machine.Lease, error) {
	return answer[machine.Lease](s, "Lease", c)
}
func (s *stub) CurrentLease(_ context.Context, app, id string) (machine.Lease, error) {
	return answer[machine.Lease](s, "CurrentLease", pair{app, id})
}
func (s *stub) Machine(_ context.Context, app, id string) (*machine.Machine, error) {
	return answer[*machine.Machine](s, "Machine", pair{app, id})
}
func (s *stub) Machines(_ context.Context, app string, destroyed bool) ([]*machine.Machine, error) {
	return answer[[]*machine.Machine](s, "Machines", listArgs{app, destroyed})
}
func (s *stub) Keyed(_ context.Context, app, hash string) (*machine.Machine, error) {
	return answer[*machine.Machine](s, "Keyed", pair{app, hash})
}
func (s *stub) Versions(_ context.Context, app, id string) ([]machine.Version, error) {
	return answer[[]machine.Version](s, "Versions", pair{app, id})
}
func (s *stub) Watch(ctx context.Context, app, id string, f func(*machine.Machine) bool) error {
	switch g := s.hear("Watch", pair{app, id}).(type) {
	case []*machine.Machine:
		for _, m := range g {
			if !f(m) {
				return nil
			}
		}
		<-ctx.Done()
		return ctx.Err()
	case error:
		return g
	}
	return nil
}
func (s *stub) Events(ctx context.Context, app string, f func(machine.EventOf) error) error {
	if g, ok := s.hear("Events", app).(func(context.Context, func(machine.EventOf) error) error); ok {
		return g(ctx, f)
	}
	return nil
}
func (s *stub) Exec(ctx context.Context, app, id string, r runtime.ExecRequest) (int, error) {
	given := s.hear("Exec", pair{app, id})
	if f, ok := given.(func(context.Context, runtime.ExecRequest) (int, error)); ok {
		return f(ctx, r)
	}
	return as[int](given)
}
func (s *stub) Dial(ctx context.Context, app, id string, port int) (runtime.Conn, error) {
	return answer[runtime.Conn](s, "Dial", dialOrder{ref{app, id}, port})
}
func (s *stub) Processes(_ context.Context, app, id string) ([]machine.Process, error) {
	return answer[[]machine.Process](s, "Processes", pair{app, id})
}
func (s *stub) Logs(_ context.Context, app, id string, q machine.LogQuery, emit func(machine.LogLine) error) error {
	list, err := answer[[]machine.LogLine](s, "Logs", logArgs{ref{app, id}, q.Cursor, q.Tail, q.Follow, q.Hold})
	for _, l := range list {
		if err := emit(l); err != nil {
			return err
		}
	}
	return err
}
func (s *stub) CopyOut(_ context.Context, app, id, path string, w io.Writer) error {
	return s.hear("CopyOut", pathArgs{ref{app, id}, path}).(func(io.Writer) error)(w)
}
func (s *stub) CopyIn(_ context.Context, app, id, path string, r io.Reader) error {
	return s.hear("CopyIn", pathArgs{ref{app, id}, path}).(func(io.Reader) error)(r)
}
func (s *stub) Volumes(_ context.Context, app string) ([]machine.Volume, error) {
	return answer[[]machine.Volume](s, "Volumes", app)
}
func (s *stub) Volume(_ context.Context, c lifecycle.VolumeCommand) (machine.Volume, error) {
	return answer[machine.Volume](s, "Volume", c)
}
func (s *stub) Examine(context.Context) []cluster.Finding {
	f, _ := answer[[]cluster.Finding](s, "Examine", nil)
	return f
}
func (s *stub) Stats() lifecycle.Stats {
	st, _ := answer[lifecycle.Stats](s, "Stats", nil)
	return st
}

// cast is a cluster's CA and its members, one for each set of roles, made once: members do not change.
type cast struct {
	ca  *pki.CA
	all map[string]*pki.Identity
}

func newCast(t testing.TB, now time.Time) *cast {
	t.Helper()
	dir := t.TempDir()
	ca, err := pki.Init(filepath.Join(dir, "ca"), now)
	must(t, err)
	c := &cast{ca, map[string]*pki.Identity{}}
	for id, roles := range map[string][]pki.Role{"w1": {pki.Worker}, "w2": {pki.Worker}, "g1": {pki.Gateway},
		"g2": {pki.Gateway},
		"b1": {pki.Worker, pki.Gateway}, "i1": {pki.Worker, pki.Gateway, pki.Issuer}} {
		must(t, ca.IssueTo(filepath.Join(dir, id), pki.Name{ID: id, Roles: roles}, now))
		c.all[id], err = pki.Load(filepath.Join(dir, id))
		must(t, err)
	}
	return c
}

// serve runs a server of member id on a socket until the test ends, and gives its address. change may be nil.
func (c *cast) serve(t testing.TB, id string, o Options, change func(*Server)) string {
	t.Helper()
	o.Identity = c.all[id]
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s, err := NewServer(o)
	must(t, err)
	if change != nil {
		change(s)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.Serve(ctx, ln); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	return ln.Addr().String()
}

// worker gives member id's link to worker w1 at addr.
func (c *cast) worker(t testing.TB, id, addr string, now func() time.Time) *Worker {
	t.Helper()
	w := NewClient(c.all[id], now).Worker("w1", func() string { return addr })
	t.Cleanup(w.Close)
	return w
}

// far is the usual: gateway g1 asks the stub on w1.
func far(t testing.TB, k Served) *Worker {
	t.Helper()
	c := newCast(t, time.Now())
	return c.worker(t, "g1", c.serve(t, "w1", Options{Worker: k}, nil), nil)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantFault(t testing.TB, err error, kind fault.Kind, code fault.Code) {
	t.Helper()
	f, ours := errors.AsType[*fault.Error](err)
	if !ours || f.Kind != kind || f.Code != code {
		t.Fatalf("got %v (%s %q), want %s %q", err, fault.KindOf(err), fault.CodeOf(err), kind, code)
	}
}

// Use is that of one machine.
func (s *stub) RunningTasks(context.Context) ([]lifecycle.Task, error) {
	return answer[[]lifecycle.Task](s, "RunningTasks", nil)
}
func (s *stub) Use(context.Context) ([]machine.Use, error) {
	return []machine.Use{{Machine: "d891275c2e5118", App: "a", Name: "web", CPU: 7, MemoryMiB: 3, Processes: 1}}, nil
}
