package attack

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/broadcast"
	"github.com/soukhq/souk/core/registry"
	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/mesh/gossip"
	"github.com/soukhq/souk/mesh/pki"
	"github.com/soukhq/souk/mesh/wire"
)

// The phases of a theft. In each the thief has the disk as it was at the beginning.
const (
	before  = iota // the member is one still: shows that a try is made as it must be
	removed        // it was removed, and the thief hears gossip: the key that he has is the one in use
	evicted        // souk node evict is done
)

var phases = []string{"before the removal", "removed, and the key of gossip not yet another", "evicted"} //nolint:gochecknoglobals // a constant

// thief is who has the whole disk of a member, and no other.
type thief struct {
	t      *testing.T
	w      *town
	phase  int
	a, b   *agent // who is attacked: the one with the authority, and another
	disk   string // the copy; never changed
	id     *pki.Identity
	token  string   // of the member whose disk it is
	joins  string   // the token that it once joined with
	made   []made   // tokens that were made with it
	spares []string // tokens of an operator's, one for each phase
	old    []registry.Object
	mouth  *memberlist.Memberlist // in gossip, under a name that is nobody's
	ears   *gossip.Cluster        // another, that listens
	near   map[*agent]*wire.Worker
	heard  registry.Delta // what was heard before the removal, as it was signed
	kept   []*session
	twins  map[int]*agent
	n      int

	sessions tls.ClientSessionCache
}

// made is a token of the API that was made in time.
type made struct{ name, secret string }

// copyDisk returns another copy of the disk.
func (x *thief) copyDisk() string {
	x.t.Helper()
	x.n++
	to := filepath.Join(x.w.dir, fmt.Sprint("copy-", x.n))
	if out, err := exec.Command("cp", "-a", x.disk, to).CombinedOutput(); err != nil {
		x.t.Fatalf("cp: %v %s", err, out)
	}
	return to
}

// steal takes the disk of an agent that was killed, and begins to listen and to speak with what is on it.
func steal(t *testing.T, w *town, from *agent, a, b *agent) *thief {
	t.Helper()
	x := &thief{t: t, w: w, a: a, b: b, near: map[*agent]*wire.Worker{}, disk: from.dir, token: from.token,
		twins: map[int]*agent{}, sessions: tls.NewLRUClientSessionCache(8)}
	x.disk = x.copyDisk()
	var err error
	x.id, err = pki.Load(filepath.Join(x.copyDisk(), "identity"))
	must(t, err)
	for _, at := range []*agent{a, b} {
		x.near[at] = wire.NewClient(x.id, nil).Worker(cluster.WorkerID(at.name), func() string { return at.said.Wire })
		t.Cleanup(x.near[at].Close)
	}
	key := x.id.GossipKeys().Keys[0]
	x.mouth = x.speak("mouth", key)
	if _, err := x.mouth.Join([]string{a.said.Gossip, b.said.Gossip}); err != nil {
		t.Fatal(err)
	}
	x.ears = x.listen("ears", key)
	waittest.Until(t, "the thief hears what there is", func() bool {
		return len(x.ears.Known()) >= 3 && len(x.ears.Objects().All("")) > 4
	})
	x.old = x.ears.Objects().All("")
	x.heard = x.ears.Answer(registry.Digest{})
	return x
}

// speak is a name in gossip that can say anything.
func (x *thief) speak(name string, key []byte) *memberlist.Memberlist {
	x.t.Helper()
	conf := memberlist.DefaultLANConfig()
	conf.Name, conf.BindAddr, conf.BindPort, conf.LogOutput, conf.SecretKey = name, "127.0.0.1", 0, io.Discard, key
	conf.TCPTimeout = 3 * time.Second
	list, err := memberlist.Create(conf)
	must(x.t, err)
	x.t.Cleanup(func() { _ = list.Shutdown() })
	return list
}

