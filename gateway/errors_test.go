package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/core/market"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

var update = flag.Bool("update", false, "write the golden files anew")

// workersFaults are faults as workers and buyers give them, and the code that each must be told with.
func workersFaults() []struct {
	name string
	err  error
	code int
} {
	refusal := market.Refusal{Verdict: placement.Verdict{Failing: []machine.Clause{{Code: "memory", Wanted: "512 MiB",
		Had: "100 MiB free of 900 MiB"}}}}
	full := func(s fault.Scope, code fault.Code, text string) error {
		return &fault.Error{Kind: fault.Exhausted, Code: code, Scope: s, Resource: "memory", Text: text,
			RetryAfter: 5 * time.Second, Detail: refusal}
	}
	candidates := []machine.Candidate{{Worker: "w1", Failing: refusal.Verdict.Failing}}
	return []struct {
		name string
		err  error
		code int
	}{
		{"machine not found", fault.New(fault.NotFound, "machine_not_found", "machine not found"), 404},
		{"lease not found", fault.New(fault.NotFound, "lease_not_found", "lease not found"), 404},
		{"volume not found", fault.New(fault.NotFound, "volume_not_found", "volume not found"), 404},
		{"lease held", fault.New(fault.Conflict, "lease_held",
			"machine ID 0123 lease currently held by api, expires at 2026-11-21T12:00:00Z"), 409},
		{"lease nonce", fault.New(fault.Conflict, "lease_nonce",
			"the lease nonce given for machine ID 0123 is not in force"), 409},
		{"name in use", &fault.Error{Kind: fault.Conflict, Code: "name_taken", Detail: "0123",
			Text: `unique machine name violation, machine ID 0123 already exists with name "n"`}, 409},
		{"concurrent update", fault.New(fault.Conflict, "concurrent_update",
			"machine update failed due to concurrent update"), 409},
		{"busy", &fault.Error{Kind: fault.Conflict, Code: "busy", RetryAfter: time.Second,
			Text: "too many commands wait for machine 0123 already"}, 409},
		{"too busy", &fault.Error{Kind: fault.Exhausted, Code: "busy", RetryAfter: 1500 * time.Millisecond,
			Text: "too many requests; try again"}, 429},
		{"wrong state", fault.New(fault.Precondition, "wrong_state",
			"unable to start machine from current state: 'created'"), 412},
		{"volume attached", fault.New(fault.Precondition, "volume_attached",
			"volume vol_1 is attached to machine 0123"), 412},
		{"host full", full(fault.ScopeHost, "no_capacity",
			"could not reserve resource for machine: insufficient memory available to fulfill request on "+
				"the current host"), 409},
		{"volume's host full",
			full(fault.ScopeVolume, "no_capacity",
				"insufficient resources to create new machine with existing volume 'vol_1'"), 412},
		{"quota", full(fault.ScopeQuota, "quota",
			"app a is using 512 MB of memory in local which is over the allowed quota"), 403},
		{"region full", &fault.Error{Kind: fault.Exhausted, Code: "no_capacity", Scope: fault.ScopeRegion,
			Resource: "memory", Detail: candidates, Text: "could not find a candidate host: memory"}, 422},
		{"region full for a volume", &fault.Error{Kind: fault.Exhausted, Code: "no_volume_capacity",
			Scope: fault.ScopeRegion, Resource: "disk", Text: "no capacity"}, 409},
		{"image", fault.New(fault.Invalid, "image", "image nginx cannot be run here; use souk/host"), 400},
		{"config", fault.New(fault.Invalid, "config", "config.guest.cpus must be 1 to 64, not 0"), 400},
		{"deadline", fault.New(fault.Timeout, "deadline", "the command did not end in 60s"), 408},
		{"unavailable", fault.Wrap(errors.New("dial 10.0.0.1: refused"), fault.Unavailable, "unreachable",
			"worker w1 does not answer"), 500},
		{"ambiguous", fault.New(fault.Unavailable, "ambiguous",
			"worker w1 does not answer, so machine 0123 may exist or not; ask again with the same id"), 500},
		{"unimplemented", fault.New(fault.Unimplemented, "suspend",
			"this runtime cannot suspend; stop the machine instead"), 501},
		{"internal", fault.Wrap(errors.New("/var/lib/souk/journal: bad page"), fault.Internal, "journal",
			"the journal could not be written"), 500},
		{"not ours", errors.New("a secret of the inside"), 500},
		{"deadline of a context", context.DeadlineExceeded, 408},
		{"unauthenticated", fault.New(fault.Denied, "unauthenticated", "a token is needed"), 401},
		{"denied", fault.New(fault.Denied, "cross_site", "a page of another site may not change anything here"), 403},
	}
}

