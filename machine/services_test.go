package machine_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/soukhq/souk/machine"
)

func TestHostNamesAreValidated(t *testing.T) {
	long := strings.Repeat("a.", 126) + "b"
	for host, want := range map[string]bool{
		"shop": true, "www.example.com": true, "a-1.b": true, "xn--bcher-kva.example": true, "1.example": true,
		long: true, long + "cd": false, "": false, ".": false, "a.": false, ".a": false, "a..b": false, "A.b": false,
		"a_b.c": false, "-a.b": false, "a-.b": false, "a b": false, "a\r\nb": false, "a:80": false, "*.a": false,
		"192.0.2.7": false, "7": false, "[::1]": false, "é.example": false, strings.Repeat("a", 64): false,
	} {
		if got := machine.ValidHost(host); got != want {
			t.Errorf("%q: %v", host, got)
		}
	}
}

// TestRoutedServicesOmitChecks: a proxy is given services without their checks, and the config keeps them.
func TestRoutedServicesOmitChecks(t *testing.T) {
	if machine.Routed(nil) != nil || machine.Routed([]machine.Service{}) != nil {
		t.Error("no services are some")
	}
	plain := []machine.Service{{InternalPort: 80}}
	if got := machine.Routed(plain); &got[0] != &plain[0] {
		t.Error("services without checks are copied")
	}
	checked := []machine.Service{{InternalPort: 80}, {InternalPort: 81, Checks: []machine.ServiceCheck{{}}}}
	got := machine.Routed(checked)
	if len(got) != 2 || got[1].Checks != nil || got[1].InternalPort != 81 || checked[1].Checks == nil {
		t.Errorf("%+v of %+v", got, checked)
	}
}

// TestFailingCountsServiceAndReadinessChecks: requests depend on the checks of services, and on those of kind readiness.
func TestFailingCountsServiceAndReadinessChecks(t *testing.T) {
	kind := func(s string) machine.CheckConfig { return machine.CheckConfig{Kind: &s} }
	m := &machine.Machine{Config: &machine.Config{Checks: map[string]machine.CheckConfig{
		"plain": {}, "info": kind(machine.KindInformational), "ready": kind(machine.KindReadiness)}}}
	for _, c := range []struct {
		name, status string
		want         bool
	}{
		{"servicecheck-00-http-80", machine.CheckPassing, false},
		{"servicecheck-00-http-80", machine.CheckWarning, true},
		{"servicecheck-01-tcp-80", machine.CheckCritical, true},
		{"plain", machine.CheckCritical, false},
		{"info", machine.CheckCritical, false},
		{"ready", machine.CheckCritical, true},
		{"ready", machine.CheckPassing, false},
		{"gone", machine.CheckCritical, false},
	} {
		m.Checks = []machine.Check{{Name: "ready", Status: machine.CheckPassing}, {Name: c.name, Status: c.status}}
		if m.Failing() != c.want {
			t.Errorf("%s is %s: %v", c.name, c.status, !c.want)
		}
	}
	if (&machine.Machine{Checks: []machine.Check{{Name: "x", Status: machine.CheckCritical}}}).Failing() {
		t.Error("one without a config fails")
	}
}

// TestHealthChecksGetDefaultsAndAPINames: what a config leaves open is filled in, and checks of services have the API's names.
func TestHealthChecksGetDefaultsAndAPINames(t *testing.T) {
	raw := `{"config": {"image": "souk/host", "init": {"exec": ["/bin/true"]}, "services": [
		{"internal_port": 8080, "checks": [{"type": "http", "path": "/up", "method": "head", "timeout": "1h"},
			{"type": "tcp", "port": 81, "interval": "1ms", "grace_period": "0s"}]},
		{"internal_port": 9090, "checks": [{}]}],
		"checks": {"z": {"path": "/z", "protocol": "https", "tls_server_name": "a.example"}, "b": {"port": 1}}}}`
	l, err := machine.DecodeLaunch([]byte(raw))
	if err == nil {
		l.Normalize()
		err = l.Validate()
	}
	if err != nil {
		t.Fatal(err)
	}
	base := machine.HealthCheck{Interval: 10 * time.Second, Timeout: 2 * time.Second, Grace: 5 * time.Second,
		Method: "GET", Path: "/"}
	want := []machine.HealthCheck{base, base, base, base, base}
	want[0].Name, want[0].HTTP, want[0].Port = "servicecheck-00-http-8080", true, 8080
	want[0].Path, want[0].Method, want[0].Timeout = "/up", "HEAD", time.Minute
	want[1].Name, want[1].Port, want[1].Interval, want[1].Grace = "servicecheck-01-tcp-81", 81, time.Second, 0
	want[2].Name, want[2].Port = "servicecheck-02-tcp-9090", 9090
	want[3].Name, want[3].Port = "b", 1
	want[4].Name, want[4].HTTP, want[4].Port, want[4].Path = "z", true, 8080, "/z"
	want[4].TLS, want[4].ServerName = true, "a.example"
	if d := cmp.Diff(want, l.Config.HealthChecks()); d != "" {
		t.Error(d)
	}
	if !l.Config.HasChecks() || (&machine.Config{Services: []machine.Service{{}}}).HasChecks() {
		t.Error("it is not known which config has checks")
	}
}

