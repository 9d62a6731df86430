// Package hostnet gives containers a network: a link to the host, addresses, a route to the outside, and rules.
//
// Each container has a veth pair: one end is in its network namespace from the start, and both ends disappear with that
// namespace, including addresses, routes and neighbours. So a killed process leaves nothing of the pair behind. There
// is no bridge: the host routes, so that no container can spoof another or read its traffic.
//
// The host's rules are the same for all of a worker's containers and name none of them. Who may connect to a container
// is decided inside its namespace, by rules that disappear with it: an IPv6 address identifies the app, and the host
// drops packets with forged sources. Per container, only the published ports and the elements of fourSets change on the
// host; those of containers that are gone are swept.
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

// Private is the range of containers' IPv4 addresses, valid only on their host. Nothing on the internet has these
// addresses (RFC 2544), and few hosts are in a network that uses them.
var Private = netip.MustParsePrefix("198.18.0.0/15")

// Entries is the last part of Private, which no container uses: see Entry.
var Entries = netip.MustParsePrefix("198.19.192.0/18")

// Net is the network of one worker's containers. All methods act on the network namespace of their thread.
type Net struct {
	tree string

	mu   sync.Mutex
	laid *rules          // laid by this process or, for containers taken over, by an earlier one; nil: not yet
	ours bool            // laid by this process, and so in its own version
	kept map[string]kept // containers by name
	apps numbers         // see fourSets
}

// rules are the parameters of the host's rules.
type rules struct {
	group   uint32
	tunnel  uint32 // group of the tunnel to other hosts, which may not exist
	cluster netip.Prefix
	dns     netip.AddrPort // the cluster's DNS server; zero: none
	narrow  netip.AddrPort // that of Closed containers; zero: none
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

// New makes the network of a worker; tree is the name of its table of rules. It does nothing yet.
func New(tree string) *Net { return &Net{tree: tree, apps: numbers{}} }

// groupNumber returns the number of the device group of the host's ends of links: of all containers that may reach each
// other, also those of several workers.
func groupNumber(p *netplan.Network) uint32 { return groupOf(p.Cluster.String() + "\x00" + p.Realm) }

// tunnelGroup returns the number of the device group of the tunnel that connects these containers to other hosts.
func tunnelGroup(p *netplan.Network) uint32 {
	return groupOf("tunnel\x00" + p.Cluster.String() + "\x00" + p.Realm)
}

func groupOf(name string) uint32 {
	sum := sha256.Sum256([]byte(name))
	return binary.BigEndian.Uint32(sum[:])>>1 | 1 // not 0, the default group of all other devices
}

func (n *Net) rulesTable() *nftables.Table {
	return &nftables.Table{Name: n.tree, Family: nftables.TableFamilyINet}
}

// deviceName returns the name of the host's end of a container's link.
func (n *Net) deviceName(container string) string {
	sum := sha256.Sum256([]byte(n.tree + "\x00" + container))
	return devices + strings.ToLower(base32.HexEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:8]))
}

// Addresses are a container's addresses.
type Addresses struct{ V4, V6 netip.Addr }

// Attach sets up the network of the container whose first process is pid, which has not executed its program yet. If it
// fails, what it has made disappears with the container.
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

// attachTo is Attach for a namespace; the host's rules are laid already.
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

// layHostRules lays the host's rules if they are missing or their parameters have changed.
func (n *Net) layHostRules(p *netplan.Network) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	want := rulesOf(p)
	if n.ours && *n.laid == want && len(n.apps) < maxNumbers {
		// a quick check: Guard checks fully whenever a rule is removed
		if is, err := n.hasChains(want); is || err != nil {
			return err
		}
	}
	return n.layAll(want)
}

// enableForwarding makes the host forward packets. A host that learns its own routes by IPv6 router advertisements
// keeps doing so.
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
			// the interface may be gone meanwhile
			if err := writeSetting(accept, "2"); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
		}
	}
	return writeSetting(forward6, "1")
}

