package releases

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// serve answers each question for the service with the next status, the last again and again, and calls asked before.
func serve(t *testing.T, asked func(n int), all ...api.ServiceStatus) *client.Client {
	t.Helper()
	var n atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		i := int(n.Add(1))
		asked(i)
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(all[min(i, len(all))-1])
	}))
	t.Cleanup(s.Close)
	return client.New(s.URL, "token")
}

// status is one of a service of two groups: all of db is ready, and of web so many of those that are wanted.
func status(release string, wanted, ready int) api.ServiceStatus {
	slots := func(wanted, ready int) (out []api.SlotStatus) {
		for i := range wanted {
			x := api.SlotStatus{Index: i, Machine: fmt.Sprint("m", i), Ready: i < ready, State: machine.Started}
			if !x.Ready {
				x.Unfit = "check up does not pass: 500"
			}
			out = append(out, x)
		}
		return out
	}
	return api.ServiceStatus{App: "shop", Head: &api.Head{ID: "h", Release: release, By: "bob"},
		Groups: []api.GroupStatus{{Name: "db", Wanted: 2, There: 2, Ready: 2, Image: "x", Slots: slots(2, 2)},
			{Name: "web", Wanted: wanted, There: wanted, Ready: ready, Image: "x", Slots: slots(wanted, ready)}}}
}

// with is a status with a slot changed.
func with(s api.ServiceStatus, change func(*api.SlotStatus)) api.ServiceStatus {
	slots := s.Groups[1].Slots
	change(&slots[len(slots)-1])
	return s
}

// rolling is a status whose rollout is in a state.
func rolling(state release.Rolled, ready int) api.ServiceStatus {
	s := status("r1", 3, ready)
	s.Rollout = &api.Rollout{Number: 1, Release: "r1", Before: "r0", InForce: "r1", State: state, Why: "it dies",
		Steps: 2}
	return s
}

// TestAwaitRolloutReportsUndoneAndPausedRollouts: the wait for a rollout ends with the reason where it is undone or
// paused. A member that does not know the release yet is asked again.
func TestAwaitRolloutReportsUndoneAndPausedRollouts(t *testing.T) {
	head := &api.Head{ID: "h", Release: "r1", Number: 2}
	stale := status("r0", 3, 3)
	newer := func(s api.ServiceStatus) api.ServiceStatus {
		s.Head.Number = 2
		return s
	}
	at := func(state release.Rolled, ready int) api.ServiceStatus { return newer(rolling(state, ready)) }
	unheard := with(at(release.RolledDone, 2), func(x *api.SlotStatus) { *x = api.SlotStatus{Index: 2} })
	unheard.Groups[1].There = 2
	// A member may know that the rollout is done before it knows each change. Its answer does not end the wait.
	unsaid := func(change func(*api.SlotStatus)) api.ServiceStatus {
		s := with(at(release.RolledDone, 3), change)
		s.Groups[1].There = 2
		return s
	}
	coming := unsaid(func(x *api.SlotStatus) { x.Old = true })
	coming.Groups[1].Slots = append(coming.Groups[1].Slots,
		api.SlotStatus{Index: 2, Machine: "m9", State: machine.Creating, Extra: true})
	going := unsaid(func(*api.SlotStatus) {})
	going.Groups[1].Slots = append(going.Groups[1].Slots,
		api.SlotStatus{Index: 2, Machine: "m9", State: machine.Stopping, Old: true, Extra: true})
	fewer := at(release.RolledDone, 3) // after a scale: those that stay need not be the first
	for i := range fewer.Groups[1].Slots {
		fewer.Groups[1].Slots[i].Index += 2
	}
	fewer.Groups[1].Slots = append(fewer.Groups[1].Slots, api.SlotStatus{Index: 0, Machine: "m9", Extra: true,
		Held: "it died"})
	for name, x := range map[string]struct {
		all   []api.ServiceStatus
		group string
		code  fault.Code
		told  string
	}{
		"done": {all: []api.ServiceStatus{stale, at(release.RolledRunning, 3), at(release.RolledDone, 3)},
			told: "db of shop: 2 of 2 ready; web of shop: 3 of 3 ready"},
		"done, and one is sick for a moment": {
			all:  []api.ServiceStatus{at(release.RolledDone, 2), at(release.RolledDone, 3)},
			told: "web of shop: 2 of 3 ready; web/2: check up does not pass: 500"},
		"done, and one is held": {all: []api.ServiceStatus{with(at(release.RolledDone, 2),
			func(x *api.SlotStatus) { x.Held = "it died" })}, code: "held"},
		"done, and one is asleep": {all: []api.ServiceStatus{with(at(release.RolledDone, 2),
			func(x *api.SlotStatus) { x.Asleep = true })}},
		"the old ones are up": {all: []api.ServiceStatus{with(at(release.RolledRunning, 3),
			func(x *api.SlotStatus) { x.Old = true }), at(release.RolledDone, 3)},
			told: "web of shop: 2 of 3 new ready, 1 old up"},
		"done, and this member has not heard of a machine": {
			all: []api.ServiceStatus{unheard, at(release.RolledDone, 3)}},
		"done, and this member has an old machine as ready and its new one as coming": {
			all: []api.ServiceStatus{coming, at(release.RolledDone, 3)}},
		"done, and this member has an old machine on its way out": {
			all: []api.ServiceStatus{going, at(release.RolledDone, 3)}},
		"done, and others than the first were kept": {all: []api.ServiceStatus{fewer}},
		"waiting for a promote": {all: []api.ServiceStatus{with(at(release.RolledWaiting, 3),
			func(x *api.SlotStatus) { x.Old = true })}},
		"undone": {all: []api.ServiceStatus{at(release.RolledUndoing, 3), at(release.RolledUndone, 3)},
			code: "undone", told: "shop: it dies; release r1 is made again"},
		"paused":    {all: []api.ServiceStatus{at(release.RolledPaused, 3)}, code: "paused"},
		"overtaken": {all: []api.ServiceStatus{newer(status("r2", 3, 3))}, code: "overtaken"},
		"a group, undone": {all: []api.ServiceStatus{at(release.RolledUndoing, 3), at(release.RolledUndone, 3)},
			group: "web", code: "undone"},
		"a group, done": {all: []api.ServiceStatus{at(release.RolledRunning, 3), at(release.RolledDone, 3)},
			group: "web", told: "souk: web of shop: 3 of 3 ready"},
	} {
		t.Run(name, func(t *testing.T) {
			var errs bytes.Buffer
			c := &cli.Env{Err: &errs}
			s, err := Await(t.Context(), c, serve(t, func(int) {}, x.all...), "shop", x.group, head)
			if fault.CodeOf(err) != x.code && err != nil || err == nil && (x.code != "" || s.Groups[1].There != 3) {
				t.Errorf("%+v, %v", s, err)
			}
			if !strings.Contains(errs.String(), x.told) {
				t.Errorf("%q is not told:\n%s", x.told, errs.String())
			}
		})
	}
}

