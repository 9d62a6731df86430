package node

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/fleet"
	"github.com/soukhq/souk/internal/strangers"
	"github.com/soukhq/souk/mesh/names"
	"github.com/soukhq/souk/proxy"
	"github.com/soukhq/souk/runtime/hostnet"
	"github.com/soukhq/souk/runtime/hostnet/netplan"
	"github.com/soukhq/souk/store/journal"
)

// entry is the proxy's entry for this host's containers to apps and groups that no machine's own address leads to:
// sleeping ones, and IPv4 listeners on other hosts. From its first DNS query on each has an address of hostnet.Entries,
// and the matching one of hostnet.Entries6. The addresses are valid on this host only, and do not change: some clients
// resolve a name only once.
type entry struct {
	proxy     *proxy.Proxy
	fleet     *fleet.Fleet
	addresses *netplan.Addresses
	rules     *hostnet.Entry
	lns       []net.Listener // by IPv4 and by IPv6
	file      string
	log       *slog.Logger
	begun     time.Time
	owners    hostnet.Owners
	few       *slog.Logger // rate-limited log for events that containers can cause

	mu     sync.Mutex
	byName map[entryName]*entered
	byAddr map[netip.Addr]*entered
	open   []netip.AddrPort // as last written to the rules
	failed string           // why the rules could not be written; "": they were
	askers map[netip.Addr]asker
}

type entryName struct{ App, Group string }

// entered is an app or group with an entry address.
type entered struct {
	entryName
	At    netip.Addr `json:"at"`
	Ports []uint16   `json:"ports"` // open ports at At
	used  time.Time  // when its name was last asked for
}

// asker is a machine of this host.
type asker struct{ app, id string }

// Bounds of an entry.
const (
	maxEntered = 4096 // names with an address; beyond it the least recently queried one loses it
	maxAskers  = 65536
	entryPace  = 250 * time.Millisecond // how often the open ports are checked
	// Ports that were open stay open for this long after a start, since not all members have reported yet.
	entryGrace = 10 * time.Second
	entryPort  = 4256
	entryFile  = "entries.json" // in the process's directory
)

// openEntry makes the entry, if containers have a network and there is a proxy.
func (n *Node) openEntry() error {
	if n.network == nil || n.network.Lacks != nil || n.proxy == nil {
		return nil
	}
	listen := n.o.Proxy.Inside
	if listen == nil {
		listen = func(addr string) (net.Listener, error) { return net.Listen("tcp", addr) }
	}
	at := netip.AddrPortFrom(insideAddress(n.network.Realm), entryPort)
	ln, err := listen(at.String())
	if err != nil {
		n.o.Log.Warn("another port is taken for connections of containers to what sleeps or is elsewhere", "instead of",
			at, "err", err)
		if ln, err = listen(netip.AddrPortFrom(at.Addr(), 0).String()); err != nil {
			return fault.Wrap(err, fault.Unavailable, fault.CodeListen,
				"%s cannot be listened on for connections of containers", at.Addr())
		}
	}
	lns := []net.Listener{ln}
	at6, err := hostnet.HoldEntry6(n.network.Realm)
	if err == nil {
		ln, err = listen(netip.AddrPortFrom(at6, entryPort).String())
	}
	if err == nil {
		lns = append(lns, ln)
	} else {
		n.o.Log.Warn("containers reach what sleeps or is elsewhere by IPv4 alone", "err", err)
	}
	for _, ln := range lns {
		n.closers = append(n.closers, func() error { ln.Close(); return nil })
	}
	ats, err := addressesOf(lns)
	if err != nil {
		return err
	}
	e := &entry{proxy: n.proxy, fleet: n.fleet, addresses: n.network.Addresses, lns: lns, file: n.pathBelow(entryFile),
		log: n.o.Log, few: strangers.Few(n.o.Log, 5, 10*time.Second), begun: time.Now(),
		byName: map[entryName]*entered{}, byAddr: map[netip.Addr]*entered{},
		askers: map[netip.Addr]asker{},
		rules:  hostnet.NewEntry(&netplan.Network{Cluster: n.network.Addresses.Of, Realm: n.network.Realm}, ats...)}
	e.readEntries()
	n.entry = e
	n.closers = append(n.closers, e.rules.Release)
	return nil
}

func addressesOf(lns []net.Listener) (out []netip.AddrPort, err error) {
	for _, ln := range lns {
		at, err := netip.ParseAddrPort(ln.Addr().String())
		if err != nil {
			return nil, fault.Wrap(err, fault.Internal, fault.CodeListen, "%s is not an IP address", ln.Addr())
		}
		out = append(out, at)
	}
	return out, nil
}

