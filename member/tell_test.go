package member

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fleet"
	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/mesh/gossip"
)

const usualService = `{"protocol": "tcp", "internal_port": 8080, "autostop": "suspend", "autostart": true,
	"hosts": ["www.example.com"], "ports": [{"port": 80, "handlers": ["http"]}],
	"checks": [{"type": "http", "path": "/healthz"}]}`

func service(t *testing.T) (s machine.Service) {
	t.Helper()
	if err := json.Unmarshal([]byte(usualService), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestProxyFieldsAgreeAtEveryMember: what a proxy needs of a machine is in the fleet of its own member and in another's
// alike, with its load, and is small.
func TestProxyFieldsAgreeAtEveryMember(t *testing.T) {
	t.Parallel()
	m := started("shop", "00000000000001", "web", "m1", 0)
	m.Config.Services = []machine.Service{service(t), {InternalPort: 9090}}
	m.Cordoned = true
	m.Checks = []machine.Check{{Name: "servicecheck-00-http-8080", Status: machine.CheckCritical}}
	town := newTown(t)
	a := town.add("m1", m)
	b := town.add("m2")
	town.meet()
	same := func() bool {
		x, here := a.fleet.Snapshot().Machine(m.ID)
		y, there := b.fleet.Snapshot().Machine(m.ID)
		return here && there && reflect.DeepEqual(x, y)
	}
	waittest.Until(t, "both know the same of the machine", same)
	x, _ := b.fleet.Snapshot().Machine(m.ID)
	if !x.Cordoned || !x.Failing || x.Load != 0 || len(x.Services) != 2 || x.Services[0].Checks != nil ||
		x.Services[0].Hosts[0] != "www.example.com" || *x.Services[0].Autostop != "suspend" {
		t.Errorf("%+v", x)
	}
	for _, load := range []int{1, 0, 40} {
		a.Load(m.ID, load)
		waittest.Until(t, "the other knows of the load", func() bool {
			x, _ := b.fleet.Snapshot().Machine(m.ID)
			return x.Load == load && same()
		})
	}
	a.CPU([]fleet.CPU{{Machine: m.ID, Percent: 35}})
	waittest.Until(t, "the other knows of the CPU", func() bool {
		x, _ := b.fleet.Snapshot().Machine(m.ID)
		return x.CPU != nil && *x.CPU == 35 && same()
	})
	next := *m
	next.State, next.Cordoned, next.Checks = machine.Stopped, false, nil
	a.Machine(&next)
	waittest.Until(t, "the other knows that it has stopped", func() bool {
		x, _ := b.fleet.Snapshot().Machine(m.ID)
		return x.State == machine.Stopped && !x.Cordoned && !x.Failing && x.Load == 40 && same()
	})
}

// TestStewardFieldsAgreeAtEveryMember: what a steward needs of a machine is in the fleet of its own member and in
// another's alike.
func TestStewardFieldsAgreeAtEveryMember(t *testing.T) {
	t.Parallel()
	m := started("shop", "00000000000001", "web", "m1", 0)
	m.Replica = &machine.Replica{Group: "web", Index: 2, Epoch: 4096, Spec: "5bec", Release: "1a2b3c4d"}
	m.Config.Services = []machine.Service{service(t)}
	m.Checks = []machine.Check{{Name: "servicecheck-00-http-8080", Status: machine.CheckCritical}}
	town := newTown(t)
	a := town.add("m1", m)
	b := town.add("m2")
	town.meet()
	is := func(what string, want func(fleet.Machine) bool) {
		t.Helper()
		waittest.Until(t, "both know that it "+what, func() bool {
			x, here := a.fleet.Snapshot().Machine(m.ID)
			y, there := b.fleet.Snapshot().Machine(m.ID)
			return here && there && reflect.DeepEqual(x, y) && want(*y)
		})
	}
	is("is web/2", func(x fleet.Machine) bool {
		return *x.Replica == *m.Replica && !x.Ready && !x.Died && !x.Loops
	})
	next := *m
	next.Checks = []machine.Check{{Name: "servicecheck-00-http-8080", Status: machine.CheckCritical, Passed: true}}
	a.Machine(&next)
	is("is ready", func(x fleet.Machine) bool { return x.Ready && x.Failing })
	last := next
	last.State, last.Checks, last.Died = machine.Stopped, nil, true
	last.Deaths = []time.Time{when(5), when(4), when(3), when(2), when(1)}
	last.Replica = &machine.Replica{Group: "web", Index: 2, Epoch: 4097, Spec: "5bed", Release: "1a2b3c4e"}
	a.Machine(&last)
	is("has died", func(x fleet.Machine) bool {
		return x.Died && !x.Ready && x.Loops && x.Replica.Epoch == 4097
	})
}

func when(s int64) time.Time { return time.UnixMilli(1_790_000_000_000 + s*1000).UTC() }

// TestInvalidReplicasAreIgnored: what no steward asks for is not believed of another member.
func TestInvalidReplicasAreIgnored(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]bool{
		`{"id": "m"}`: false,
		`{"id": "m", "replica": {"group": "web", "index": 2, "epoch": 1, "spec": "5bec", "release": "1a2b"}}`:  true,
		`{"id": "m", "replica": {"group": "web", "index": -1, "epoch": 1, "spec": "5bec", "release": "1a2b"}}`: false,
		`{"id": "m", "replica": {"group": "W B", "index": 2, "epoch": 1, "spec": "5bec", "release": "1a2b"}}`:  false,
		`{"id": "m", "replica": {"group": "web", "index": 2, "epoch": 2147483648, "spec": "5bec"}}`:            false,
		`{"id": "m", "replica": {}}`: false,
	} {
		var x gossip.Machine
		if err := json.Unmarshal([]byte(raw), &x); err != nil {
			t.Fatal(err)
		}
		if m := machineOf(x); (m.Replica != nil) != want {
			t.Errorf("%s: %+v", raw, m.Replica)
		}
	}
}

// TestMachineRecordIsSmall: each member has it of each machine.
func TestMachineRecordIsSmall(t *testing.T) {
	t.Parallel()
	size := func(services ...machine.Service) int {
		m := started("shop", "00000000000001", "web", "m1", 0)
		m.Config.Services = services
		raw, err := json.Marshal(summaryOf(fleet.Summary(m)))
		if err != nil {
			t.Fatal(err)
		}
		return len(raw)
	}
	bare := size()
	if n := size(service(t)) - bare; n > 240 {
		t.Errorf("a usual service takes %d bytes more", n)
	}
	raw, err := json.Marshal(summaryOf(fleet.Machine{ID: "m"}))
	if err != nil || strings.Contains(string(raw), "services") || strings.Contains(string(raw), "load") ||
		strings.Contains(string(raw), "replica") || strings.Contains(string(raw), "death") {
		t.Errorf("of a machine without services is told: %s", raw)
	}
}

// TestInvalidServicesAreIgnored: what no launch could have is not believed of another member; one of the version before
// tells the first service's port alone.
func TestInvalidServicesAreIgnored(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]int{
		`{"id": "m", "state": "started"}`: 0,
		`{"id": "m", "state": "started", "services": [{"internal_port": 8080}], "load": -1}`:                 8080,
		`{"id": "m", "state": "started", "services": [{"internal_port": 99999}]}`:                            0,
		`{"id": "m", "state": "started", "services": [{"internal_port": 80, "hosts": ["A b"]}]}`:             0,
		`{"id": "m", "state": "started", "services": [` + strings.Repeat(`{"internal_port": 1},`, 99) + `]}`: 0,
	} {
		raw = strings.Replace(raw, ",]", "]", 1)
		var x gossip.Machine
		if err := json.Unmarshal([]byte(raw), &x); err != nil {
			t.Fatal(err)
		}
		x.Worker = cluster.WorkerID("w")
		if m := machineOf(x); int(m.Port()) != want || m.Load != 0 || want == 0 && m.Services != nil {
			t.Errorf("%s: %+v", raw, m)
		}
	}
}