// The settings that make the host forward packets.
const (
	forward4 = "/proc/sys/net/ipv4/ip_forward"
	forward6 = "/proc/sys/net/ipv6/conf/all/forwarding"
)

func isSetTo(file, want string) bool {
	b, err := os.ReadFile(file)
	return err == nil && strings.TrimSpace(string(b)) == want
}

// writeSetting sets a kernel setting unless it has the value already.
func writeSetting(file, to string) error {
	if isSetTo(file, to) {
		return nil
	}
	return os.WriteFile(file, []byte(to), 0o644)
}

// enterContainer enters who may connect to a container by IPv4, and makes its published ports lead to it. From then on
// the container is kept.
func (n *Net) enterContainer(container string, k kept) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	ports, at := k.ports, k.at
	if len(ports) > 0 {
		if err := errors.Join(sweepPorts(n.rulesTable()),
			n.sweepOthers()); err != nil { // free the ports of containers that are gone
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

// forgetFlows makes the kernel look up again where packets to UDP ports of the host go. Otherwise a client that keeps
// its own port goes on reaching the target of its first packet: a container that is gone, or the host, from before the
// port was published. If the kernel cannot do that, a client reaches the container from a new port.
func forgetFlows(ports []netplan.Port) {
	for _, p := range ports {
		if !p.UDP {
			continue
		}
		f := new(netlink.ConntrackFilter)
		if errors.Join(f.AddProtocol(unix.IPPROTO_UDP), f.AddPort(netlink.ConntrackOrigDstPort, p.Host)) != nil {
			continue // the filter is valid
		}
		for _, family := range []netlink.InetFamily{unix.AF_INET, unix.AF_INET6} {
			_, _ = netlink.ConntrackDeleteFilters(netlink.ConntrackTable, family, f)
		}
	}
}

// elementsFor returns the elements that make ports lead to a container, in one of the maps.
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

// leadPorts enters elements into a map. It replaces those that lead elsewhere: to the machine's previous container,
// which is about to go.
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

// PortsInUse returns which ports of the host cannot be published, and why: a program of the host listens there, or the
// port leads to a container other than the one with the IPv6 address of.
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
			continue // not a table of souk's
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

// ledBy returns the ports of the host that the rules of a table lead to containers, with the container's IPv6 address.
func ledBy(c *nftables.Conn, t *nftables.Table) (map[netplan.Port]netip.Addr, error) {
	out := map[netplan.Port]netip.Addr{}
	for _, m := range portMaps(t) {
		if !m.v6 {
			continue // it has the same ports as its counterpart for IPv6
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

// leadsElsewhere reports whether a port, or an overlapping one, leads to an existing container of the table's worker
// with another IPv6 address.
func leadsElsewhere(led map[netplan.Port]netip.Addr, p netplan.Port, of netip.Addr, tree string) (bool, error) {
	for other, to := range led {
		if to == of || !p.Overlaps(other) {
			continue
		}
		if there, err := containerAddresses(tree); err != nil || there[to] { // otherwise the target is gone
			return true, err
		}
	}
	return false, nil
}

// whyUnusable returns why a port of the host cannot be published, "" if it can, as far as programs of the host are
// concerned.
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

// isGone reports whether nftables answers that an object does not exist: another program has removed it since it was
// listed. The library keeps only the text of the kernel's error.
func isGone(err error) bool { return err != nil && strings.HasSuffix(err.Error(), unix.ENOENT.Error()) }

// readElements returns the elements of a set by their keys, none if the set does not exist.
func readElements(c *nftables.Conn, m *nftables.Set) (map[string]nftables.SetElement, error) {
	if !hasTable(c, m.Table.Name) { // the library's error does not identify a missing table
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

// Detach removes the link and the ports of a container that has ended. The link may be about to disappear by itself.
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

// Unused returns the tables of rules of workers without containers; is reports whether a name is that of a worker's
// table.
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

// Remove removes the rules when there are no more containers. nil if there are none.
func (n *Net) Remove() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.laid, n.ours = nil, false
	return RemoveTable(n.tree)
}

// RemoveTable removes a table of rules; nil if it does not exist.
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