// badRequests are requests that can never succeed. {m} stands for a machine, {v} for a volume, of the app "a".
func badRequests() []struct{ name, request, body string } {
	post := "POST /v1/apps/a/machines"
	return []struct{ name, request, body string }{
		{"empty body", post, ""},
		{"not JSON", post, "config"},
		{"cut off", post, `{"config":{"image":`},
		{"a list", post, `[]`},
		{"two objects", post, hostLaunch + hostLaunch},
		{"unknown field", post, `{"config":{"image":"demo:1","colour":"red"}}`},
		{"wrong type", post, `{"config":{"image":7}}`},
		{"no config", post, `{}`},
		{"no image", post, `{"config":{"init":{"exec":["true"]}}}`},
		{"absurd cpus", post, `{"config":{"image":"demo:1","guest":{"cpus":1000000}}}`},
		{"negative memory", post, `{"config":{"image":"demo:1","guest":{"memory_mb":-1}}}`},
		{"overflowing number", post, `{"config":{"image":"demo:1","guest":{"memory_mb":99999999999999999999}}}`},
		{"id that is no id", post, `{"id":"../../etc","config":{"image":"demo:1"}}`},
		{"name that is no name", post, `{"name":"a b","config":{"image":"demo:1"}}`},
		{"unknown region", post, `{"region":"mars","config":{"image":"demo:1"}}`},
		{"empty region part", post, `{"region":"local,,any","config":{"image":"demo:1"}}`},
		{"file that leaves", post,
			`{"config":{"image":"demo:1","files":[{"guest_path":"/../../etc/passwd","raw_value":"eA=="}]}}`},
		{"mount that leaves", post, `{"config":{"image":"demo:1","mounts":[{"volume":"vol_1","path":"../x"}]}}`},
		{"mount of a volume that is not there", post,
			`{"config":{"image":"demo:1","mounts":[{"volume":"vol_1","path":"/x"}]}}`},
		{"secrets that are not there yet", post, `{"min_secrets_version":9,"config":{"image":"demo:1"}}`},
		{"unknown app", "POST /v1/apps/none/machines", hostLaunch},
		{"update of an unknown machine", "POST /v1/apps/a/machines/00000000000000", hostLaunch},
		{"update without config", "POST /v1/apps/a/machines/{m}", `{}`},
		{"old version", "POST /v1/apps/a/machines/{m}",
			`{"current_version":"01ARZ3NDEKTSV4RRFFQ69G5FAV","config":{"image":"demo:1"}}`},
		{"app without a name", "POST /v1/apps", `{}`},
		{"app with a bad name", "POST /v1/apps", `{"name":"A/../b"}`},
		{"app with two names", "POST /v1/apps", `{"name":"b","app_name":"c"}`},
		{"app that is there", "POST /v1/apps", `{"name":"a"}`},
		{"unknown app, asked for", "GET /v1/apps/none", ""},
		{"unknown state", "GET /v1/apps/a/machines/{m}/wait?state=purple", ""},
		{"wait too long", "GET /v1/apps/a/machines/{m}/wait?timeout=3600", ""},
		{"wait for an old version", "GET /v1/apps/a/machines/{m}/wait?state=stopped&version=01ARZ3NDEKTSV4RRFFQ69G5FAV",
			""},
		{"neither true nor false", "DELETE /v1/apps/a/machines/{m}?kill=maybe", ""},
		{"negative stop", "POST /v1/apps/a/machines/{m}/stop", `{"timeout":"-1s"}`},
		{"endless stop", "POST /v1/apps/a/machines/{m}/stop", `{"timeout":"10h"}`},
		{"stop of another id", "POST /v1/apps/a/machines/{m}/stop", `{"id":"00000000000000"}`},
		{"stop with a word for a time", "POST /v1/apps/a/machines/{m}/stop", `{"timeout":"soon"}`},
		{"restart with a bad time", "POST /v1/apps/a/machines/{m}/restart?timeout=yes", ""},
		{"unknown signal", "POST /v1/apps/a/machines/{m}/signal", `{"signal":"SIGFOO"}`},
		{"signal out of range", "POST /v1/apps/a/machines/{m}/signal", `{"signal":9999}`},
		{"signal of another type", "POST /v1/apps/a/machines/{m}/signal", `{"signal":[9]}`},
		{"no signal", "POST /v1/apps/a/machines/{m}/signal", `{}`},
		{"no command", "POST /v1/apps/a/machines/{m}/exec", `{}`},
		{"open quotation", "POST /v1/apps/a/machines/{m}/exec", `{"cmd":"echo 'a"}`},
		{"two commands", "POST /v1/apps/a/machines/{m}/exec", `{"cmd":"a","command":["b"]}`},
		{"exec without end", "POST /v1/apps/a/machines/{m}/exec", `{"cmd":"a","timeout":1000000}`},
		{"exec in a container", "POST /v1/apps/a/machines/{m}/exec", `{"cmd":"a","container":"c"}`},
		{"plan of no policy", "POST /v1/souk/policy-plan", `{}`},
		{"plan of two policies", "POST /v1/souk/policy-plan", `{"text":"x","policy":"spread"}`},
		{"plan of machines of two kinds", "POST /v1/souk/policy-plan", `{"policy":"spread","default":true,"app":"a"}`},
		{"plan of a policy that comes with souk as it was", "POST /v1/souk/policy-plan", `{"policy":"spread","back":0}`},
		{"lease too long", "POST /v1/apps/a/machines/{m}/lease?ttl=99999999", ""},
		{"lease too short", "POST /v1/apps/a/machines/{m}/lease", `{"ttl":0}`},
		{"release without a lease", "DELETE /v1/apps/a/machines/{m}/lease", ""},
		{"metadata that is too large", "POST /v1/apps/a/machines/{m}/metadata/k",
			`{"value":"` + strings.Repeat("x", 5000) + `"}`},
		{"metadata without a value", "POST /v1/apps/a/machines/{m}/metadata/k", `{}`},
		{"too many events", "GET /v1/apps/a/machines/{m}/events?limit=1000000", ""},
		{"order of processes", "GET /v1/apps/a/machines/{m}/ps?sort_by=colour", ""},
		{"volume without a name", "POST /v1/apps/a/volumes", `{"size_gb":1}`},
		{"volume of no size", "POST /v1/apps/a/volumes", `{"name":"d","size_gb":0}`},
		{"volume larger than all", "POST /v1/apps/a/volumes", `{"name":"d","size_gb":99999}`},
		{"volume that is encrypted", "POST /v1/apps/a/volumes", `{"name":"d","encrypted":true}`},
		{"copy of nothing", "POST /v1/apps/a/volumes", `{"name":"d","source_volume_id":"vol_none"}`},
		{"unknown volume", "DELETE /v1/apps/a/volumes/vol_none", ""},
		{"retention of no days", "PUT /v1/apps/a/volumes/{v}", `{"snapshot_retention":0}`},
		{"secret with a bad name", "POST /v1/apps/a/secrets/a%20b", `{"value":"x"}`},
		{"secret without a value", "POST /v1/apps/a/secrets/A", `{}`},
		{"no secrets", "POST /v1/apps/a/secrets", `{"values":{}}`},
		{"unknown secret", "DELETE /v1/apps/a/secrets/A", ""},
		{"values of secrets", "GET /v1/apps/a/secrets?show_secrets=true", ""},
		{"unknown size", "GET /v1/platform/regions?size=enormous", ""},
		{"unknown weight", "POST /v1/platform/placements", `{"weights":{"colour":1}}`},
		{"too many placements", "POST /v1/platform/placements", `{"count":18446744073709551615}`},
		{"a page too large", "GET /v1/orgs/personal/machines?limit=100000", ""},
		{"a time that is none", "GET /v1/orgs/personal/machines?updated_after=yesterday", ""},
		{"path of a copy that leaves", "GET /v1/souk/apps/a/machines/{m}/files?path=a/../../b", ""},
		{"exec stream without an order", "POST /v1/souk/apps/a/machines/{m}/exec", ""},
		{"exec stream of nothing", "POST /v1/souk/apps/a/machines/{m}/exec", `{"command":[]}`},
		{"a terminal of no kind", "POST /v1/souk/apps/a/machines/{m}/exec",
			`{"command":["a"],"terminal":{"term":"a b"}}`},
		{"not served", "GET /v1/apps/a/certificates", ""},
		{"unknown path", "GET /v1/apps/a/machines/{m}/fly", ""},
		{"unknown method", "PUT /v1/apps/a/machines/{m}/wait", ""},
	}
}