// TestInvalidAllowedAppsAreIgnored: of apps that another member says are let in, all are believed or, where a launch could not
// have said so, none.
func TestInvalidAllowedAppsAreIgnored(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]int{
		`[]`: 0, `["shop", "ask"]`: 2, `["shop", "A b"]`: 0, `[""]`: 0,
		`["shop"` + strings.Repeat(`, "ask"`, machine.MaxFrom) + `]`: 0,
	} {
		var x gossip.Machine
		if err := json.Unmarshal([]byte(`{"id": "m", "state": "started", "from": `+raw+`}`), &x); err != nil {
			t.Fatal(err)
		}
		m := machineOf(x)
		if len(m.From) != want || want > 0 && !m.Admits("ask") || m.Admits("A b") {
			t.Errorf("%.80s: %v", raw, m.From)
		}
	}
}

// TestRecordsOfUseAreSentLessOften: what tasks use is sent ten times a second at most; anything else is sent at once.
func TestRecordsOfUseAreSentLessOften(t *testing.T) {
	r := &reporter{wake: make(chan struct{}, 1)}
	rec := cluster.Record{Worker: "w", Machines: 1, Apps: map[string]int{"a": 1}}
	wait := func(change func()) time.Duration {
		change()
		r.putRecord(rec)
		return r.waitTime()
	}
	if w := wait(func() {}); w > 0 {
		t.Errorf("the first record waits for %v", w)
	}
	r.takeRecord()
	if w := wait(func() { rec.Used.CPU = 5 }); w <= 0 || w > tellUseEvery {
		t.Errorf("what a task uses waits for %v", w)
	}
	if w := wait(func() { rec.Machines = 2 }); w > 0 {
		t.Errorf("a machine waits for %v", w)
	}
	r.takeRecord()
	if w := wait(func() { rec.State = cluster.Cordoned }); w > 0 {
		t.Errorf("a cordon waits for %v", w)
	}
}
