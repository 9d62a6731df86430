package faults_test

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/test/faults"
	"github.com/soukhq/souk/test/netns"
	"github.com/soukhq/souk/test/soukexe"
)

const (
	shop     = "shop"
	shopPort = 8080
	apart50  = 50 * time.Millisecond // on the way between two hosts, each way
)

// far makes three members that hear each other late, and an app.
func far(t *testing.T) ([]*faults.Member, netns.Hosts) {
	t.Helper()
	hosts, err := allHosts()
	if err != nil {
		t.Fatal(err)
	}
	hosts = hosts[:3]
	for _, h := range hosts {
		if err := h.Delay(apart50); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if err := hosts.Heal(); err != nil {
			t.Error(err)
		}
	})
	ms := members(t, hosts, "--pace", "wan")
	if _, err := ms[0].Client().CreateApp(t.Context(), shop); err != nil {
		t.Fatal(err)
	}
	waittest.Succeed(t, "all members know the app", func() (err error) {
		for _, m := range ms {
			_, one := m.Client().App(t.Context(), shop)
			err = cmp.Or(err, one)
		}
		return err
	})
	return ms, hosts
}

// members makes a member on each host, and waits until they hear each other.
func members(t *testing.T, hosts netns.Hosts, flags ...string) []*faults.Member {
	t.Helper()
	exe, err := soukexe.Path(false)
	if err != nil {
		t.Fatal(err)
	}
	o := faults.Options{Exe: exe, Dir: t.TempDir(), Slots: 64, Flags: flags}
	ms, err := faults.Build(t.Context(), &o, hosts)
	t.Cleanup(func() {
		faults.End(ms)
		if t.Failed() {
			warnings(t, o.Dir)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	waittest.Succeed(t, "the members hear each other", func() error {
		for i, m := range ms {
			list, err := m.Client().Workers(t.Context())
			if err != nil {
				return err
			}
			if len(list.Workers) != len(ms) || len(list.Unreachable) > 0 {
				return fmt.Errorf("member %d hears %d workers; unreachable: %v", i, len(list.Workers), list.Unreachable)
			}
		}
		return nil
	})
	return ms
}

// shopOf is a machine of the shop at a member, which nothing answers for by itself.
func shopOf(m *faults.Member, name string, skip bool) *machine.Launch {
	at := cluster.Requirement{Attribute: "worker", Op: cluster.Equal,
		Values: []cluster.Value{cluster.Text(string(m.Worker()))}}
	return &machine.Launch{Name: name, SkipLaunch: skip, Config: &machine.Config{Image: machine.HostImage,
		Init:    machine.Init{Exec: []string{"sleep", "1000000"}},
		Guest:   &machine.Guest{CPUKind: "shared", CPUs: 1, MemoryMB: 256},
		Network: &machine.Network{SharePorts: true}, // none of them listens, or one of a host does
		Services: []machine.Service{{Protocol: "tcp", InternalPort: shopPort,
			Ports: []machine.Port{{Port: new(80), Handlers: []string{"http"}}}}}},
		Scheduling: &machine.Scheduling{Prefer: []cluster.Preference{{Requirement: at, Weight: 1000}}}}
}

// TestHostDeathMovesHeldRequests: 200 requests wait at a member that has no machine, 50 ms away from those that have
// one each, when the host goes whose machine is being woken: killed, and with its cable out, so that nothing of it says
// that it is gone. The machine of the other host answers.
func TestHostDeathMovesHeldRequests(t *testing.T) {
	apart(t, func() {
		t.Run("killed", func(t *testing.T) { hostDies(t, false) })
		t.Run("silent", func(t *testing.T) { hostDies(t, true) })
	})
}

func hostDies(t *testing.T, silent bool) {
	const n, bound = 200, 30 * time.Second
	ms, hosts := far(t)
	machines := map[int]string{}
	for i := 1; i <= 2; i++ {
		m, err := ms[i].Client().Launch(t.Context(), shop, shopOf(ms[i], fmt.Sprint("web-", i), true),
			client.LaunchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		machines[i] = m.ID
	}
	waittest.Succeed(t, "the entrance knows both machines", func() error {
		list, err := ms[0].Client().Services(t.Context(), shop)
		if err == nil && (len(list.Services) != 1 || len(list.Services[0].Machines) != 2) {
			err = fmt.Errorf("%+v", list.Services)
		}
		return err
	})
	answers := make(chan string, n)
	var died atomic.Bool
	for i := range n {
		go func() {
			a := asked(t.Context(), ms[0], fmt.Sprint("/", i))
			for strings.HasPrefix(a, "503 ") && !died.Load() && t.Context().Err() == nil {
				a = asked(t.Context(), ms[0], fmt.Sprint("/", i)) // on a busy host members are not heard for a moment
			}
			answers <- a
		}()
	}
	waittest.Succeed(t, "all are held", func() error {
		list, err := ms[0].Client().Services(t.Context(), shop)
		if err == nil && list.Services[0].Held != n {
			err = fmt.Errorf("%d of %d are", list.Services[0].Held, n)
		}
		return err
	})
	woken := waittest.See(t, "one machine is being woken", func() int {
		for i, id := range machines {
			if m, err := ms[i].Client().Machine(t.Context(), shop, id); err == nil && m.State == machine.Started {
				return i
			}
		}
		return 0
	}, func(i int) bool { return i != 0 })
	died.Store(true)
	if silent {
		if err := hosts.Part(func(i int) bool { return i == woken }); err != nil {
			t.Fatal(err)
		}
	}
	ms[woken].PowerOff()
	begin := time.Now()
	ln, err := ms[3-woken].Listen(fmt.Sprint(":", shopPort))
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "fine") }),
		ReadHeaderTimeout: time.Minute}
	go func() { _ = s.Serve(ln) }() // it ends with the test
	t.Cleanup(func() { s.Close() })
	got, late := map[string]int{}, time.After(bound)
	for k := range n {
		select {
		case a := <-answers:
			got[a]++
		case <-late:
			t.Fatalf("%v after a host died %d of %d are answered: %v", bound, k, n, got)
		}
	}
	t.Logf("%v after %v", got, time.Since(begin))
	refused := 0
	for what, times := range got {
		if strings.HasPrefix(what, "503 ") {
			refused += times
		} else if what != "200 fine" {
			t.Errorf("%d times: %s", times, what)
		}
	}
	if got["200 fine"] == 0 {
		t.Errorf("nobody got the other host's machine: %v", got)
	}
}

