// Package hostnet gives containers a network: a link of their own to the host, addresses, a way out, and rules.
//
// Each container has a pair of devices: one is in its network namespace from the first moment on, and with that
// namespace both end, with their addresses, routes and neighbours. So there is nothing of one that could be left behind
// when a process is killed. There is no bridge: the host routes, so that no container can speak for another, nor
// listen.
//
// Rules of the host are for all of a worker's containers alike and name no one. Who may connect to a container is said
// inside, where its rules end with it: an address tells the app, and the host lets nobody send with another's. What
// changes on the host is only which ports are published; what is there of containers that are gone is swept.
package hostnet

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime/hostnet/netplan"
)

// Private is where containers have IPv4 addresses: for their way out only. They are no address of anything on the
// internet (RFC 2544), nor of a network that a host is likely to be in.
var Private = netip.MustParsePrefix("198.18.0.0/15")

// Entries are the last of these addresses, which no container has: see Entry.
var Entries = netip.MustParsePrefix("198.19.192.0/18")

// Net is the network of one worker's containers. All methods are for the network namespace that their thread is in.
type Net struct {
	tree string

	mu   sync.Mutex
	laid *rules          // as of this process or, of containers that it took over, of an earlier one; nil: not yet
	ours bool            // laid by this process, and so as this build lays them
	kept map[string]kept // containers by name
	apps numbers         // see fourSets
}

// rules are what the host's are made of.
type rules struct {
	group   uint32
	tunnel  uint32 // the group of that to other hosts, which there need not be
	cluster netip.Prefix
	dns     netip.AddrPort // zero: none
	narrow  netip.AddrPort // zero: none
}

func rulesOf(p *netplan.Network) rules {
	r := rules{group: groupNumber(p), tunnel: tunnelGroup(p), cluster: p.Cluster}
	if p.DNS != nil {
		r.dns = *p.DNS
	}
	if p.Narrow != nil {
		r.narrow = *p.Narrow
	}
	return r
}

// New is the network of a worker; its table of rules has that name. It does nothing yet.
func New(tree string) *Net { return &Net{tree: tree, apps: numbers{}} }

// groupNumber is the number of the group that the host's ends of links are in: all of those whose containers may reach
// each other, of however many workers.
func groupNumber(p *netplan.Network) uint32 { return groupOf(p.Cluster.String() + "\x00" + p.Realm) }

// tunnelGroup is the number of the group that the tunnel to the other hosts of these containers is in.
func tunnelGroup(p *netplan.Network) uint32 {
	return groupOf("tunnel\x00" + p.Cluster.String() + "\x00" + p.Realm)
}

func groupOf(name string) uint32 {
	sum := sha256.Sum256([]byte(name))
	return binary.BigEndian.Uint32(sum[:])>>1 | 1 // not 0, which all others are in
}

func (n *Net) rulesTable() *nftables.Table {
	return &nftables.Table{Name: n.tree, Family: nftables.TableFamilyINet}
}

// deviceName is the name of the host's end of a container's link.
func (n *Net) deviceName(container string) string {
	sum := sha256.Sum256([]byte(n.tree + "\x00" + container))
	return devices + strings.ToLower(base32.HexEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:8]))
}

// Addresses of a container.
type Addresses struct{ V4, V6 netip.Addr }

// Attach gives the container whose first process is pid, which has not executed its program yet, its network. What is
// made of it when it fails ends with the container.
func (n *Net) Attach(pid int, container string, p *netplan.Network) (Addresses, error) {
	if err := p.Check(); err != nil {
		return Addresses{}, err
	}
	at, err := n.attachContainer(pid, container, p)
	if err != nil && fault.CodeOf(err) == "" {
		return at, fault.Wrap(err, fault.Precondition, fault.CodeNetwork,
			"container %s cannot be given a network: this takes veth, nftables with NAT, and IPv6 in the host's kernel",
			container)
	}
	return at, err
}

func (n *Net) attachContainer(pid int, container string, p *netplan.Network) (at Addresses, err error) {
	if err := n.layHostRules(p); err != nil {
		return at, err
	}
	inside, err := netns.GetFromPid(pid)
	if err != nil {
		return at, err
	}
	defer inside.Close()
	return n.attachTo(inside, container, p)
}