var unstable = regexp.MustCompile(`01[0-9A-HJKMNP-TV-Z]{24}`)

// TestErrorsHaveCodeStatusAndSentence writes every error down: its code, its status word and its sentence.
func TestErrorsHaveCodeStatusAndSentence(t *testing.T) {
	var b strings.Builder
	s := newShop(t).open()
	for _, c := range workersFaults() {
		e := asFault(c.err)
		code, status := statusOf(e)
		if code != c.code {
			t.Errorf("%s: %d, want %d", c.name, code, c.code)
		}
		body := bodyOf(e, status, "REQUEST")
		body.Error = api.StatusWord(e) + body.Error // as fail answers it
		raw, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "# from a worker: %s\n%d %s\n\n", c.name, code, raw)
	}
	m := s.launch(`{"name":"m","config":{"image":"demo:1"}}`)
	var v machine.Volume
	s.want(200, "POST", "/v1/apps/a/volumes", `{"name":"d"}`).into(t, &v)
	before := s.want(200, "GET", "/v1/apps/a/machines?include_deleted=true", nil).raw
	names := strings.NewReplacer("{m}", m.ID, "{v}", v.ID)
	for _, c := range badRequests() {
		method, path, _ := strings.Cut(names.Replace(c.request), " ")
		r := s.do(method, path, c.body)
		if r.code < 400 || r.code == 500 || r.code == 502 || r.code == 503 {
			t.Errorf("%s: %d %s", c.name, r.code, r.raw)
		}
		text := strings.NewReplacer(m.ID, "MACHINE", v.ID, "VOLUME", m.InstanceID, "INSTANCE").Replace(r.raw)
		fmt.Fprintf(&b, "# %s: %s %s\n%d %s\n", c.name, c.request, clipText(c.body, 120), r.code,
			unstable.ReplaceAllString(text, "REQUEST"))
	}
	if after := s.want(200, "GET", "/v1/apps/a/machines?include_deleted=true", nil).raw; after != before {
		t.Errorf("a bad request changed something: %s, was %s", after, before)
	}
	golden(t, "testdata/errors.golden", b.String())
}

