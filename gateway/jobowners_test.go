package gateway

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/fleet/buyers"
	"github.com/soukhq/souk/internal/unixsock"
	"github.com/soukhq/souk/internal/unixuser"
	"github.com/soukhq/souk/machine"
)

// forUnixUsers makes a worker that runs tasks as any Unix user.
func forUnixUsers() *memWorker {
	return newMemWorkerWith("w1", "local", room,
		cluster.Attributes{cluster.UnixUsersAttribute: cluster.Text(cluster.AllUnixUsers)})
}

func as(secret string) string { return "Authorization: Bearer " + secret }

// usedJobs returns the ids of the jobs in a list that say what they used.
func usedJobs(t *testing.T, r reply) map[string]bool {
	var list api.JobList
	r.into(t, &list)
	out := map[string]bool{}
	for _, j := range list.Jobs {
		out[j.ID] = j.Usage != nil
	}
	return out
}

// TestJobBelongsToItsUnixUser: what each token may do with each job. Only the owner and admins get hold of a job with an
// owner, whatever the client says of whose it is.
func TestJobBelongsToItsUnixUser(t *testing.T) {
	s := newShop(t, forUnixUsers()).open()
	s.with(func(o *Options) { o.Tokens, o.Jobs = roleTokens{}, buyers.New(buyers.Options{Own: newDeskJobs()}) })
	submit := func(secret, app string) jobs.Job {
		t.Helper()
		var j jobs.Job
		r := s.send("POST", "/v1/souk/jobs", fmt.Sprintf(`{%s"name":"sweep","command":["/bin/secret","arg"],`+
			`"env":{"KEY":"hidden"},"owner":{"user":{"name":"root","uid":0}},"umask":23,"limits":{"nofile":33}}`, app),
			as(secret))
		if r.code != 201 {
			t.Fatalf("submit as %s: %d %s", secret, r.code, r.raw)
		}
		r.into(t, &j)
		return j
	}
	alices, free := submit("operator@unix-alice+alice", ""), submit("operator", "")
	if o := alices.Spec.Owner; alices.Spec.App != "unix-alice" || o.User == nil || o.User.Name != "alice" ||
		*alices.Spec.Umask != 23 || alices.Spec.Limits["nofile"] != 33 {
		t.Errorf("the job of alice: %+v", alices.Spec)
	}
	if o := free.Spec.Owner; free.Spec.App != "default" || o.User != nil || o.By != "t" || free.Spec.Umask != nil ||
		free.Spec.Limits != nil {
		t.Errorf("the job of nobody: %+v", free.Spec)
	}
	for _, c := range []struct {
		who    string
		job    jobs.Job
		change int // status of a cancel of a task
		look   int // of its status
		shows  bool
	}{
		{"admin", alices, 200, 200, true},
		{"operator", alices, 403, 200, false},
		{"viewer", alices, 403, 200, false},
		{"operator@unix-alice+alice", alices, 200, 200, true},
		{"operator+alice", alices, 200, 200, true},
		{"viewer+alice", alices, 403, 200, true},
		{"operator@lab+alice", alices, 403, 200, false}, // her token is for another app
		{"operator@unix-alice", alices, 403, 404, false},
		{"operator@unix-bob+bob", alices, 403, 200, false},
		{"operator+bob", alices, 403, 200, false},
		{"operator@unix-alice+alice1", alices, 403, 200, false},
		{"operator", free, 200, 200, true},
		{"viewer", free, 403, 200, true},
		{"operator+bob", free, 200, 200, true},
		{"operator@unix-bob+bob", free, 404, 404, false},
		{"operator@default", free, 200, 200, true},
	} {
		path := "/v1/souk/jobs/" + c.job.ID
		if r := s.send("GET", path, nil, as(c.who)); r.code != c.look ||
			strings.Contains(r.raw, "hidden") != c.shows || strings.Contains(r.raw, `"arg"`) != c.shows || strings.Contains(r.raw, `"usage"`) != c.shows {
			t.Errorf("%s looks at the job of %s: %d %s", c.who, c.job.Spec.Owner.Name(), r.code, r.raw)
		}
		listed := s.send("GET", "/v1/souk/jobs", nil, as(c.who))
		if strings.Contains(listed.raw, c.job.ID) != (c.look == 200) {
			t.Errorf("%s lists %s", c.who, listed.raw)
		}
		if c.who != "admin" && !c.shows && c.job.ID == alices.ID && strings.Contains(
			s.send("GET", "/v1/souk/jobs?app=unix-alice", nil, as(c.who)).raw, "hidden") {
			t.Errorf("%s reads the environment in the list", c.who)
		}
		if got := usedJobs(t, listed); got[c.job.ID] != (c.shows && c.look == 200) {
			t.Errorf("%s sees the use of %v, of %s: %v", c.who, got, c.job.ID, c.shows)
		}
		read := 403
		switch {
		case c.shows:
			read = 200
		case c.look == 404:
			read = 404
		}
		for _, path := range []string{path + "/tasks", path + "/report", path + "/tasks/0/logs", path + "/logs"} {
			if r := s.send("GET", path, nil, as(c.who)); r.code != read && (read != 200 || r.code == 403) {
				t.Errorf("%s reads %s of %s: %d %s", c.who, path, c.job.Spec.Owner.Name(), r.code, r.raw)
			}
		}
		if change := c.change; change == 403 || change == 404 {
			for _, verb := range []string{"/hold", "/release", "/requeue", "/cancel", "/tasks/0/cancel"} {
				r := s.send("POST", path+verb, nil, as(c.who))
				if r.code != change && !(c.look == 404 && r.code == 404) {
					t.Errorf("%s sends %s to the job of %s: %d %s", c.who, verb, c.job.Spec.Owner.Name(), r.code, r.raw)
				}
			}
		}
	}
	// The id of another's job is no way to it.
	again := fmt.Sprintf(`{"id":%q,"app":"unix-bob","command":["/bin/true"]}`, alices.ID)
	if r := s.send("POST", "/v1/souk/jobs", again, as("operator@unix-bob+bob")); r.code != 403 ||
		strings.Contains(r.raw, "hidden") {
		t.Errorf("another's id: %d %s", r.code, r.raw)
	}
	if r := s.send("POST", "/v1/souk/jobs", `{"app":"default","command":["/bin/true"]}`,
		as("operator@unix-bob+bob")); r.code != 403 || r.failure(t).Souk.Code != "token_app" {
		t.Errorf("another app: %d %s", r.code, r.raw)
	}
	// A name is that of one's own job, though another's is newer; else it is refused.
	bobs := submit("operator@unix-bob+bob", "")
	for who, id := range map[string]string{"operator@unix-alice+alice": alices.ID, "operator@unix-bob+bob": bobs.ID,
		"operator+alice": alices.ID, "admin": bobs.ID} {
		var j jobs.Job
		if s.send("GET", "/v1/souk/jobs/sweep", nil, as(who)).into(t, &j); j.ID != id {
			t.Errorf("sweep is %s for %s, not %s", j.ID, who, id)
		}
	}
	for who, code := range map[string]int{"operator@unix-carol+carol": 403, "operator@unix-alice+alice": 200,
		"admin": 200} {
		if r := s.send("POST", "/v1/souk/jobs/sweep/cancel", nil, as(who)); r.code != code {
			t.Errorf("%s cancels sweep: %d %s", who, r.code, r.raw)
		}
	}
}

