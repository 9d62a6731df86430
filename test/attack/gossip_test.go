package attack

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/registry"
	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/mesh/gossip"
)

// tell tries one object. shows says what both members list if it is believed.
func tell(name string, works bool, o func(x *thief) registry.Object, shows func(x *thief) func() string) attack {
	return attack{name: name, works: works, try: func(x *thief) func() string {
		d := registry.Delta{Objects: []registry.Object{o(x)}}
		seen := shows(x)
		if x.phase == before {
			if *only != "" {
				x.t.Logf("%+v", d)
			}
			for _, at := range []*agent{x.a, x.b} {
				must(x.t, x.mouth.SendReliable(node(at), broadcastOf(registry.EncodeDelta(d))))
			}
			return seen
		}
		x.say(d)
		return seen
	}}
}

// lists reports where a path of the API names something.
func lists(path string, what func(x *thief) string) func(x *thief) func() string {
	return func(x *thief) func() string {
		name := what(x)
		return func() string {
			for _, at := range []*agent{x.a, x.b} {
				if strings.Contains(at.text(path), name) {
					return fmt.Sprintf("%s is listed by %s", name, at.name)
				}
			}
			return ""
		}
	}
}

// lacks reports where a path of the API does not name something that was there.
func lacks(path string, what func(x *thief) string) func(x *thief) func() string {
	return func(x *thief) func() string {
		name := what(x)
		return func() string {
			for _, at := range []*agent{x.a, x.b} {
				if text := at.text(path); text != "" && !strings.Contains(text, name) {
					return fmt.Sprintf("%s is not listed by %s any more", name, at.name)
				}
			}
			return ""
		}
	}
}

// gossipAttacks are tried with the key of gossip, and with the certificate where it signs.
func (x *thief) gossipAttacks() []attack {
	all := append(x.objectAttacks(), x.deletions()...)
	all = append(all, x.recordAttacks()...)
	return append(all, x.listening()...)
}

// shared are the objects that the catalogs share, one of each kind, whose names end in "-seed".
var shared = []struct{ kind, path string }{ //nolint:gochecknoglobals // a constant
	{"app", "/v1/apps"}, {"policy", "/v1/souk/policies"}, {"namespace", "/v1/souk/namespaces"},
}

// forged returns an object as the thief can have it: signed by it, dated before the removal, in another's name, or
// unsigned.
func (x *thief) forged(o registry.Object, how int) registry.Object {
	o.Stamp = x.now()
	switch how {
	case 1:
		o.Stamp = x.earlier()
	case 2:
		o.Stamp.Writer = "a"
	case 3:
		return o
	}
	return x.sign(o)
}

