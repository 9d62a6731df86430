package attack

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/registry"
	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/mesh/gossip"
	"github.com/soukhq/souk/mesh/pki"
	"github.com/soukhq/souk/mesh/wire"
)

// tryout is one thing that a member which is a worker only tries, and what came of it.
type tryout struct {
	what string
	may  bool
}

// TestWorkerCertificateIsLimited: what a member with the certificate of a worker can do is listed in docs/security.md, and is about
// its
// own machines only. All else is refused.
func TestWorkerCertificateIsLimited(t *testing.T) {
	w := newTown(t)
	a := w.first("a")
	dir := filepath.Join(w.dir, "d")
	w.souk(nil, "ca", "issue", "d", "--role", "worker", "--dir", a.dir, "--out", filepath.Join(dir, "identity"))
	d := w.agent("d", dir, "--peer", a.said.Gossip)
	waittest.Until(t, "both know each other", func() bool { return len(a.workers()) == 2 && len(d.workers()) == 2 })
	must(t, os.Mkdir(filepath.Join(w.dir, "witnesses"), 0o700))
	must(t, os.Chmod(filepath.Join(w.dir, "witnesses"), 0o777)) //nolint:gosec // machines write there
	a.do(http.MethodPost, "/v1/apps", api.NewApp{AppName: app})
	a.run("a", machineID, "web", "/bin/sleep", "1000")
	waittest.Until(t, "d has the app", func() bool { return strings.Contains(d.text("/v1/apps"), app) })
	id, err := pki.Load(filepath.Join(dir, "identity"))
	must(t, err)
	x := &thief{t: t, w: w, a: a, b: d, id: id, phase: removed}
	x.mouth = x.speak("mouth", id.GossipKeys().Keys[0])
	if _, err := x.mouth.Join([]string{a.said.Gossip}); err != nil {
		t.Fatal(err)
	}
	all := slices.Concat(x.callsOfAWorker(), x.objectsOfAWorker(), x.recordsOfAWorker(), x.deedsOfAWorker())
	for _, k := range all {
		if own := strings.Contains(k.what, " its own") || strings.Contains(k.what, "of itself"); k.may && !own {
			t.Errorf("a worker may %s", k.what)
		}
	}
	listed(t, all)
}

// callsOfAWorker asks a everything that there is to ask over the wire.
func (x *thief) callsOfAWorker() (all []tryout) {
	witness, seen := x.witness()
	client := wire.NewClient(x.id, nil)
	link := client.Worker("a", func() string { return x.a.said.Wire })
	defer link.Close()
	harmless := map[string]string{"hello": "ask who is there, and say who it is of itself",
		"renew":  "have its own certificate renewed",
		"bundle": "have its own roots and keys of gossip brought up to date",
		"tokens": "ask which digests are let in: those of its own list, which are no tokens",
		"pull":   "offer its own records in an exchange, which no member answers"}
	var refused []string
	for _, k := range slices.Concat(workerCalls(machineID, "000000000099", witness), jobCalls(),
		memberCalls(client.Renew, client.Refresh, func() string { return x.a.said.Wire }, "99")) {
		ctx, cancel := context.WithTimeout(x.t.Context(), soon)
		err := k.ask(ctx, link)
		cancel()
		if what, is := harmless[k.route]; is && err == nil {
			all = append(all, tryout{what, true})
			continue
		}
		if err == nil || seen() != "" {
			all = append(all, tryout{"call " + k.route + " of another", true})
		}
		refused = append(refused, k.route)
	}
	return append(all, tryout{"call of another member: " + strings.Join(refused, ", "), false})
}

// believed tells a something over gossip, and reports whether it is believed: shown, or else refused.
func (x *thief) believed(d registry.Delta, shows func() bool) bool {
	x.t.Helper()
	was := x.a.refused()
	must(x.t, x.mouth.SendReliable(node(x.a), broadcastOf(registry.EncodeDelta(d))))
	waittest.Until(x.t, fmt.Sprintf("%.200v is shown or refused", d), func() bool {
		return shows() || x.a.refused() > was
	})
	return shows()
}

// objectKinds are those that members write, and one that nobody does.
var objectKinds = []registry.Kind{"app", "secret", "oldsecret", "policy", "setting", "namespace", "price", "scheduler",
	"release", "head", "steward", "fork", "piece", "token", "token-revoked", "removed", "issuer", "gossip-keys", "junk"}

