package attack

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/internal/wait/waittest"
)

const app = "shop"

// machineID is of the machine at b.
const machineID = "fe000000000001"

// run makes a machine at a worker, under an id of its own where there is none.
func (a *agent) run(at, id, name string, argv ...string) {
	a.t.Helper()
	config := map[string]any{"image": "souk/host", "init": map[string]any{"exec": argv},
		"guest": map[string]any{"cpu_kind": "shared", "cpus": 1, "memory_mb": 256}}
	launch := map[string]any{"name": name, "config": config, "region": "local", "scheduling": map[string]any{
		"require": []map[string]any{{"attribute": "worker", "op": "==", "values": []string{at}}}}}
	if id != "" {
		launch["id"] = id
	}
	a.do(http.MethodPost, "/v1/apps/"+app+"/machines", launch)
}

// machineAt is the id of the machine that runs at a member.
func (x *thief) machineAt(at *agent) string {
	if at == x.b {
		return machineID
	}
	return strings.Replace(machineID, "1", "2", 1)
}

// theft makes a cluster of three, with what a cluster has, and has the disk of the third stolen.
func theft(t *testing.T, w *town) *thief {
	t.Helper()
	must(t, os.Mkdir(filepath.Join(w.dir, "witnesses"), 0o700))
	must(t, os.Chmod(filepath.Join(w.dir, "witnesses"), 0o777)) //nolint:gosec // machines write there
	a := w.first("a")
	b, _ := w.join("b", "--addr", "0.0.0.0:0")
	c, joins := w.join("c")
	for _, at := range w.all {
		waittest.Until(t, at.name+" sees three", func() bool { return len(at.workers()) == 3 })
	}
	a.do(http.MethodPost, "/v1/apps", api.NewApp{AppName: app})
	for i := range phases {
		a.do(http.MethodPost, "/v1/apps", api.NewApp{AppName: fmt.Sprint("gone-", i)})
		a.do(http.MethodPost, "/v1/souk/namespaces", api.NewNamespace{Name: fmt.Sprint("gone-", i)})
		w.policy(a, fmt.Sprint("gone-", i))
	}
	a.do(http.MethodPost, "/v1/apps", api.NewApp{AppName: "the-seed"})
	a.do(http.MethodPost, "/v1/souk/namespaces", api.NewNamespace{Name: "the-seed"})
	w.policy(a, "the-seed")
	a.do(http.MethodPost, "/v1/souk/namespaces", api.NewNamespace{Name: "that-went"})
	for _, k := range []string{"KEY", "OTHER"} {
		a.do(http.MethodPost, "/v1/apps/"+app+"/secrets/"+k, map[string]string{"value": "value of before"})
	}
	waittest.Until(t, "all have the app", func() bool {
		return strings.Contains(b.text("/v1/souk/namespaces"), "that-went") &&
			strings.Contains(b.text("/v1/apps/"+app+"/secrets"), "OTHER") &&
			strings.Contains(c.text("/v1/apps/"+app+"/secrets"), "OTHER")
	})
	x := &thief{a: a, b: b}
	b.run("b", machineID, "web", "/bin/sh", "-c", "while echo tick; do sleep 1; done")
	b.run("a", x.machineAt(a), "till", "/bin/sleep", "1000")
	b.run("b", "fe00000000dead", "was-here", "/bin/sleep", "1000")
	tokens := w.mint(a, b, c)
	if len(tokens) != 3 {
		t.Fatal(tokens)
	}
	w.context(c, tokens[2])
	waittest.Until(t, "c hears of the machines", func() bool { return len(c.machines()) == 3 })
	c.kill()
	stolen := steal(t, w, c, a, b)
	stolen.joins, stolen.made = joins, tokens
	for i := range phases {
		stolen.spares = append(stolen.spares, w.token(a, a.token, fmt.Sprint("spare", i)))
	}
	last := stolen.spares[len(phases)-1]
	waittest.Until(t, "b lets in what a made", func() bool {
		code, _ := b.ask(last, http.MethodGet, "/v1/apps", nil)
		return code == http.StatusOK
	})
	b.do(http.MethodDelete, "/v1/apps/"+app+"/machines/fe00000000dead?force=true", nil)
	b.do(http.MethodDelete, "/v1/souk/namespaces/that-went", nil)
	waittest.Until(t, "both have heard what went", func() bool {
		return len(a.machines()) == 2 && len(b.machines()) == 2 && !strings.Contains(a.text("/v1/souk/namespaces"),
			"that-went")
	})
	return stolen
}

// policy puts a policy of a name in force for nobody.
func (w *town) policy(at *agent, name string) {
	w.t.Helper()
	at.do(http.MethodPost, "/v1/souk/policies", map[string]string{"text": fmt.Sprintf(
		"name = %q\n[[score]]\nname = \"full\"\nexpr = \"double(worker.machines)\"\n", name)})
}

// token makes a token at a member with another one.
func (w *town) token(at *agent, with, name string) string {
	w.t.Helper()
	var out api.MadeToken
	waittest.Until(w.t, at.name+" makes "+name, func() bool {
		code, raw := at.ask(with, http.MethodPost, "/v1/souk/tokens", api.NewToken{Name: name, Role: api.RoleAdmin})
		return code == http.StatusCreated && json.Unmarshal(raw, &out) == nil
	})
	return out.Secret
}

// mint makes tokens as a thief would in time: with c's at another member, with that one at a third, and at c itself.
func (w *town) mint(a, b, c *agent) (all []made) {
	w.t.Helper()
	hidden := w.token(a, c.token, "hidden")
	all = append(all, made{"a token made with it at a", hidden},
		made{"a token made with that at b", w.token(b, hidden, "deeper")},
		made{"a token made at the member", w.token(c, c.token, "far")})
	for _, m := range all {
		for _, at := range []*agent{a, b} {
			waittest.Until(w.t, at.name+" knows "+m.name, func() bool {
				code, _ := at.ask(m.secret, http.MethodGet, "/v1/apps", nil)
				return code == http.StatusOK
			})
		}
	}
	return all
}

// context has the disk hold a context for a, with a token.
func (w *town) context(c *agent, m made) {
	w.t.Helper()
	file := filepath.Join(w.dir, "far.token")
	must(w.t, os.WriteFile(file, []byte(m.secret+"\n"), 0o600))
	w.souk([]string{"XDG_CONFIG_HOME=" + filepath.Join(c.dir, "config")}, "context", "add", "far", w.all[0].said.Addr,
		"--token-file", file)
}

// workers names the workers that an agent knows the records of.
func (a *agent) workers() (names []string) {
	var w struct {
		Workers []struct {
			Worker string `json:"worker"`
		} `json:"workers"`
	}
	a.get("/v1/souk/workers", &w)
	for _, k := range w.Workers {
		names = append(names, k.Worker)
	}
	return names
}