func (x *thief) objectAttacks() (all []attack) {
	mine := func(x *thief) string { return x.unique("told-") }
	for _, k := range shared {
		for i, how := range []string{"signed", "dated before the removal", "in another's name", "unsigned"} {
			what := func(x *thief) string { return x.unique(fmt.Sprint("evil", i, "-")) }
			all = append(all, tell(k.kind+" over gossip, "+how, i < 2, func(x *thief) registry.Object {
				o := renamed(x.object(registry.Kind(k.kind), "the-seed"), "the-seed", what(x))
				o.Sig = nil
				return x.forged(o, i)
			}, lists(k.path, what)))
		}
	}
	token := func(x *thief) string { return x.unique("token of the thief's ") }
	for i, how := range []string{"signed", "dated before the removal", "in the issuer's name", "unsigned"} {
		all = append(all, tell("a token over gossip, "+how, i < 2, func(x *thief) registry.Object {
			raw, err := json.Marshal(map[string]any{"member": "a", "name": "mine", "role": "admin",
				"made": time.Now().UTC(), "ends": time.Now().Add(time.Hour).UTC()})
			must(x.t, err)
			o := registry.Object{Kind: "token", Key: api.TokenDigest(token(x) + how), Schema: 2, Payload: raw}
			return x.forged(o, i)
		}, func(x *thief) func() string { return letIn(x.b, "Bearer "+token(x)+how) }))
	}
	removal := func(x *thief, id string, rejoined bool) registry.Object {
		r := cluster.Removal{Member: cluster.WorkerID(id), By: "the thief", At: time.Now().UTC()}
		if rejoined {
			r.Rejoined = r.At
		}
		raw, err := json.Marshal(r)
		must(x.t, err)
		return registry.Object{Kind: "removed", Key: id, Schema: 1, Payload: raw, Stamp: x.now()}
	}
	return append(all,
		tell("a host is removed over gossip", true, func(x *thief) registry.Object {
			return x.sign(removal(x, mine(x), false))
		}, lists("/v1/souk/removed", mine)),
		tell("the issuer is removed over gossip, unsigned", false, func(x *thief) registry.Object {
			return removal(x, "a", false)
		}, lists("/v1/souk/removed", func(*thief) string { return `"member":"a"` })),
		tell("it says of itself that it has joined anew", false, func(x *thief) registry.Object {
			return x.sign(removal(x, "c", true))
		}, func(x *thief) func() string { return x.forgiven }),
		tell("it deletes its own removal", false, func(x *thief) registry.Object {
			return x.sign(registry.Object{Kind: "removed", Key: "c", Deleted: true, Stamp: x.now()})
		}, func(x *thief) func() string { return x.forgiven }),
		tell("a token of another is revoked", true, func(x *thief) registry.Object {
			raw := `{"by":"thief","at":"2026-01-01T00:00:00Z","until":"2126-01-01T00:00:00Z"}`
			return x.sign(registry.Object{Kind: "token-revoked", Key: api.TokenDigest(x.spare()), Schema: 1,
				Payload: []byte(raw), Stamp: x.now()})
		}, func(x *thief) func() string {
			secret := x.spare()
			return func() string {
				if code, _ := x.b.ask(secret, http.MethodGet, "/v1/apps", nil); code == http.StatusUnauthorized {
					return "another's token is let in no more"
				}
				return ""
			}
		}),
	)
}

// forgiven reports that the removal is not known any more, or holds no more.
func (x *thief) forgiven() string {
	if !x.knownRemoved(x.a) || !x.knownRemoved(x.b) {
		return "the removal is forgotten"
	}
	return ""
}

// spare is a token of an operator's for this phase.
func (x *thief) spare() string { return x.spares[x.phase] }

func (x *thief) deletions() (all []attack) {
	for _, k := range shared {
		what := func(x *thief) string { return x.unique("gone-") }
		all = append(all, tell("a deletion of "+k.kind+" over gossip", true, func(x *thief) registry.Object {
			key := x.object(registry.Kind(k.kind), "the-seed").Key
			return x.sign(registry.Object{Kind: registry.Kind(k.kind), Key: strings.ReplaceAll(key, "the-seed",
				what(x)),
				Deleted: true, Stamp: x.now()})
		}, lacks(k.path, what)))
	}
	forIssuers := []registry.Object{
		{Kind: "issuer", Key: "c", Schema: 1, Payload: []byte("{}")}, {Kind: "issuer", Key: "a", Deleted: true},
		{Kind: "gossip-keys", Key: "a", Schema: 1, Payload: []byte(`{"generation":1000}`)},
		{Kind: "gossip-keys", Key: "c", Schema: 1, Payload: []byte(`{"generation":1000}`)},
		{Kind: "junk", Key: "j", Payload: []byte("x")},
	}
	for i, o := range forIssuers {
		name := fmt.Sprintf("an object of %s %s, deleted: %v", o.Kind, o.Key, o.Deleted)
		all = append(all, tell(name, false, func(x *thief) registry.Object {
			o.Stamp = x.now()
			o.Stamp.Count = uint32(i)
			return x.sign(o)
		}, func(x *thief) func() string { return x.ears0(o) }))
	}
	return all
}

// ears0 reports that an object is carried on: the thief's own ears, which believe anything, hear it of members.
func (x *thief) ears0(o registry.Object) func() string {
	return func() string {
		got, there := x.ears.Objects().Get(o.Kind, o.Key)
		if there && got.Stamp.Writer == "c" && got.Deleted == o.Deleted {
			return fmt.Sprintf("members carry %s %s", o.Kind, o.Key)
		}
		return ""
	}
}

