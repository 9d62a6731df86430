package attack

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"

	"github.com/soukhq/souk/api"
)

// tokenAttacks are tried with what the disk holds of tokens, at each member: over TCP, TLS and the socket.
func (x *thief) tokenAttacks() (all []attack) {
	own := append([]made{{"the member's own token", x.token}}, x.made...)
	for _, m := range own {
		for _, at := range []*agent{x.a, x.b} {
			all = append(all, attack{name: fmt.Sprintf("%s, at %s", m.name, at.base[:5]+" "+at.name), works: true,
				try: func(*thief) func() string { return letIn(at, "Bearer "+m.secret) }})
		}
	}
	for what, header := range map[string]func() string{
		"several tokens in one header":       func() string { return "Bearer x, " + x.token + ", " + x.made[0].secret },
		"a token under FlyV1":                func() string { return "FlyV1 " + x.made[0].secret },
		"a token with nothing in front":      func() string { return x.token },
		"a token in the header's upper case": func() string { return "BEARER " + x.token },
	} {
		all = append(all, attack{name: what, works: true, try: func(x *thief) func() string {
			return letIn(x.a, header())
		}})
	}
	for _, what := range []string{"digest", "id"} {
		all = append(all, attack{name: "the " + what + " of another's token as a token",
			try: func(x *thief) func() string {
				key := x.object("token", "").Key
				if what == "id" {
					key = api.TokenID(key)
				}
				return letIn(x.a, "Bearer "+key)
			}})
	}
	return append(append(all, x.tokenDoors()...), x.tokenDeeds()...)
}

func letIn(at *agent, authorization string) func() string {
	return func() string {
		r, err := http.NewRequest(http.MethodGet, at.base+"/v1/apps", nil)
		if err != nil {
			at.t.Fatal(err)
		}
		r.Header.Set("Authorization", authorization)
		res, err := at.http.Do(r)
		if err != nil {
			return ""
		}
		defer res.Body.Close()
		if res.StatusCode == http.StatusOK {
			return "it is let in at " + at.name
		}
		return ""
	}
}

// tokenDoors are the ways of the command line.
func (x *thief) tokenDoors() []attack {
	ps := func(env ...string) func(*thief) func() string {
		return func(x *thief) func() string {
			out, err := x.w.try(env, "ps")
			return said("souk ps answered: "+out, err)
		}
	}
	return []attack{
		{name: "the command line, over TCP", works: true, try: ps(x.a.envWith(x.token)...)},
		{name: "the command line, over the socket", works: true, try: ps("SOUK_ADDR=unix:"+filepath.Join(x.a.dir,
			"souk.sock"), "SOUK_TOKEN="+x.token)},
		{name: "a context that lay on the disk", works: true, try: func(x *thief) func() string {
			home := "XDG_CONFIG_HOME=" + filepath.Join(x.disk, "config")
			out, err := x.w.try([]string{home, "SOUK_CONTEXT=far"}, "ps")
			return said("souk ps answered: "+out, err)
		}},
	}
}

// tokenDeeds are what a token was good for, told by what is so afterwards.
func (x *thief) tokenDeeds() (all []attack) {
	for i, m := range append([]made{{"the member's own token", x.token}}, x.made...) {
		deed := func(what, method, path string, in func(x *thief) any, shows func(x *thief) func() string) {
			all = append(all, attack{name: what + " with " + m.name, works: true, try: func(x *thief) func() string {
				seen := shows(x)
				code, _ := x.b.ask(m.secret, method, strings.ReplaceAll(path, "NAME", x.unique(fmt.Sprint("deed", i,
					"p"))),
					in(x))
				return func() string {
					if code >= 200 && code < 300 {
						return fmt.Sprint("it was answered ", code)
					}
					return seen()
				}
			}})
		}
		name := func(x *thief) string { return x.unique(fmt.Sprint("deed", i, "p")) }
		lists := func(path string) func(x *thief) func() string {
			return func(x *thief) func() string {
				n := name(x)
				return func() string {
					if strings.Contains(x.a.text(path), n) {
						return n + " is listed at a"
					}
					return ""
				}
			}
		}
		deed("a token is made", http.MethodPost, "/v1/souk/tokens", func(x *thief) any {
			return api.NewToken{Name: name(x), Role: api.RoleAdmin}
		}, lists("/v1/souk/tokens"))
		deed("an app is made", http.MethodPost, "/v1/apps", func(x *thief) any { return api.NewApp{AppName: name(x)} },
			lists("/v1/apps"))
		deed("a secret is set", http.MethodPost, "/v1/apps/"+app+"/secrets/NAME", func(*thief) any {
			return map[string]string{"value": "the thief's"}
		}, lists("/v1/apps/"+app+"/secrets"))
		deed("a host is removed", http.MethodDelete, "/v1/souk/members/NAME?force=true",
			func(*thief) any { return nil },
			lists("/v1/souk/removed"))
		deed("a command is run", http.MethodPost, "/v1/apps/"+app+"/machines/"+machineID+"/exec", func(*thief) any {
			return api.ExecRequest{Command: []string{"true"}}
		}, func(*thief) func() string { return atOnce("") })
	}
	return all
}