// listen is a name in gossip that takes part as members do, has no certificate, and cannot be called.
func (x *thief) listen(name string, key []byte) *gossip.Cluster {
	x.t.Helper()
	g, err := gossip.New(gossip.Options{Self: cluster.WorkerID(name), Role: "worker", API: "127.0.0.1:1",
		Bind: anyPort, Keys: [][]byte{key}, Incarnation: 1, Peers: []string{x.a.said.Gossip, x.b.said.Gossip}})
	must(x.t, err)
	ctx, end := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = g.Run(ctx) }()
	x.t.Cleanup(func() { end(); <-done })
	return g
}

// node is how memberlist reaches an agent's gossip.
func node(a *agent) *memberlist.Node {
	addr, err := net.ResolveUDPAddr("udp", a.said.Gossip)
	if err != nil {
		a.t.Fatal(err)
	}
	return &memberlist.Node{Name: a.name, Addr: addr.IP, Port: uint16(addr.Port)} //nolint:gosec // a port
}

// broadcastOf returns what travels when a member broadcasts something.
func broadcastOf(body []byte) []byte {
	return broadcast.Packet{From: "ghost",
		Messages: []broadcast.Message{broadcast.NewMessage(broadcast.Arc{}, body)}}.Encode()
}

// say tells both agents something over gossip. Where it is not to be believed, both are waited for until they have
// refused it, or what comes right behind it.
func (x *thief) say(d registry.Delta) {
	x.t.Helper()
	raws := [][]byte{broadcastOf(registry.EncodeDelta(d))}
	if len(d.Updates) == 1 && len(d.Objects) == 0 {
		raws = append(raws, broadcastOf(registry.EncodeUpdate(d.Updates[0]))) // as members tell it
	}
	x.n++
	raws = append(raws, broadcastOf(registry.EncodeDelta(registry.Delta{Objects: []registry.Object{{Kind: "junk",
		Key: fmt.Sprint("behind-", x.n), Stamp: registry.Stamp{Wall: 1, Writer: "ghost"}}}})))
	for _, at := range []*agent{x.a, x.b} {
		was := at.refused()
		for _, raw := range raws {
			if err := x.mouth.SendReliable(node(at), raw); err != nil && x.phase < evicted {
				x.t.Fatal(err)
			}
			_ = x.mouth.SendBestEffort(node(at), raw) // too long a one does not fit
		}
		if x.phase == removed {
			waittest.Until(x.t, at.name+" has refused what is said", func() bool { return at.refused() > was })
		}
	}
}

// sign signs an object as whoever its writer is said to be, with the certificate on the disk.
func (x *thief) sign(o registry.Object) registry.Object {
	x.t.Helper()
	s, err := x.id.Sign("souk registry", o.SigningBytes())
	must(x.t, err)
	o.Sig = append(s.Signature, s.Certificate...)
	return o
}

// now is a stamp of now by the member whose disk it is.
func (x *thief) now() registry.Stamp {
	return registry.Stamp{Wall: time.Now().UnixMilli(), Writer: cluster.WorkerID(x.id.Name().ID)}
}

// before is a stamp of before the removal.
func (x *thief) earlier() registry.Stamp {
	s := x.now()
	s.Wall -= time.Hour.Milliseconds()
	return s
}

// object returns the newest object of a kind on the disk whose key has a part.
func (x *thief) object(kind registry.Kind, part string) (o registry.Object) {
	x.t.Helper()
	for _, k := range x.old {
		if k.Kind == kind && strings.Contains(k.Key, part) && !k.Deleted {
			return k
		}
	}
	x.t.Fatalf("the disk holds no %s %s", kind, part)
	return o
}

// renamed is an object that says of something else what it says.
func renamed(o registry.Object, from, to string) registry.Object {
	o.Key = strings.ReplaceAll(o.Key, from, to)
	o.Payload = []byte(strings.ReplaceAll(string(o.Payload), from, to))
	return o
}

// unique names something of this phase.
func (x *thief) unique(what string) string { return fmt.Sprintf("%s%d", what, x.phase) }

// witness is a file that machines may write.
func (x *thief) witness() (path string, seen func() string) {
	x.n++
	path = filepath.Join(x.w.dir, "witnesses", fmt.Sprint("w", x.n))
	return path, func() string {
		if _, err := os.Stat(path); err == nil {
			return "a command was executed: " + path
		}
		return ""
	}
}