const itsOwn = "a machine of its own worker"

// recordAttacks speak of workers and their machines.
func (x *thief) recordAttacks() (all []attack) {
	inc := func(x *thief, of string) uint64 { return x.ears.Incarnation(cluster.WorkerID(of)) }
	update := func(name string, u func(x *thief) registry.Update, shows func(x *thief) func() string) {
		all = append(all, attack{name: name, works: name == itsOwn, try: func(x *thief) func() string {
			x.say(registry.Delta{Updates: []registry.Update{u(x)}})
			return shows(x)
		}})
	}
	unharmed := func(x *thief) func() string { return x.workersAreThere }
	for what, n := range map[string]func(x *thief) uint64{
		"as great as there is": func(*thief) uint64 { return registry.MaxIncarnation },
		"the next":             func(x *thief) uint64 { return inc(x, "b") + 1 },
		"a day ahead":          func(*thief) uint64 { return registry.MostIncarnation(time.Now()) - 9 },
	} {
		update("a forged head of b, its incarnation "+what, func(x *thief) registry.Update {
			return registry.Update{Owner: "b", Incarnation: n(x), To: 1, Full: 1, Upto: 1}
		}, unharmed)
		update("a head of b that c signed, its incarnation "+what, func(x *thief) registry.Update {
			u := registry.Update{Owner: "b", Incarnation: n(x), To: 1, Full: 1, Upto: 1}
			u.Head.Version = 1
			u.Head.Sig = x.sig(u.HeadBytes())
			return u
		}, unharmed)
	}
	record := func(x *thief, owner string, n uint64) registry.Update {
		raw, err := json.Marshal(gossip.Machine{ID: "feed" + x.unique("00000000"), App: app, Name: x.unique("ghost"),
			State: "started", Worker: cluster.WorkerID(owner), Region: "local"})
		must(x.t, err)
		r := registry.Record{Owner: cluster.WorkerID(owner), Kind: registry.Machine, Key: "feed" + x.unique("00000000"),
			Incarnation: n, Version: 2, Schema: 1, Payload: raw}
		r.Sig = x.sig(r.SigningBytes())
		u := registry.Update{Owner: r.Owner, Incarnation: n, To: 2, Full: 2, Upto: 2, Records: []registry.Record{r}}
		u.Head.Version = 2
		u.Head.Sig = x.sig(u.HeadBytes())
		return u
	}
	listed := lists("/v1/souk/machines", func(x *thief) string { return x.unique("ghost") })
	update("a machine of b's that c tells", func(x *thief) registry.Update { return record(x, "b", inc(x, "b")+1) },
		listed)
	update(itsOwn, func(x *thief) registry.Update { return record(x, "c", inc(x, "c")+1) }, listed)
	update("a machine of a worker that is none", func(x *thief) registry.Update { return record(x, "ghost", 1) },
		listed)
	all = append(all, attack{name: "what b told before, once more", try: func(x *thief) func() string {
		x.say(registry.Delta{Updates: x.heard.Updates})
		return lists("/v1/souk/machines", func(*thief) string { return "was-here" })(x)
	}}, attack{name: "a namespace that was deleted, as it was signed", try: func(x *thief) func() string {
		x.say(registry.Delta{Objects: x.heard.Objects})
		return lists("/v1/souk/namespaces", func(*thief) string { return "that-went" })(x)
	}}, attack{name: "a table full of owners and objects", try: func(x *thief) func() string {
		var d registry.Delta
		for i := range 500 {
			d.Updates = append(d.Updates, registry.Update{Owner: cluster.WorkerID(fmt.Sprint("bogus-", i)),
				Incarnation: 1,
				To:          1, Full: 1, Upto: 1})
			d.Objects = append(d.Objects, x.signedJunk(i))
		}
		x.say(d)
		return lists("/v1/souk/workers", func(*thief) string { return "bogus-" })(x)
	}}, attack{name: "lists fail while its names are in gossip",
		try: func(x *thief) func() string { return x.listsFail }})
	return all
}