// oneUser knows one user of the host.
type oneUser struct{ uid uint32 }

func (o oneUser) Numbered(_ context.Context, uid uint32) (unixuser.Account, error) {
	if uid != o.uid {
		return unixuser.Account{}, fault.New(fault.Denied, fault.CodeUnixUser, "not let in")
	}
	return unixuser.Account{UnixUser: cluster.UnixUser{Name: "alice", UID: uid}}, nil
}

// TestSocketForUsersKnowsWhoAsks: without a token a user may do in his app what an operator may, and nothing elsewhere;
// who is not let in may nothing; a bad token is no token of his.
func TestSocketForUsersKnowsWhoAsks(t *testing.T) {
	me := uint32(os.Geteuid()) //nolint:gosec // a user's number
	for _, c := range []struct {
		admitted      uint32
		token, method string
		path, body    string
		code          int
		says          string
	}{
		{me, "", "POST", "/v1/souk/jobs", `{"command":["/bin/true"]}`, 201, `"user":{"name":"alice","uid":`},
		{me, "", "POST", "/v1/souk/jobs", `{"app":"shop","command":["/bin/true"]}`, 403, "unix-alice"},
		{me, "", "GET", "/v1/souk/jobs", "", 200, "jobs"},
		{me, "", "GET", "/v1/apps", "", 403, "the Unix user alice may do this in the app unix-alice only"},
		{me, "", "GET", "/v1/souk/tokens", "", 403, "without a token the Unix user alice may not list token"},
		{me, "", "GET", "/v1/souk/machines?app=unix-alice", "", 200, `"machines":[]`}, // not there before it is used
		{me, "", "GET", "/v1/souk/machines?app=unix-bob", "", 403, "unix-alice"},
		{me, "", "GET", "/v1/apps/shop/secrets", "", 403, "unix-alice"},
		{me, "operator", "POST", "/v1/souk/jobs", `{"app":"shop","command":["/bin/true"]}`, 201, `"name":"alice"`},
		{me, "operator+bob", "POST", "/v1/souk/jobs", `{"app":"shop","command":["/bin/true"]}`, 201, `"name":"bob"`},
		{me, "gone", "GET", "/v1/souk/jobs", "", 401, "token_revoked"},
		{me, "unknown", "GET", "/v1/souk/jobs", "", 401, "unauthenticated"},
		{me + 1, "", "GET", "/v1/souk/jobs", "", 403, "does not serve user"},
		{me + 1, "admin", "GET", "/v1/souk/jobs", "", 403, "does not serve user"},
	} {
		s := newShop(t, forUnixUsers()).open()
		s.with(func(o *Options) {
			o.Tokens, o.Jobs = roleTokens{}, buyers.New(buyers.Options{Own: newDeskJobs()})
			o.UnixUsers = oneUser{c.admitted}
		})
		at := filepath.Join(t.TempDir(), "users.sock")
		ln, err := unixsock.ListenToAll(at)
		if err != nil {
			t.Fatal(err)
		}
		server := s.gateway.Server()
		served := make(chan error, 1)
		go func() { served <- server.Serve(ln) }()
		h := &http.Client{Transport: &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return unixsock.Dial(ctx, at)
			}}}
		req, err := http.NewRequestWithContext(t.Context(), c.method, "http://souk"+c.path, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+c.token) // as the command line sends it without one
		resp, err := h.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		raw := string(body)
		if resp.StatusCode != c.code || !strings.Contains(raw, c.says) {
			t.Errorf("%s %s with the token %q of user %d: %d %s", c.method, c.path, c.token, me, resp.StatusCode, raw)
		}
		h.CloseIdleConnections()
		server.Close()
		<-served
	}
}