// TestAwaitGroupReportsEachChangeOnce waits for the machines of one group, tells each change once, and ends where another release is wanted or it
// is interrupted, which it says.
func TestAwaitGroupReportsEachChangeOnce(t *testing.T) {
	head := &api.Head{ID: "h", Release: "r1"}
	missing := status("r1", 3, 3)
	missing.Why = "it is not here yet"
	for name, x := range map[string]struct {
		all  []api.ServiceStatus
		code fault.Code
		told []string
	}{
		"ready": {all: []api.ServiceStatus{status("r1", 3, 3)}},
		"by and by": {all: []api.ServiceStatus{missing, status("r1", 3, 0), status("r1", 3, 0), status("r1", 3, 3)},
			told: []string{"web of shop: 0 of 3 ready; web/0: check up does not pass: 500"}},
		"held": {all: []api.ServiceStatus{status("r1", 3, 2), with(status("r1", 3, 2),
			func(x *api.SlotStatus) { x.Held = "it died" })}, code: "held"},
		"overtaken": {all: []api.ServiceStatus{status("r1", 3, 0), status("r2", 3, 3)}, code: "overtaken"},
	} {
		t.Run(name, func(t *testing.T) {
			var errs bytes.Buffer
			c := &cli.Env{Err: &errs}
			s, err := Await(t.Context(), c, serve(t, func(int) {}, x.all...), "shop", "web", head)
			if fault.CodeOf(err) != x.code && err != nil || err == nil && (x.code != "" || s.Groups[1].Ready != 3) {
				t.Errorf("%+v, %v", s, err)
			}
			for _, line := range x.told {
				if strings.Count(errs.String(), line) != 1 {
					t.Errorf("%q is not told once:\n%s", line, errs.String())
				}
			}
		})
	}
	var errs bytes.Buffer
	ctx, stop := context.WithCancel(t.Context())
	interrupt := func(n int) {
		if n == 2 {
			stop()
		}
	}
	cl := serve(t, interrupt, status("r1", 3, 1))
	if _, err := Await(ctx, &cli.Env{Err: &errs}, cl, "shop", "web", head); err == nil ||
		!strings.Contains(errs.String(), `"souk status --app shop" tells how far that is`) {
		t.Errorf("%v: %s", err, errs.String())
	}
}

func TestScaleArgumentsParsePerGroupCounts(t *testing.T) {
	for _, x := range []struct {
		args  string
		named int
		plain int
		bad   bool
	}{
		{"3", 0, 3, false}, {"0", 0, 0, false}, {"web=3", 1, 0, false}, {"web=3 db=0", 2, 0, false},
		{"3 4", 0, 0, true}, {"web=3 4", 0, 0, true}, {"web=1 web=2", 0, 0, true}, {"=3", 0, 0, true},
		{"web=", 0, 0, true}, {"-1", 0, 0, true}, {"web=x", 0, 0, true},
	} {
		counts, plain, err := countsOf(strings.Fields(x.args))
		if (err != nil) != x.bad || len(counts) != x.named || plain != x.plain {
			t.Errorf("%s: %v, %d, %v", x.args, counts, plain, err)
		}
	}
}