func (x *thief) signedJunk(i int) registry.Object {
	if i > 20 { // a signature each would take its time
		return registry.Object{Kind: "junk", Key: fmt.Sprint("fill-", i), Stamp: x.now(), Sig: make([]byte, 600)}
	}
	return x.sign(registry.Object{Kind: "junk", Key: fmt.Sprint("fill-", i), Stamp: x.now()})
}

func (x *thief) sig(raw []byte) []byte {
	s, err := x.id.Sign("souk registry", raw)
	must(x.t, err)
	return append(s.Signature, s.Certificate...)
}

// workersAreThere reports that a or b shows the other's worker no more, or that one is not ready.
func (x *thief) workersAreThere() string {
	for _, at := range []*agent{x.a, x.b} {
		var w struct {
			Workers []struct {
				Worker string `json:"worker"`
			} `json:"workers"`
		}
		if !at.get("/v1/souk/workers", &w) || len(w.Workers) < 2 {
			return fmt.Sprintf("%s shows %v", at.name, w.Workers)
		}
		if code, text := at.ask("", http.MethodGet, "/readyz", nil); code != http.StatusOK {
			return fmt.Sprintf("%s is not ready: %s", at.name, text)
		}
	}
	return ""
}

// listsFail reports which list of a member fails.
func (x *thief) listsFail() string {
	for _, at := range []*agent{x.a, x.b} {
		for _, path := range []string{"/v1/apps", "/v1/souk/machines", "/v1/apps/" + app + "/machines",
			"/v1/souk/workers"} {
			if code, text := at.ask(at.token, http.MethodGet, path, nil); code != http.StatusOK {
				return fmt.Sprintf("%s of %s: %d %s", path, at.name, code, text)
			}
		}
	}
	return ""
}

// listening is what the key of gossip lets who has it hear; it does as long as it is the one in use.
func (x *thief) listening() []attack {
	key := x.id.GossipKeys().Keys[0]
	only := []int{evicted}
	return []attack{
		{name: "a question to gossip", works: true, in: only, try: func(x *thief) func() string {
			for _, at := range []*agent{x.a, x.b} {
				if answered, _ := gossip.Knock(x.t.Context(), at.said.Gossip, key); answered {
					return atOnce(at.name + " answers")
				}
			}
			return nil
		}},
		{name: "gossip is joined anew", works: true, in: only, try: func(x *thief) func() string {
			n, err := x.speak(x.unique("mouth"), key).Join([]string{x.a.said.Gossip, x.b.said.Gossip})
			return said(fmt.Sprint("it joined ", n), err)
		}},
		{name: "a packet is answered", works: true, in: only, try: func(x *thief) func() string {
			n := node(x.a)
			_, err := x.mouth.Ping(x.a.name, &net.UDPAddr{IP: n.Addr, Port: int(n.Port)})
			return said("the ping was answered", err)
		}},
		{name: "what is made now is heard", works: true, in: only, try: func(x *thief) func() string {
			name := x.unique("hush")
			x.a.do(http.MethodPost, "/v1/apps", api.NewApp{AppName: name})
			waittest.Until(x.t, "b hears of it", func() bool { return strings.Contains(x.b.text("/v1/apps"), name) })
			return func() string {
				if _, there := x.ears.Objects().Get("app", name); there {
					return "the thief has heard of " + name
				}
				return ""
			}
		}},
		{name: "its names are members", works: true, in: only, try: func(x *thief) func() string {
			if x.phase == evicted && within(x.t, soon, func() bool { return x.strangerAlive() == "" }) {
				return nil // they are found dead after some seconds
			}
			return x.strangerAlive
		}},
	}
}

// strangerAlive names a member that is alive to a, and none of ours.
func (x *thief) strangerAlive() string {
	var m struct {
		Members []cluster.Member `json:"members"`
	}
	x.a.get("/v1/souk/members", &m)
	for _, k := range m.Members {
		if k.State == cluster.MemberAlive && k.ID != "a" && k.ID != "b" {
			return string(k.ID) + " is alive to a"
		}
	}
	return ""
}
