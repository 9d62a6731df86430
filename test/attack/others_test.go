package attack

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/core/registry"
	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime"
)

// agentAttacks start souk itself on a copy of the disk, at the address of the others.
func (x *thief) agentAttacks() (all []attack) {
	thiefs := func(name string, works bool, deed func(x *thief, c *agent) func() string) {
		all = append(all, attack{name: "an agent on the disk: " + name, works: works,
			try: func(x *thief) func() string {
				return deed(x, x.twin())
			}})
	}
	thiefs("it is a member", true, func(x *thief, _ *agent) func() string {
		return func() string {
			for _, at := range []*agent{x.a, x.b} {
				for _, id := range at.workers() {
					if id == "c" {
						return at.name + " shows c's worker"
					}
				}
			}
			return ""
		}
	})
	thiefs("it hears of others' machines", true, func(x *thief, c *agent) func() string {
		return func() string {
			if x.phase == removed {
				return "" // who has the key of gossip hears
			}
			name := x.unique("heard")
			if x.phase == before {
				name = "web"
			}
			for _, m := range c.machines() {
				if m.Name == name {
					return "it lists " + m.Name
				}
			}
			return ""
		}
	})
	thiefs("it has a machine made at b", true, func(x *thief, c *agent) func() string {
		name := x.unique("made-by-c")
		out, err := x.w.try(c.env(), "run", "--app", app, "--name", name, "--require", "worker==b", "--", "/bin/sleep",
			"1000")
		if err != nil && x.phase == before {
			x.t.Log(out)
		}
		return lists("/v1/souk/machines", func(*thief) string { return name })(x)
	})
	thiefs("it makes a token", true, func(x *thief, c *agent) func() string {
		code, raw := c.ask(c.token, http.MethodPost, "/v1/souk/tokens", api.NewToken{Name: x.unique("of-c-"),
			Role: api.RoleAdmin})
		var out api.MadeToken
		if code != http.StatusCreated || json.Unmarshal(raw, &out) != nil {
			return nil
		}
		return letIn(x.b, "Bearer "+out.Secret)
	})
	thiefs("it removes a host", true, func(x *thief, c *agent) func() string {
		name := x.unique("removed-by-c-")
		c.ask(c.token, http.MethodDelete, "/v1/souk/members/"+name+"?force=true", nil)
		return lists("/v1/souk/removed", func(*thief) string { return name })(x)
	})
	thiefs("it says that it is the one that lives", false, func(x *thief, c *agent) func() string {
		code, _ := c.ask(c.token, http.MethodPost, "/v1/souk/lives", map[string]string{"by": "thief"})
		if code == http.StatusOK {
			return atOnce("it lives")
		}
		return nil
	})
	thiefs("it evicts another, with a CA of its own", false, func(x *thief, c *agent) func() string {
		c.ask(c.token, http.MethodPost, "/v1/souk/members/b/evict", api.EvictRequest{By: "thief"})
		return lists("/v1/souk/removed", func(*thief) string { return `"member":"b"` })(x)
	})
	return all
}

// twin is the agent on a copy of the disk: one for each phase, and the one before is killed.
func (x *thief) twin() *agent {
	x.t.Helper()
	if c := x.twins[x.phase]; c != nil {
		return c
	}
	for _, c := range x.twins {
		c.kill()
	}
	c := x.w.agent("c", x.copyDisk(), "--peer", x.a.said.Gossip, "--peer", x.b.said.Gossip, "--log", "info")
	x.twins[x.phase] = c
	switch x.phase {
	case before:
		waittest.Until(x.t, "it sees the others", func() bool { return len(c.workers()) == 3 })
	case removed, evicted: // it finds out that it was removed: then it has tried
		waittest.Until(x.t, "it hears that it was removed", func() bool {
			code, text := c.ask("", http.MethodGet, "/readyz", nil)
			return code == http.StatusServiceUnavailable && strings.Contains(string(text), "removed")
		})
		x.b.run("b", "", x.unique("heard"), "/bin/sleep", "1000")
	}
	return c
}