// asked returns what a member's proxy answers: the status, and the body or the reason of a refusal.
func asked(ctx context.Context, m *faults.Member, path string) string {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://souk"+path, nil)
	if err != nil {
		return err.Error()
	}
	r.Host = shop + ".localhost"
	resp, err := m.Proxy().Do(r)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	switch why := resp.Header.Get("Souk-Error"); {
	case err != nil:
		return err.Error()
	case resp.StatusCode == http.StatusServiceUnavailable && why != "" && len(body) > 0:
		return "503 " + why
	}
	return fmt.Sprint(resp.StatusCode, " ", string(body))
}

// inTables is how long after the last change all tables have all changes.
const inTables = 2 * time.Second

// differences says what a member's table has otherwise than the machines of the shop that are wanted.
func differences(ctx context.Context, m *faults.Member, want map[string]string) (out []string) {
	list, err := m.Client().Services(ctx, shop)
	if err != nil {
		return []string{fmt.Sprintf("%s has no table: %v", m.Worker(), err)}
	}
	got := map[string]string{}
	for _, s := range list.Services {
		for _, x := range s.Machines {
			got[x.ID] = fmt.Sprint(x.State, " at ", x.Worker, " unheard ", x.Unheard)
		}
	}
	for id, is := range want {
		if got[id] != is {
			out = append(out, fmt.Sprintf("%s has machine %s as %q, which is %q", m.Worker(), id, got[id], is))
		}
	}
	for id, was := range got {
		if want[id] == "" {
			out = append(out, fmt.Sprintf("%s has machine %s as %q, which is gone", m.Worker(), id, was))
		}
	}
	return out
}

// present are the machines of the shop that there are, as each member's own worker says.
func present(t *testing.T, ms []*faults.Member) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, m := range ms {
		list, err := m.Client().Machines(t.Context(), shop, client.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range list {
			if x.Worker == m.Worker() && x.State != machine.Destroyed {
				out[x.ID] = fmt.Sprint(x.State, " at ", x.Worker, " unheard false")
			}
		}
	}
	return out
}

// TestChurnLeavesNoDeadEndpoints: machines are made, stopped, started, moved and destroyed through three members for some
// seconds. Two seconds after the last of it each member's table has the machines that are there, and no other.
func TestChurnLeavesNoDeadEndpoints(t *testing.T) {
	apart(t, func() {
		ms, _ := far(t)
		c := churned(t, ms)
		begin := time.Now()
		want := present(t, ms)
		var wrong []string
		for again := true; again && time.Since(begin) < inTables; again = len(wrong) > 0 {
			wrong = nil
			for _, m := range ms {
				wrong = append(wrong, differences(t.Context(), m, want)...)
			}
		}
		t.Logf("%v; %d machines are left, known everywhere after %v", c, len(want), time.Since(begin))
		for _, w := range wrong {
			t.Errorf("%v after the last change %s", inTables, w)
		}
		if len(want) == 0 || c["move"] == 0 || c["destroy"] == 0 || c["stop"] == 0 {
			t.Errorf("there was no churn: %v", c)
		}
	})
}

// churned makes and unmakes machines through all members for a while, and counts what was done of what.
func churned(t *testing.T, ms []*faults.Member) map[string]int {
	t.Helper()
	const callers, lasts = 6, 4 * time.Second
	until, counts := time.Now().Add(lasts), make(chan map[string]int, callers)
	for k := range callers {
		go func() {
			did := map[string]int{}
			defer func() { counts <- did }()
			for i := 0; time.Now().Before(until); i++ {
				churn(t, ms, k, i, did)
			}
		}()
	}
	all := map[string]int{}
	for range callers {
		for what, n := range <-counts {
			all[what] += n
		}
	}
	return all
}

// churn is the life of one machine, each step of which another member is asked for. Every third stays.
func churn(t *testing.T, ms []*faults.Member, k, i int, did map[string]int) {
	ctx, at := t.Context(), k+i
	next := func() *client.Client { at++; return ms[at%len(ms)].Client() }
	done := func(what string, err error) bool {
		if err == nil {
			did[what]++
		} else {
			t.Logf("%s: %v", what, err)
		}
		return err == nil
	}
	m, err := next().Launch(ctx, shop, shopOf(ms[at%len(ms)], fmt.Sprintf("m-%d-%d", k, i), false),
		client.LaunchOptions{})
	if !done("launch", err) {
		return
	}
	id := m.ID
	_, err = next().Stop(ctx, shop, id, "", client.StopOptions{})
	done("stop", err)
	if i%2 == 0 {
		_, err = next().Start(ctx, shop, id, "")
		done("start", err)
	}
	if i%3 == 1 {
		moved, err := next().Move(ctx, shop, id, "")
		if done("move", err) {
			id = moved.Machine.ID
		}
	}
	if i%3 != 0 {
		_, err = next().Destroy(ctx, shop, id, "", true)
		done("destroy", err)
	}
}