func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s is not what is answered now; run go test ./gateway -update and read the difference (-file "+
			"+now):\n%s", path, d)
	}
}

func TestBusyAnswerHasRetryAfter(t *testing.T) {
	s := newShop(t).open()
	s.workers[0].set(func() {
		s.workers[0].down = &fault.Error{Kind: fault.Exhausted, Code: "busy", RetryAfter: 1500 * time.Millisecond,
			Text: "too many requests; try again"}
	})
	if r := s.want(429, "GET", "/v1/apps/a/machines/ffffffffffffff", nil); r.header.Get("Retry-After") != "2" {
		t.Errorf("Retry-After is %q, want 2", r.header.Get("Retry-After"))
	}
}

func TestOversizedBodyIsRefused(t *testing.T) {
	s := newShop(t).open()
	big := `{"config":{"image":"demo:1","env":{"A":"` + strings.Repeat("x", 10<<20) + `"}}}`
	for _, path := range []string{"/v1/apps", "/v1/apps/a/machines", "/v1/apps/a/secrets", "/v1/apps/a/volumes",
		"/v1/platform/placements"} {
		s.want(413, "POST", path, big)
	}
}

func TestPanicIsAnswered500AndLogged(t *testing.T) {
	s := newShop(t).open()
	s.workers[0].before = func(lifecycle.Grant) error { panic("a bug") }
	f := s.want(500, "POST", "/v1/apps/a/machines", hostLaunch).failure(t)
	if f.Souk.Code != "panic" || !strings.Contains(s.log.String(), "a bug") || strings.Contains(f.Error, "a bug") {
		t.Errorf("the panic is told as %+v", f)
	}
}