// attachTo is attach for a namespace, with the host's rules laid.
func (n *Net) attachTo(inside netns.NsHandle, container string, p *netplan.Network) (at Addresses, err error) {
	l := &link{name: n.deviceName(container), of: n.tree, group: groupNumber(p), inside: inside}
	if err := l.makePair(); err != nil {
		return at, err
	}
	defer l.removeLink()
	if err := l.setUpLoopback(); err != nil {
		return at, err
	}
	at.V6 = p.Address
	if at.V4, err = l.assignAddress(container, at.V6); err != nil {
		return at, err
	}
	c, err := nftables.New(nftables.WithNetNSFd(int(inside)))
	if err != nil {
		return at, err
	}
	t := c.AddTable(&nftables.Table{Name: "souk", Family: nftables.TableFamilyINet})
	layChains(c, t, ofContainer(p))
	if err := c.Flush(); err != nil {
		return at, fmt.Errorf("the container's own rules: %w", err)
	}
	if err := l.bringUp(at); err != nil {
		return at, err
	}
	return at, n.enterContainer(container, keptOf(p, at))
}

// layHostRules makes the host's rules, when they are not there or what they are made of has changed.
func (n *Net) layHostRules(p *netplan.Network) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	want := rulesOf(p)
	if n.ours && *n.laid == want && len(n.apps) < maxNumbers {
		if is, err := n.hasChains(want); is || err != nil { // Guard looks closer, as soon as a rule goes
			return err
		}
	}
	return n.layAll(want)
}

// enableForwarding has the host pass packets on. A host that learns its own way by IPv6 router advertisements goes on
// doing so.
func enableForwarding() error {
	if err := writeSetting(forward4, "1"); err != nil {
		return err
	}
	if isSetTo(forward6, "1") {
		return nil
	}
	const conf = "/proc/sys/net/ipv6/conf/"
	es, err := os.ReadDir(conf)
	if err != nil {
		return err
	}
	for _, e := range es {
		if accept := conf + e.Name() + "/accept_ra"; isSetTo(accept, "1") && e.Name() != "all" {
			if err := writeSetting(accept, "2"); err != nil && !errors.Is(err, os.ErrNotExist) { // it may go meanwhile
				return err
			}
		}
	}
	return writeSetting(forward6, "1")
}

// What says whether the host passes packets on.
const (
	forward4 = "/proc/sys/net/ipv4/ip_forward"
	forward6 = "/proc/sys/net/ipv6/conf/all/forwarding"
)

func isSetTo(file, want string) bool {
	b, err := os.ReadFile(file)
	return err == nil && strings.TrimSpace(string(b)) == want
}

// writeSetting writes a setting of the kernel that is another.
func writeSetting(file, to string) error {
	if isSetTo(file, to) {
		return nil
	}
	return os.WriteFile(file, []byte(to), 0o644)
}

// enterContainer says who may connect to a container by IPv4, and has ports of the host lead to it. It is kept from
// then on.
func (n *Net) enterContainer(container string, k kept) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	ports, at := k.ports, k.at
	if len(ports) > 0 {
		if err := errors.Join(sweepPorts(n.rulesTable()),
			n.sweepOthers()); err != nil { // what led to who is gone is free
			return err
		}
	}
	c, err := nftables.New()
	if err != nil {
		return err
	}
	if err := fourSetsOf(n.rulesTable()).enterContainer(c, k, n.apps); err != nil {
		return err
	}
	if len(ports) == 0 {
		if err := c.Flush(); err != nil {
			return err
		}
		n.keepContainer(container, k)
		return nil
	}
	maps := portMaps(n.rulesTable())
	taken, err := portsInUse(c, ports, at.V6)
	if err != nil {
		return err
	}
	for p, why := range taken {
		return fault.New(fault.Precondition, fault.CodePortInUse,
			"port %d is not free: there is %s; publish another, or run it elsewhere", p.Host, why)
	}
	for _, m := range maps {
		if err := leadPorts(c, m.Set, elementsFor(ports, at, m)); err != nil {
			return err
		}
	}
	if err := c.Flush(); err != nil {
		return err
	}
	n.keepContainer(container, k)
	forgetFlows(ports)
	return nil
}