// entryOf returns the entry of an app or group, for DNS.
func (n *Node) entryOf(app, group string) (at names.Entry, known bool) {
	if n.entry == nil {
		return at, false
	}
	return n.entry.at(app, group)
}

// keepsOut is entry.keepsOut, for DNS.
func (n *Node) keepsOut(app, group string, asker netip.Addr) bool {
	return n.entry != nil && n.entry.keepsOut(app, group, asker)
}

// keepsOut reports whether no machine of an app or group lets in the container with an IPv4 address. If the app has no
// service at the entry, which would log the refusal, keepsOut logs it.
func (e *entry) keepsOut(app, group string, asker netip.Addr) bool {
	who, known := e.askerAt(e.owners.Of(asker.Unmap()))
	if !known || who.app == app {
		return false
	}
	x := e.proxy.Admission(app, group, 0, who.app)
	if !x.Any || x.Lets {
		return false
	}
	if !x.Will && len(e.proxy.PortsInside(app, group)) == 0 {
		e.few.Warn("a machine asks for the name of an app that does not let it in", "from", who.app, "machine", who.id,
			"to", app, "why", fault.As(proxy.NotLetIn(app, who.app)).Text)
	}
	return true
}

// readEntries loads the addresses that an earlier process has given out. An unreadable file is ignored: a client that
// keeps an old address must then resolve the name again.
func (e *entry) readEntries() {
	raw, err := os.ReadFile(e.file)
	var list []*entered
	if err == nil {
		err = json.Unmarshal(raw, &list)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		e.log.Warn("which addresses apps have for containers of this host is forgotten", "file", e.file, "err", err)
		return
	}
	for _, x := range list[:min(len(list), maxEntered)] {
		if x != nil && hostnet.Entries.Contains(x.At) && e.byAddr[x.At] == nil && e.byName[x.entryName] == nil {
			x.used = e.begun
			e.byName[x.entryName], e.byAddr[x.At] = x, x
		}
	}
}

// writeEntries saves the addresses for the next process. The caller holds the lock.
func (e *entry) writeEntries() {
	list := make([]*entered, 0, len(e.byName))
	for _, x := range e.byName {
		list = append(list, x)
	}
	slices.SortFunc(list, func(a, b *entered) int { return a.At.Compare(b.At) })
	raw, err := json.Marshal(list)
	if err == nil {
		err = journal.WriteWhole(e.file, raw, 0o600)
	}
	if err != nil {
		e.log.Warn("which addresses apps have for containers of this host cannot be kept", "file", e.file, "err", err)
	}
}

// at returns the entry address of an app or group, with its ports open.
func (e *entry) at(app, group string) (at names.Entry, known bool) {
	ports := e.proxy.PortsInside(app, group)
	if len(ports) == 0 {
		return at, false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	x := e.byName[entryName{app, group}]
	if x == nil {
		x = e.assignAddress(entryName{app, group})
	}
	x.used = time.Now()
	if !slices.Equal(ports, x.Ports) {
		x.Ports = ports
		e.writeEntries()
		e.applyPorts(false)
	} else if e.failed != "" {
		e.applyPorts(false)
	}
	if at.Ports = ports; e.failed == "" {
		if at.V4 = x.At; len(e.lns) > 1 {
			at.V6 = hostnet.Six(x.At)
		}
	}
	return at, true
}

// assignAddress gives an app or a group an address: the one that follows from its name, or the next free one. The
// caller holds the lock.
func (e *entry) assignAddress(name entryName) *entered {
	if len(e.byName) >= maxEntered {
		var oldest *entered
		for _, x := range e.byName {
			if oldest == nil || x.used.Before(oldest.used) {
				oldest = x
			}
		}
		e.forgetEntry(oldest)
	}
	sum := sha256.Sum256([]byte(name.App + "\x00" + name.Group))
	base := hostnet.Entries.Addr().As4()
	size := uint32(1) << (32 - hostnet.Entries.Bits())
	for i := binary.BigEndian.Uint32(sum[:]); ; i++ {
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], binary.BigEndian.Uint32(base[:])+i%size)
		at := netip.AddrFrom4(b)
		if b[3] == 0 || b[3] == 255 || e.byAddr[at] != nil { // these look like network and broadcast addresses
			continue
		}
		x := &entered{entryName: name, At: at}
		e.byName[name], e.byAddr[at] = x, x
		return x
	}
}

func (e *entry) forgetEntry(x *entered) {
	delete(e.byName, x.entryName)
	delete(e.byAddr, x.At)
}