// secretAttacks read what is in secrets.
func (x *thief) secretAttacks() []attack {
	return []attack{
		{name: "a secret that was set anew, as it travels now", works: true, try: func(x *thief) func() string {
			value := x.unique("a value that is kept ")
			x.b.do(http.MethodPost, "/v1/apps/"+app+"/secrets/OTHER", map[string]string{"value": value})
			if x.phase == removed {
				return nil // who hears gossip has the key that it is sealed with; that ends with the next step
			}
			return func() string { return x.reads("OTHER", value) }
		}},
		{name: "the value of before takes the new one's place", try: func(x *thief) func() string {
			o := x.object("secret", "KEY")
			o.Stamp, o.Sig = x.now(), nil
			was := x.a.text("/v1/apps/" + app + "/secrets/KEY")
			tell("", false, func(x *thief) registry.Object { return x.sign(o) },
				func(*thief) func() string { return nil }).
				try(x)
			return func() string {
				if is := x.a.text("/v1/apps/" + app + "/secrets/KEY"); is != was {
					return "the secret was " + was + " and is " + is
				}
				return ""
			}
		}},
	}
}

// reads opens a secret with all that the thief has: his agent gives it to a machine of his own.
func (x *thief) reads(name, value string) string {
	c := x.twin()
	config := map[string]any{"image": "souk/host", "init": map[string]any{"exec": []string{"/bin/sleep", "1000"}},
		"guest": map[string]any{"cpu_kind": "shared", "cpus": 1, "memory_mb": 256}}
	_, raw := c.ask(c.token, http.MethodPost, "/v1/apps/"+app+"/machines", map[string]any{"config": config,
		"scheduling": map[string]any{"require": []map[string]any{{"attribute": "worker", "op": "==",
			"values": []string{"c"}}}}})
	var m line
	if json.Unmarshal(raw, &m) != nil || m.ID == "" {
		return ""
	}
	_, raw = c.ask(c.token, http.MethodPost, "/v1/apps/"+app+"/machines/"+m.ID+"/exec", api.ExecRequest{
		Command: []string{"/bin/sh", "-c", "printenv " + name}})
	c.ask(c.token, http.MethodDelete, "/v1/apps/"+app+"/machines/"+m.ID+"?force=true", nil)
	if strings.Contains(string(raw), value) {
		return "it reads " + value
	}
	return ""
}

// placeAttacks take the place of a souk at its port, and have a token sent.
func (x *thief) placeAttacks() []attack {
	return []attack{
		{name: "the port of a souk that is down is taken, with the digests of the disk", works: true,
			in: []int{evicted}, try: (*thief).takePort},
		{name: "a question for a proof is passed on to the souk", try: func(x *thief) func() string {
			return x.listenFor(anyPort, x.passOn)
		}},
		{name: "a proof is given once more", try: func(x *thief) func() string {
			var first []byte
			return x.listenFor(anyPort, func(r *http.Request) []byte {
				if first == nil {
					q := r.URL.Query()
					q.Set("nonce", strings.Repeat("0", api.MinNonce))
					r.URL.RawQuery = q.Encode()
					first = x.passOn(r)
				}
				return first
			})
		}},
	}
}

// takePort has a's port while a is down, when an operator of a asks over TCP with the token of a's file.
func (x *thief) takePort() func() string {
	x.a.kill()
	defer func() {
		must(x.t, x.a.again())
		waittest.Until(x.t, "a is back", func() bool { return len(x.a.workers()) >= 2 && len(x.b.workers()) >= 2 })
	}()
	known := map[string]string{}
	for _, o := range append(x.old, x.ears.Objects().All("token")...) {
		if o.Kind == "token" {
			known[api.TokenID(o.Key)] = o.Key
		}
	}
	return x.listenFor(x.a.said.Addr, func(r *http.Request) []byte {
		digest, has := known[r.URL.Query().Get("token")]
		if !has {
			return nil
		}
		raw, err := json.Marshal(api.ProofOf(digest, x.a.said.Addr, r.URL.Query().Get("nonce")))
		must(x.t, err)
		return raw
	})
}

// passOn asks the souk itself.
func (x *thief) passOn(r *http.Request) []byte {
	res, err := http.Get(x.a.base + "/v1/souk/proof?" + r.URL.RawQuery)
	if err != nil {
		return nil
	}
	defer res.Body.Close()
	raw, _ := io.ReadAll(res.Body)
	return raw
}