// forgetFlows has the kernel look anew where packets to UDP ports of the host go. Else a client that keeps its own port
// is led where its first packet was, for as long as it sends: to a container that is gone, or to the host, of before
// the port was published. Where the kernel does not do that, a client is led right with another port.
func forgetFlows(ports []netplan.Port) {
	for _, p := range ports {
		if !p.UDP {
			continue
		}
		f := new(netlink.ConntrackFilter)
		if errors.Join(f.AddProtocol(unix.IPPROTO_UDP), f.AddPort(netlink.ConntrackOrigDstPort, p.Host)) != nil {
			continue // it is asked what it knows
		}
		for _, family := range []netlink.InetFamily{unix.AF_INET, unix.AF_INET6} {
			_, _ = netlink.ConntrackDeleteFilters(netlink.ConntrackTable, family, f)
		}
	}
}

// elementsFor are what leads to a container from its ports, in one of the maps.
func elementsFor(ports []netplan.Port, at Addresses, m portMap) (es []nftables.SetElement) {
	to := at.V6
	if !m.v6 {
		to = at.V4
	}
	for _, p := range ports {
		if narrow := p.Address.IsValid(); narrow == m.narrow && (!narrow || m.v6 || p.Address.Is4()) {
			es = append(es, portElement(p, to))
		}
	}
	return es
}

// leadPorts enters elements into a map, in the place of those that lead elsewhere: to the machine's container before,
// which is on its way out.
func leadPorts(c *nftables.Conn, m *nftables.Set, es []nftables.SetElement) error {
	if len(es) == 0 {
		return nil
	}
	led, err := readElements(c, m)
	var old []nftables.SetElement
	for _, e := range es {
		if o, is := led[string(e.Key)]; is {
			old = append(old, o)
		}
	}
	if len(old) > 0 {
		err = errors.Join(err, c.SetDeleteElements(m, old))
	}
	return errors.Join(err, c.SetAddElements(m, es))
}

// PortsInUse says, of those of some ports of the host that cannot be published, what stands against it: a program of the
// host that listens there, or another container than the one that has the IPv6 address, to which the port leads.
func PortsInUse(ports []netplan.Port, of netip.Addr) (map[netplan.Port]string, error) {
	if len(ports) == 0 {
		return nil, nil
	}
	c, err := nftables.New()
	if err != nil {
		return nil, err
	}
	return portsInUse(c, ports, of)
}

func portsInUse(c *nftables.Conn, ports []netplan.Port, of netip.Addr) (map[netplan.Port]string, error) {
	out := map[netplan.Port]string{}
	for _, p := range ports {
		why, err := whyUnusable(p)
		if err != nil {
			return nil, err
		}
		if why != "" {
			out[p] = why
		}
	}
	tables, err := c.ListTablesOfFamily(nftables.TableFamilyINet)
	if err != nil {
		return nil, err
	}
	for _, t := range tables {
		led, err := ledBy(c, t)
		if err != nil {
			continue // it is not of souk's making
		}
		for _, p := range ports {
			there, err := leadsElsewhere(led, p, of, t.Name)
			if err != nil {
				return nil, err
			}
			if there {
				out[p] = "another machine that publishes it"
			}
		}
	}
	return out, nil
}

// ledBy are the ports of the host that the rules of a table lead to containers, by IPv6 address of the container.
func ledBy(c *nftables.Conn, t *nftables.Table) (map[netplan.Port]netip.Addr, error) {
	out := map[netplan.Port]netip.Addr{}
	for _, m := range portMaps(t) {
		if !m.v6 {
			continue // it has no other ports
		}
		es, err := readElements(c, m.Set)
		if err != nil {
			return nil, err
		}
		for _, e := range es {
			to, _ := netip.AddrFromSlice(e.Val[:max(0, len(e.Val)-4)])
			out[portOf(e)] = to
		}
	}
	return out, nil
}

