package machine

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"
)

// The statuses of a check.
const (
	CheckPassing  = "passing"
	CheckWarning  = "warning"
	CheckCritical = "critical"
)

// CheckWaits is the output of a check before its first result.
const CheckWaits = "waiting for status update"

// EventCheck is the type of events about checks.
const EventCheck = "check"

// Kinds of a config's checks. Requests depend on readiness checks; "" is informational.
const (
	KindInformational = "informational"
	KindReadiness     = "readiness"
)

// serviceCheck is the prefix of the names of services' checks.
const serviceCheck = "servicecheck-"

// Defaults of a check.
const (
	defaultCheckInterval = 10 * time.Second
	defaultCheckTimeout  = 2 * time.Second
	defaultCheckGrace    = 5 * time.Second
	leastCheckInterval   = time.Second
	leastCheckTimeout    = 10 * time.Millisecond
	mostCheckTimeout     = time.Minute
)

// Bounds of a check.
const (
	maxCheckPath    = 2048 // bytes
	maxCheckHeaders = 32
	maxCheckHeader  = 4096 // bytes of a value
)

// HealthCheck is one check of a machine, with defaults filled in.
type HealthCheck struct {
	Name     string
	Port     int
	HTTP     bool // else it only connects
	Interval time.Duration
	Timeout  time.Duration
	Grace    time.Duration // since the start: failures during it do not count

	Method, Path string
	TLS          bool
	SkipVerify   bool
	ServerName   string
	Headers      []HTTPHeader
}

// HealthChecks lists the checks of a config: those of its services, named as in the Machines API, in their order, then
// its own by name.
func (c *Config) HealthChecks() (out []HealthCheck) {
	if !c.HasChecks() { // the common case, for each request
		return nil
	}
	for _, s := range c.Services {
		for _, ch := range s.Checks {
			h := ch.resolveFor(s.InternalPort)
			h.Name = fmt.Sprintf("%s%02d-%s-%d", serviceCheck, len(out), h.kindText(), h.Port)
			out = append(out, h)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Checks)) {
		h := c.Checks[name].resolveFor(c.firstPort())
		h.Name = name
		out = append(out, h)
	}
	return out
}

// HasChecks reports whether a config has any.
func (c *Config) HasChecks() bool {
	return len(c.Checks) > 0 || slices.ContainsFunc(c.Services, func(s Service) bool { return len(s.Checks) > 0 })
}

func (c *Config) firstPort() int {
	if len(c.Services) == 0 {
		return 0
	}
	return c.Services[0].InternalPort
}

func (h *HealthCheck) kindText() string {
	if h.HTTP {
		return "http"
	}
	return "tcp"
}

// resolveFor fills in the defaults. port is that of the check's service.
func (ch ServiceCheck) resolveFor(port int) HealthCheck {
	h := HealthCheck{Port: port, HTTP: ch.isHTTP(), Interval: defaultCheckInterval, Timeout: defaultCheckTimeout,
		Grace: defaultCheckGrace, Method: "GET", Path: "/", Headers: ch.Headers}
	setDefault(&h.Port, ch.Port)
	setDefault(&h.SkipVerify, ch.TLSSkipVerify)
	setDefault(&h.ServerName, ch.TLSServerName)
	for _, d := range []struct {
		to   *time.Duration
		from *Duration
	}{{&h.Interval, ch.Interval}, {&h.Timeout, ch.Timeout}} {
		if d.from != nil && d.from.Duration > 0 {
			*d.to = d.from.Duration
		}
	}
	h.Interval = max(h.Interval, leastCheckInterval)
	h.Timeout = min(max(h.Timeout, leastCheckTimeout), mostCheckTimeout)
	if ch.GracePeriod != nil {
		h.Grace = ch.GracePeriod.Duration
	}
	if ch.Method != nil && *ch.Method != "" {
		h.Method = strings.ToUpper(*ch.Method)
	}
	if ch.Path != nil && *ch.Path != "" {
		h.Path = *ch.Path
	}
	h.TLS = ch.Protocol != nil && *ch.Protocol == "https"
	return h
}

func setDefault[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}