// TestReadyNeedsEachCheckToPassOnce: a machine is ready once it is started and each check that requests depend on has passed since; one that
// fails later leaves it ready, and one that has said nothing does not.
func TestReadyNeedsEachCheckToPassOnce(t *testing.T) {
	readiness := machine.KindReadiness
	port := 8080
	both := &machine.Config{Services: []machine.Service{{InternalPort: port, Checks: []machine.ServiceCheck{{}}}},
		Checks: map[string]machine.CheckConfig{"ready": {ServiceCheck: machine.ServiceCheck{Port: &port},
			Kind: &readiness}, "info": {ServiceCheck: machine.ServiceCheck{Port: &port}}}}
	info := &machine.Config{Checks: map[string]machine.CheckConfig{"info": both.Checks["info"]}}
	of, ready, aside := "servicecheck-00-tcp-8080", "ready", "info"
	check := func(name, status string, passed bool) machine.Check {
		return machine.Check{Name: name, Status: status, Passed: passed}
	}
	const passing, critical, warning = machine.CheckPassing, machine.CheckCritical, machine.CheckWarning
	for _, c := range []struct {
		what   string
		state  machine.State
		config *machine.Config
		checks []machine.Check
		want   bool
	}{
		{"no checks", machine.Started, &machine.Config{}, nil, true},
		{"no config", machine.Started, nil, nil, true},
		{"no checks, and it stops", machine.Stopping, &machine.Config{}, nil, false},
		{"no checks, and it is suspended", machine.Suspended, &machine.Config{}, nil, false},
		{"no result yet", machine.Started, both, []machine.Check{check(of, critical, false),
			check(ready, critical, false), check(aside, critical, false)}, false},
		{"checks nobody has begun", machine.Started, both, nil, false},
		{"checks that requests do not depend on", machine.Started, info, nil, true},
		{"one has passed", machine.Started, both, []machine.Check{check(of, passing, true),
			check(ready, critical, false), check(aside, passing, true)}, false},
		{"a warning is no pass", machine.Started, both, []machine.Check{check(of, passing, true),
			check(ready, warning, false), check(aside, passing, true)}, false},
		{"all have passed", machine.Started, both, []machine.Check{check(of, passing, true),
			check(ready, passing, true), check(aside, critical, false)}, true},
		{"all have passed, before a souk that notes it", machine.Started, both, []machine.Check{
			check(of, passing, false), check(ready, passing, false), check(aside, critical, false)}, true},
		{"one fails again", machine.Started, both, []machine.Check{check(of, critical, true),
			check(ready, passing, true), check(aside, critical, false)}, true},
		{"all have passed, and it restarts", machine.Restarting, both, []machine.Check{check(of, passing, true),
			check(ready, passing, true), check(aside, passing, true)}, false},
	} {
		m := &machine.Machine{State: c.state, Config: c.config, Checks: c.checks}
		if m.Ready() != c.want {
			t.Errorf("%s: ready %v", c.what, !c.want)
		}
	}
}

// TestCrashLoopIsFiveDeathsIn5Minutes: five deaths within 5 minutes, whenever that was.
func TestCrashLoopIsFiveDeathsIn5Minutes(t *testing.T) {
	at := time.Unix(1e9, 0)
	for _, c := range []struct {
		deaths []time.Duration // before the newest
		want   bool
	}{
		{nil, false}, {[]time.Duration{1, 2, 3}, false}, {[]time.Duration{60, 120, 180, 300}, true},
		{[]time.Duration{60, 120, 180, 301}, false},
	} {
		m := machine.Machine{Deaths: []time.Time{at}}
		for _, before := range c.deaths {
			m.Deaths = append(m.Deaths, at.Add(-before*time.Second))
		}
		if m.Loops() != c.want {
			t.Errorf("%v: %v", m.Deaths, m.Loops())
		}
	}
}