// listenFor listens where somebody with a's token is to ask, and reports whether the token comes.
func (x *thief) listenFor(addr string, proof func(*http.Request) []byte) func() string {
	ln, err := net.Listen("tcp", addr)
	must(x.t, err)
	defer ln.Close()
	var mu sync.Mutex
	got := ""
	srv := &http.Server{ReadHeaderTimeout: soon, Handler: http.HandlerFunc(func(w http.ResponseWriter,
		r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if h := r.Header.Get("Authorization"); h != "" {
			got = h
		}
		if raw := proof(r); r.URL.Path == "/v1/souk/proof" && raw != nil {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(raw)
			return
		}
		w.WriteHeader(http.StatusNotFound)
	})}
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(ln) }()
	raw, err := os.ReadFile(x.a.said.Token)
	must(x.t, err)
	token := strings.TrimSpace(string(raw))
	_, _ = x.w.try([]string{"SOUK_ADDR=" + ln.Addr().String(), "SOUK_TOKEN=" + token}, "ps")
	_ = srv.Close()
	<-done
	if strings.Contains(got, token) {
		return atOnce("the token was sent")
	}
	return nil
}

// session is what was begun before the removal and goes on by itself.
type session struct {
	name  string
	stdin *io.PipeWriter
	heard atomic.Int64
	ended chan struct{}
}

// linger begins commands with their streams, and what follows events.
func (x *thief) linger() {
	x.session("a shell by the wire", func(ctx context.Context, in io.Reader, _ func()) error {
		_, err := x.near[x.b].Exec(ctx, app, machineID, runtime.ExecRequest{Argv: []string{"/bin/sh"}, Stdin: in,
			Stdout: io.Discard, Stderr: io.Discard})
		return err
	})
	api := func(secret string) *client.Client {
		return client.WithHTTP(x.b.base, secret, &http.Client{Transport: x.b.http.Transport})
	}
	x.session("a shell by the API", func(ctx context.Context, in io.Reader, _ func()) error {
		_, err := api(x.made[0].secret).Exec(ctx, app, machineID, client.Command{Argv: []string{"/bin/sh"}, Stdin: in})
		return err
	})
	x.session("events by the wire", func(ctx context.Context, _ io.Reader, heard func()) error {
		return x.near[x.b].Events(ctx, "", func(machine.EventOf) error { heard(); return nil })
	})
	x.session("output by the API", func(ctx context.Context, _ io.Reader, heard func()) error {
		return api(x.made[1].secret).Logs(ctx, app, machineID, machine.LogQuery{Follow: true},
			func(machine.LogLine) error { heard(); return nil })
	})
}

func (x *thief) session(name string, run func(ctx context.Context, in io.Reader, heard func()) error) {
	in, out := io.Pipe()
	s := &session{name: name, stdin: out, ended: make(chan struct{})}
	ctx, end := context.WithCancel(context.Background())
	go func() {
		defer close(s.ended)
		err := run(ctx, in, func() { s.heard.Add(1) })
		_ = in.CloseWithError(io.ErrClosedPipe)
		x.t.Logf("%s ended: %v", name, err)
	}()
	x.t.Cleanup(func() { end(); _ = out.Close(); <-s.ended })
	x.kept = append(x.kept, s)
}

func (s *session) over() bool {
	select {
	case <-s.ended:
		return true
	default:
		return false
	}
}

// sessionAttacks use what was begun before the removal.
func (x *thief) sessionAttacks() (all []attack) {
	for _, s := range x.kept {
		all = append(all, attack{name: "what was begun before: " + s.name, works: true,
			try: func(x *thief) func() string {
				if x.phase > before && within(x.t, soon, s.over) {
					return nil
				}
				if strings.Contains(s.name, "shell") {
					path, seen := x.witness()
					_, _ = io.WriteString(s.stdin, "touch "+path+"\n")
					return seen
				}
				n := s.heard.Load()
				return func() string {
					x.n++
					x.b.run("b", "", fmt.Sprint("bell-", x.n), "/bin/true")
					if s.heard.Load() > n {
						return "it hears of what happens"
					}
					return ""
				}
			}})
	}
	return all
}