// isHTTP reports whether a check uses HTTP; without a type it does if it has a path.
func (ch ServiceCheck) isHTTP() bool {
	if ch.Type == nil || *ch.Type == "" {
		return ch.Path != nil
	}
	return *ch.Type == "http"
}

// Failing reports whether a check that requests depend on does not pass: one of a service, or one of kind readiness.
// Before the first result, none fails.
func (m *Machine) Failing() bool {
	for _, ch := range m.Checks {
		if ch.Status != CheckPassing && m.Gates(ch.Name) {
			return true
		}
	}
	return false
}

// Ready reports whether the machine is up and has been fit for requests: it is started, and each check that requests
// depend on has passed since. A check that fails again leaves the machine ready, see Failing.
func (m *Machine) Ready() bool {
	if m.State != Started {
		return false
	}
	for _, ch := range m.Checks {
		if !ch.Passed && ch.Status != CheckPassing && m.Gates(ch.Name) {
			return false
		}
	}
	return m.Checks != nil || m.Config == nil || !slices.ContainsFunc(m.Config.HealthChecks(),
		func(h HealthCheck) bool { return m.Gates(h.Name) })
}

// Unfit returns why the machine is not ready, as far as known: what is being retried for it, or which check that
// requests depend on does not pass. "": unknown. It leaves out the body of a check's response, which may have any
// text.
func (m *Machine) Unfit() string {
	if m.Retry != nil {
		return fmt.Sprintf("its %s fails: %s", m.Retry.Operation, m.Retry.Reason)
	}
	if m.State != Started {
		return ""
	}
	for _, ch := range m.Checks {
		if ch.Status != CheckPassing && m.Gates(ch.Name) {
			said, _, _ := strings.Cut(ch.Output, "\n")
			if said == CheckWaits {
				said = "it has said nothing yet"
			}
			return fmt.Sprintf("check %s does not pass: %s", ch.Name, said)
		}
	}
	return ""
}

// Missed returns which check that requests depend on has failed once without changing its status, and how often, in
// the machine's first minutes; "": none. One failure does not stop requests to a machine, but for a rollout the
// machine is not ready without interruption.
func (m *Machine) Missed() string {
	for _, ch := range m.Checks {
		if ch.Misses > 0 && m.Gates(ch.Name) {
			return fmt.Sprintf("check %s fails now and then (%d so far): %s", ch.Name, ch.Misses, ch.Missed)
		}
	}
	return ""
}

// loopTime is the time within which MaxDeaths deaths make a machine count as looping.
const loopTime = 5 * time.Minute

// Loops reports whether the machine's last death was the fifth within 5 minutes, by the clock of its worker.
func (m *Machine) Loops() bool {
	return len(m.Deaths) >= MaxDeaths && m.Deaths[0].Sub(m.Deaths[MaxDeaths-1]) <= loopTime
}

// Gates reports whether requests depend on a check.
func (m *Machine) Gates(check string) bool {
	if strings.HasPrefix(check, serviceCheck) {
		return true
	}
	if m.Config == nil {
		return false
	}
	kind := m.Config.Checks[check].Kind
	return kind != nil && *kind == KindReadiness
}

// checkChecks validates the checks of a config.
func (c *Config) checkChecks() error {
	if len(c.Checks) > MaxChecks {
		return badConfig("config.checks has %d checks and may have %d", len(c.Checks), MaxChecks)
	}
	all := len(c.Checks)
	for _, s := range c.Services {
		all += len(s.Checks)
	}
	if all > MaxChecks {
		return badConfig("config has %d checks with those of its services and may have %d", all, MaxChecks)
	}
	for _, name := range sortedKeys(c.Checks) {
		ch := c.Checks[name]
		at := "config.checks." + shorten(name)
		switch {
		case name == "" || len(name) > 64 || !hasOnly(name, func(b byte) bool { return b > ' ' && b < 0x7f }):
			return badConfig(
				"config.checks: a check's name must be 1 to 64 letters, digits and signs without spaces, not %s",
				quote(name))
		case strings.HasPrefix(name, serviceCheck):
			return badConfig("%s: names that begin with %s are those of services' checks: name it otherwise", at,
				serviceCheck)
		case ch.Kind != nil && *ch.Kind != KindInformational && *ch.Kind != KindReadiness:
			return badConfig("%s.kind must be informational or readiness, not %s", at, quote(*ch.Kind))
		case ch.Port == nil && c.firstPort() == 0:
			return badConfig("%s.port is missing: the machine has no service whose port could be checked", at)
		}
		if err := ch.ServiceCheck.check(at); err != nil {
			return err
		}
	}
	return nil
}