// applyPorts opens the ports of all entered apps and groups. The caller holds the lock.
func (e *entry) applyPorts(anew bool) {
	e.open = e.open[:0]
	for _, x := range e.byName {
		for _, port := range x.Ports {
			e.open = append(e.open, netip.AddrPortFrom(x.At, port))
		}
	}
	why := ""
	if err := e.rules.Apply(e.open, anew); err != nil {
		if why = err.Error(); why != e.failed {
			e.log.Warn("containers do not reach what sleeps or is elsewhere", "err", err)
		}
	}
	e.failed = why
}

// serveConns serves connections, and keeps the services' ports open, until ctx ends.
func (e *entry) serveConns(ctx context.Context) error {
	served := make(chan error, 1)
	go func() { served <- e.proxy.ServeInside(ctx, e.targetOf, e.lns...) }()
	mend := time.NewTicker(mendEvery)
	defer mend.Stop()
	removed := watchRemovals(ctx, e.rules.Watch)
	for anew := true; ; {
		s := e.fleet.Snapshot()
		e.followServices(anew)
		select {
		case err := <-served:
			e.removeRules()
			return err
		case <-s.Past():
			anew = false
		case <-mend.C:
			anew = true
		case <-removed:
			anew = true
		}
		select {
		case <-ctx.Done():
		case <-time.After(entryPace):
		}
	}
}

// followServices opens and closes ports as the services have them now.
func (e *entry) followServices(anew bool) {
	e.mu.Lock()
	list := make([]*entered, 0, len(e.byName))
	for _, x := range e.byName {
		list = append(list, x)
	}
	e.mu.Unlock()
	if len(list) == 0 {
		return
	}
	ports := make(map[entryName][]uint16, len(list))
	for _, x := range list {
		ports[x.entryName] = e.proxy.PortsInside(x.App, x.Group)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	changed := false
	for name, now := range ports {
		x := e.byName[name]
		if x == nil || slices.Equal(now, x.Ports) || len(now) < len(x.Ports) && time.Since(e.begun) < entryGrace {
			continue
		}
		x.Ports, changed = now, true
	}
	if changed {
		e.writeEntries()
	}
	if changed || anew || e.failed != "" {
		e.applyPorts(anew)
	}
}

// removeRules removes the rules if no container is left that could use them.
func (e *entry) removeRules() {
	s := e.fleet.Snapshot()
	for w := range s.Workers() {
		if !w.Own {
			continue
		}
		for x := range s.MachinesAt(w.ID, "") {
			if x.Apart {
				return
			}
		}
	}
	if err := e.rules.Remove(); err != nil {
		e.log.Warn("the rules of the entry of containers could not be removed", "err", err)
	}
}

// targetOf returns a connection's target and its machine: by the original destination, which the kernel knows, and by
// the source address, which containers cannot forge.
func (e *entry) targetOf(c net.Conn) (to proxy.Inside, err error) {
	tcp, is := c.(*net.TCPConn)
	if !is {
		return to, fault.New(fault.Internal, codeEntry, "the connection is not a TCP connection")
	}
	at, err := hostnet.Asked(tcp)
	if err != nil {
		return to, fault.Wrap(err, fault.Invalid, codeEntry, "the connection was not made to an address of an app")
	}
	from, err := netip.ParseAddrPort(c.RemoteAddr().String())
	if err != nil {
		return to, fault.Wrap(err, fault.Internal, codeEntry, "%s is not an IP address", c.RemoteAddr())
	}
	own := from.Addr().Unmap()
	if own.Is4() {
		own = e.owners.Of(own)
	}
	who, known := e.askerAt(own)
	if !known {
		return to, fault.New(fault.Denied, codeEntry, "%s is not the address of a machine of this host", from.Addr())
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	x := e.byAddr[hostnet.Four(at.Addr())]
	if x == nil {
		return to, fault.New(fault.NotFound, codeEntry, "no app has the address %s here any more", at.Addr())
	}
	return proxy.Inside{App: x.App, Group: x.Group, Port: int(at.Port()), From: who.app, Machine: who.id,
		Client: from.Addr().Unmap()}, nil
}

// askerAt returns the machine of this host that has an address, which follows from its app and its id.
func (e *entry) askerAt(own netip.Addr) (who asker, known bool) {
	if !own.IsValid() {
		return who, false
	}
	e.mu.Lock()
	who, known = e.askers[own]
	e.mu.Unlock()
	if known {
		return who, true
	}
	s, all := e.fleet.Snapshot(), map[netip.Addr]asker{}
	var ids []cluster.WorkerID
	for w := range s.Workers() {
		if w.Own {
			ids = append(ids, w.ID)
		}
	}
	for x := range s.AllMachines() {
		if x.Apart && slices.Contains(ids, x.Worker) && len(all) < maxAskers {
			all[e.addresses.Machine(x.App, x.ID)] = asker{x.App, x.ID}
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.askers = all
	who, known = all[own]
	return who, known
}