// TestEveryObjectKindIsAttacked: what the catalog shares, by its source, is among what a worker tries to write.
func TestEveryObjectKindIsAttacked(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile(filepath.Join("..", "..", "store", "catalog", "catalog.go"))
	must(t, err)
	all := regexp.MustCompile(`(?m)^\tbucket\w+ += "([a-z]+)"`).FindAllStringSubmatch(string(raw), -1)
	if len(all) < 12 {
		t.Errorf("the catalog's buckets are not found: %q", all)
	}
	for _, m := range all {
		// Keys are told by their owner's calls, not as objects.
		if m[1] != "idempotency" && !slices.Contains(objectKinds, registry.Kind(m[1])) {
			t.Errorf("objects of %s are not tried", m[1])
		}
	}
}

func (x *thief) objectsOfAWorker() (all []tryout) {
	var refused []string
	for _, kind := range objectKinds {
		o := x.sign(registry.Object{Kind: kind, Key: "of-d", Schema: 1, Payload: []byte("{}"), Stamp: x.now()})
		if x.believed(registry.Delta{Objects: []registry.Object{o}}, func() bool { return false }) {
			all = append(all, tryout{"write objects of " + string(kind), true})
		}
		gone := x.sign(registry.Object{Kind: kind, Key: app, Deleted: true, Stamp: x.now()})
		if x.believed(registry.Delta{Objects: []registry.Object{gone}}, func() bool {
			return kind == "app" && !strings.Contains(x.a.text("/v1/apps"), app)
		}) {
			all = append(all, tryout{"delete objects of " + string(kind), true})
		}
		refused = append(refused, string(kind))
	}
	other := x.sign(registry.Object{Kind: "app", Key: "of-d", Payload: []byte("{}"), Stamp: registry.Stamp{
		Wall: time.Now().UnixMilli(), Writer: "a"}})
	all = append(all, tryout{"write and delete objects of " + strings.Join(refused, ", "), false},
		tryout{"write in another's name", x.believed(registry.Delta{Objects: []registry.Object{other}},
			func() bool { return strings.Contains(x.a.text("/v1/apps"), "of-d") })})
	return all
}

// recordsOfAWorker tells of workers and machines, with d's own key.
func (x *thief) recordsOfAWorker() (all []tryout) {
	x.b.kill() // d itself would say what is so
	next := x.incarnationOf("d") + 1
	tell := func(owner, id, name string, n uint64) registry.Delta {
		raw, err := json.Marshal(gossip.Machine{ID: id, App: app, Name: name, State: "started",
			Worker: cluster.WorkerID(owner), Region: "local"})
		must(x.t, err)
		r := registry.Record{Owner: cluster.WorkerID(owner), Kind: registry.Machine, Key: id, Incarnation: n,
			Version: 2,
			Schema:  1, Payload: raw}
		r.Sig = x.sig(r.SigningBytes())
		u := registry.Update{Owner: r.Owner, Incarnation: n, To: 2, Full: 2, Upto: 2, Records: []registry.Record{r}}
		u.Head.Version = 2
		u.Head.Sig = x.sig(u.HeadBytes())
		return registry.Delta{Updates: []registry.Update{u}}
	}
	shows := func(id, name, worker string) func() bool {
		return func() bool {
			return slices.ContainsFunc(x.a.machines(), func(m line) bool {
				return m.ID == id && m.Name == name && (m.Worker == worker || worker == "")
			})
		}
	}
	patient := 3 * time.Second                               // for what is not to be shown
	said := func(d registry.Delta, shown func() bool) bool { // what else is refused counts too, so this waits
		must(x.t, x.mouth.SendReliable(node(x.a), broadcastOf(registry.EncodeDelta(d))))
		return within(x.t, patient, shown)
	}
	all = append(all, tryout{"tell of a machine of another worker", said(tell("a", "fefefefefefefe", "not-d",
		x.incarnationOf("a")+1), shows("fefefefefefefe", "not-d", ""))})
	patient = soon
	all = append(all, tryout{"tell of its own worker that it has a machine which nobody granted: it is listed as there",
		said(tell("d", "fdfdfdfdfdfdfd", "of-d", next), shows("fdfdfdfdfdfdfd", "of-d", "d"))})
	patient = 3 * time.Second
	return append(all, tryout{"have it believed that it has a machine which another worker has", said(tell("d",
		machineID,
		"web", next+1), func() bool { return !shows(machineID, "web", "a")() })})
}