// TestMachineBelongsToItsUnixUser sends every request about a machine of a Unix user with other tokens: what changes or
// enters it, or reads its output, is refused, and nothing else.
func TestMachineBelongsToItsUnixUser(t *testing.T) {
	w := forUnixUsers()
	s := newShop(t, w).open()
	s.with(func(o *Options) { o.Tokens, o.Jobs = roleTokens{}, buyers.New(buyers.Options{Own: newDeskJobs()}) })
	const alice, path = "operator@unix-alice+alice", "/v1/apps/unix-alice/machines"
	made := s.send("POST", path, hostLaunch, as(alice)) // it makes her app, too
	var m machine.Machine
	made.into(t, &m)
	if made.code != 200 || m.UnixUser == nil || m.UnixUser.Name != "alice" {
		t.Fatalf("%d %s", made.code, made.raw)
	}
	forged := strings.Replace(hostLaunch, "{", `{"unix_user":{"name":"root","uid":0},`, 1)
	var others machine.Machine
	s.want(201, "POST", "/v1/apps", `{"name":"shop"}`)
	if s.send("POST", "/v1/apps/shop/machines", forged, as("operator")).into(t, &others); others.UnixUser != nil {
		t.Errorf("a client says whose it is: %+v", others.UnixUser)
	}
	asBob := strings.Replace(hostLaunch, `"config":{`, `"config":{"processes":[{"user":"bob"}],`, 1)
	if r := s.send("POST", path, asBob, as(alice)); r.code != 403 || r.failure(t).Souk.Code != fault.CodeOwner {
		t.Errorf("as another user: %d %s", r.code, r.raw)
	}
	if r := s.send("POST", path+"/"+m.ID, asBob, as(alice)); r.code != 403 {
		t.Errorf("an update to another user: %d %s", r.code, r.raw)
	}
	// Nobody else changes the app: what its secrets say is in the environment of her programs.
	bid := strings.Replace(hostLaunch, "{", `{"app":"unix-alice","launch":{`, 1) + "}"
	for _, x := range []struct{ method, path, body string }{
		{"POST", "/v1/apps/unix-bob/machines", hostLaunch}, {"POST", "/v1/apps/unix-alice/secrets/KEY", `{"value":"v"}`},
		{"POST", "/v1/apps", `{"name":"unix-carol"}`}, {"DELETE", "/v1/apps/unix-alice", ""},
		{"POST", "/v1/souk/workers/w1/holds", bid}, {"POST", "/v1/souk/workers/w1/machines", bid},
		{"POST", "/v1/souk/jobs", `{"app":"unix-alice","command":["/bin/true"]}`},
	} {
		for _, who := range []string{"operator", "operator+bob1", "operator@unix-bob+bob1"} {
			if r := s.send(x.method, x.path, x.body, as(who)); r.code != 403 {
				t.Errorf("%s %s as %s: %d %s", x.method, x.path, who, r.code, r.raw)
			}
		}
	}
	rest := regexp.MustCompile(`{.*?}`)
	for _, rt := range api.Routes() {
		if !strings.Contains(rt.Op.Pattern(), "/machines/{id}") {
			continue
		}
		guarded := !rt.Verb.Reads() || rt.Kind == api.KindLog
		at := rest.ReplaceAllString(strings.NewReplacer("{id}", m.ID, "{app}", "unix-alice").Replace(rt.Op.Pattern()),
			"x")
		for _, who := range []string{"operator", "operator@unix-alice", "operator+bob", "viewer@unix-alice", alice,
			"admin"} {
			if guarded && (who == alice || who == "admin") || rt.Verb == api.VerbWatch && !guarded {
				continue // it would be done, or waited for
			}
			r := s.send(rt.Op.Method(), at, nil, as(who))
			refused := r.code == 403 && r.failure(t).Souk.Code == fault.CodeOwner
			if role, _, _ := strings.Cut(who, "@"); guarded && !refused && !(role == "viewer" && r.code == 403) ||
				!guarded && refused {
				t.Errorf("%s as %s: %d %s", rt.Op, who, r.code, r.raw)
			}
		}
	}
	for _, who := range []string{alice, "operator+alice", "admin"} {
		if r := s.send("POST", path+"/"+m.ID+"/metadata/k", `{"value":"v"}`, as(who)); r.code >= 300 {
			t.Errorf("%s changes it: %d %s", who, r.code, r.raw)
		}
	}
	if r := s.send("DELETE", path+"/"+m.ID+"?force=true", nil, as(alice)); r.code != 200 {
		t.Errorf("she destroys it: %d %s", r.code, r.raw)
	}
	// In an app that others change, too, and while its worker does not answer.
	s.send("POST", "/v1/apps/shop/machines", hostLaunch, as("operator+alice")).into(t, &m)
	w.mu.Lock()
	w.down = unavailable()
	w.mu.Unlock()
	for who, owner := range map[string]bool{"operator": false, "operator@shop": false, "operator+alice": true,
		"admin": true} {
		r := s.send("POST", "/v1/apps/shop/machines/"+m.ID+"/stop", nil, as(who))
		if refused := r.failure(t).Souk.Code == fault.CodeOwner; refused == owner {
			t.Errorf("%s stops it while its worker does not answer: %d %s", who, r.code, r.raw)
		}
	}
}