// leadsElsewhere reports whether a port, or one that overlaps it, leads to a container of the table's worker that has
// another IPv6 address, and is there.
func leadsElsewhere(led map[netplan.Port]netip.Addr, p netplan.Port, of netip.Addr, tree string) (bool, error) {
	for other, to := range led {
		if to == of || !p.Overlaps(other) {
			continue
		}
		if there, err := containerAddresses(tree); err != nil || there[to] { // else what led there is gone
			return true, err
		}
	}
	return false, nil
}

// whyUnusable says what stands against publishing a port of the host; "": nothing, as far as programs of the host go.
func whyUnusable(p netplan.Port) (why string, err error) {
	var at net.IP // nil: all addresses
	if p.Address.IsValid() {
		at = p.Address.AsSlice()
	}
	var ln interface{ Close() error }
	if p.UDP {
		ln, err = net.ListenUDP("udp", &net.UDPAddr{IP: at, Port: int(p.Host)})
	} else {
		ln, err = net.ListenTCP("tcp", &net.TCPAddr{IP: at, Port: int(p.Host)})
	}
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return "a program of the host that listens on it", nil
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Sprintf("no address %s on this host", p.Address), nil
	case err != nil:
		return "", err
	}
	return "", ln.Close()
}

// isGone reports whether an answer of nftables says that what was asked for is not there: somebody has removed it since
// it was looked for. Of the kernel's error the library gives the text alone.
func isGone(err error) bool { return err != nil && strings.HasSuffix(err.Error(), unix.ENOENT.Error()) }

// readElements gives the values of a map by their keys; none of a map that is not there.
func readElements(c *nftables.Conn, m *nftables.Set) (map[string]nftables.SetElement, error) {
	if !hasTable(c, m.Table.Name) { // the error of what is not there does not say so
		return nil, nil
	}
	there, err := c.GetSets(m.Table)
	if isGone(err) {
		return nil, nil
	}
	if err != nil || !slices.ContainsFunc(there, func(s *nftables.Set) bool { return s.Name == m.Name }) {
		return nil, err
	}
	es, err := c.GetSetElements(m)
	if isGone(err) {
		return nil, nil
	}
	out := make(map[string]nftables.SetElement, len(es))
	for _, e := range es {
		out[string(e.Key)] = e
	}
	return out, err
}

// Detach removes what is of a container that has ended: its link, which may be about to go by itself, and its ports.
func (n *Net) Detach(container string) error {
	n.mu.Lock()
	ports := n.kept[container].ports
	delete(n.kept, container)
	n.mu.Unlock()
	l, err := netlink.LinkByName(n.deviceName(container))
	if err == nil {
		err = netlink.LinkDel(l)
	}
	if err != nil && !errors.As(err, new(netlink.LinkNotFoundError)) && !errors.Is(err, unix.ENODEV) {
		return err
	}
	err = n.Sweep()
	forgetFlows(ports)
	return err
}

// Unused names the tables of rules of workers that have no container, among those whose names is says to be a worker's.
func Unused(is func(name string) bool) ([]string, error) {
	c, err := nftables.New()
	if err != nil {
		return nil, err
	}
	ts, err := c.ListTablesOfFamily(nftables.TableFamilyINet)
	if err != nil {
		return nil, err
	}
	ls, err := allLinks()
	if err != nil {
		return nil, err
	}
	has := make(map[string]bool)
	for _, l := range ls {
		has[l.Attrs().Alias] = true
	}
	var out []string
	for _, t := range ts {
		if is(t.Name) && !has[t.Name] {
			out = append(out, t.Name)
		}
	}
	return out, nil
}

// Remove removes the rules, when there are no containers any more. nil when there are none.
func (n *Net) Remove() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.laid, n.ours = nil, false
	return RemoveTable(n.tree)
}

// RemoveTable removes a table of rules; nil when there is none.
func RemoveTable(name string) error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	if !hasTable(c, name) {
		return nil
	}
	c.DelTable(&nftables.Table{Name: name, Family: nftables.TableFamilyINet})
	return c.Flush()
}

func hasTable(c *nftables.Conn, name string) bool {
	_, err := c.ListTableOfFamily(name, nftables.TableFamilyINet)
	return err == nil
}