// incarnationOf is what a's view says; members tell it to whoever listens.
func (x *thief) incarnationOf(id string) uint64 {
	x.t.Helper()
	if x.ears == nil {
		x.ears = x.listen("ears", x.id.GossipKeys().Keys[0])
	}
	waittest.Until(x.t, "the thief hears of "+id, func() bool { return x.ears.Incarnation(cluster.WorkerID(id)) > 0 })
	return x.ears.Incarnation(cluster.WorkerID(id))
}

// deedsOfAWorker are what is asked of d's own API, by who has d's token.
func (x *thief) deedsOfAWorker() (all []tryout) {
	must(x.t, x.b.again())
	d := x.b
	waittest.Until(x.t, "d is back", func() bool { return len(d.workers()) == 2 && len(x.a.workers()) == 2 })
	for _, k := range []struct{ what, method, path string }{
		{"make an app by its API", http.MethodPost, "/v1/apps"},
		{"make a token by its API that others let in", http.MethodPost, "/v1/souk/tokens"},
		{"remove a member by its API", http.MethodDelete, "/v1/souk/members/x1?force=true"},
		{"set a secret by its API", http.MethodPost, "/v1/apps/" + app + "/secrets/OF_D"},
	} {
		d.ask(d.token, k.method, k.path, map[string]any{"app_name": "app-of-d", "name": "of-d", "value": "v"})
		x.a.do(http.MethodPost, "/v1/apps", api.NewApp{AppName: "behind-" + fmt.Sprint(len(all))})
		waittest.Until(x.t, "d hears of what came behind", func() bool {
			return strings.Contains(d.text("/v1/apps"), "behind-"+fmt.Sprint(len(all)))
		})
		seen := strings.Contains(x.a.text("/v1/apps"), "app-of-d") || strings.Contains(x.a.text("/v1/souk/tokens"),
			"of-d") ||
			strings.Contains(x.a.text("/v1/souk/removed"), "x1") ||
			strings.Contains(x.a.text("/v1/apps/"+app+"/secrets"), "OF_D")
		all = append(all, tryout{k.what, seen})
	}
	return append(all, tryout{"have its own token let in by others", letIn(x.a, "Bearer "+d.token)() != ""})
}

// TestSecurityDocumentNamesExistingTests: each test that docs/security.md names is one.
func TestSecurityDocumentNamesExistingTests(t *testing.T) {
	raw, err := os.ReadFile(securityDoc)
	must(t, err)
	there := map[string]bool{}
	name := regexp.MustCompile(`(?m)^func (Test[A-Za-z0-9]+)\(`)
	must(t, filepath.WalkDir("../..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, m := range name.FindAllSubmatch(source, -1) {
			there[string(m[1])] = true
		}
		return err
	}))
	for _, m := range regexp.MustCompile("`(Test[A-Za-z0-9]+)`").FindAllStringSubmatch(string(raw), -1) {
		if !there[m[1]] {
			t.Errorf("docs/security.md names %s, and there is none", m[1])
		}
	}
}

// The table stands between these lines of docs/security.md.
const (
	securityDoc = "../../docs/security.md"
	tableBegins = "<!-- what a worker only can do: written by go test ./test/attack -update -->\n"
	tableEnds   = "<!-- end -->\n"
)

// listed holds the table in the document against what came of the tries.
func listed(t *testing.T, all []tryout) {
	t.Helper()
	var table strings.Builder
	table.WriteString("\n| it tries to | |\n| --- | --- |\n")
	slices.SortStableFunc(all, func(a, b tryout) int {
		if a.may == b.may {
			return strings.Compare(a.what, b.what)
		}
		if a.may {
			return -1
		}
		return 1
	})
	for _, k := range all {
		came := "refused"
		if k.may {
			came = "may"
		}
		fmt.Fprintf(&table, "| %s | %s |\n", k.what, came)
	}
	table.WriteString("\n")
	raw, err := os.ReadFile(securityDoc)
	must(t, err)
	head, rest, begins := strings.Cut(string(raw), tableBegins)
	had, tail, ends := strings.Cut(rest, tableEnds)
	if !begins || !ends {
		t.Fatalf("%s has no place for the table:\n%s", securityDoc, table.String())
	}
	if *update {
		must(t, os.WriteFile(securityDoc, []byte(head+tableBegins+table.String()+tableEnds+tail), 0o644)) //nolint:gosec // a document
		return
	}
	if had != table.String() {
		t.Errorf("docs/security.md says\n%s\nand what came of it is\n%s\n(-update)", had, table.String())
	}
}