func (ch ServiceCheck) check(at string) error {
	if ch.Port != nil {
		if err := checkPort(at+".port", *ch.Port); err != nil {
			return err
		}
	}
	if ch.Type != nil && *ch.Type != "tcp" && *ch.Type != "http" {
		return badConfig("%s.type must be tcp or http, not %s", at, quote(*ch.Type))
	}
	for _, d := range []struct {
		name string
		d    *Duration
	}{{"interval", ch.Interval}, {"timeout", ch.Timeout}, {"grace_period", ch.GracePeriod}} {
		if d.d != nil && (d.d.Duration < 0 || d.d.Duration > time.Hour) {
			return badConfig("%s.%s must be 0s to 1h, not %v", at, d.name, d.d.Duration)
		}
	}
	return firstError(ch.checkRequest(at), checkHeaders(at, ch.Headers))
}

// checkRequest validates the request of an HTTP check. No part of it may end a line of the request.
func (ch ServiceCheck) checkRequest(at string) error {
	if p := ch.Protocol; p != nil && *p != "" && *p != "http" && *p != "https" {
		return badConfig("%s.protocol must be http or https, not %s", at, quote(*p))
	}
	if m := ch.Method; m != nil && (len(*m) > 16 || !hasOnly(*m, isLetter) || strings.EqualFold(*m, "connect")) {
		return badConfig("%s.method must be a method of HTTP such as GET, not %s", at, quote(*m))
	}
	if p := ch.Path; p != nil && *p != "" {
		_, err := url.ParseRequestURI(*p)
		if err != nil || (*p)[0] != '/' || len(*p) > maxCheckPath ||
			!hasOnly(*p, func(b byte) bool { return b > ' ' && b < 0x7f && b != '#' }) {
			return badConfig("%s.path must begin with \"/\" and have no spaces, up to %d bytes, not %s", at,
				maxCheckPath,
				quote(*p))
		}
	}
	if n := ch.TLSServerName; n != nil && *n != "" && !ValidHost(strings.ToLower(*n)) {
		return badConfig("%s.tls_server_name must be a DNS name such as \"www.example.com\", not %s", at, quote(*n))
	}
	return nil
}

func checkHeaders(at string, list []HTTPHeader) error {
	if len(list) > maxCheckHeaders {
		return badConfig("%s.headers has %d headers and may have %d", at, len(list), maxCheckHeaders)
	}
	for i, h := range list {
		if h.Name == "" || len(h.Name) > 256 || !hasOnly(h.Name, isToken) {
			return badConfig("%s.headers[%d].name must be the name of an HTTP header, not %s", at, i, quote(h.Name))
		}
		if len(h.Values) > maxCheckHeaders {
			return badConfig("%s.headers[%d] has %d values and may have %d", at, i, len(h.Values), maxCheckHeaders)
		}
		host := strings.EqualFold(h.Name, "host")
		for _, v := range h.Values {
			switch {
			case len(v) > maxCheckHeader || !hasOnly(v, func(b byte) bool {
				return b >= ' ' && b != 0x7f ||
					b == '\t'
			}):
				return badConfig(
					"%s.headers[%d]: a value must be up to %d bytes without line ends and control characters",
					at, i, maxCheckHeader)
			case host && !hasOnly(v, func(b byte) bool { return tagByte(b) || b == ':' || b == '[' || b == ']' }):
				return badConfig("%s.headers[%d]: the host must be a name with a port if need be, not %s", at, i,
					quote(v))
			}
		}
	}
	return nil
}

func isLetter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }

// isToken reports whether a byte is allowed in an HTTP token (RFC 9110, 5.6.2).
func isToken(c byte) bool {
	return isLetter(c) || c >= '0' && c <= '9' || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}
