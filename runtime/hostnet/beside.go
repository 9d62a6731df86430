package hostnet

import (
	"net/netip"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Beside returns the IPv4 address of this host's container with an IPv6 address; invalid: there is no such container.
func Beside(v6 netip.Addr) netip.Addr { return addressPairs()[v6] }

// addressPairs returns the IPv4 addresses of this host's containers, by their IPv6 addresses.
func addressPairs() map[netip.Addr]netip.Addr {
	all := byLink()
	out := make(map[netip.Addr]netip.Addr, len(all))
	for _, at := range all {
		out[at.V6] = at.V4
	}
	return out
}

// byLink returns the addresses of this host's containers, by their links. Only this host knows the IPv4 addresses,
// which it assigns. They are read from the kernel's neighbour table of each link: only souk makes permanent entries
// with peerMAC.
func byLink() map[int]Addresses {
	four, err := neighboursAt(0, unix.AF_INET)
	if err != nil {
		return nil
	}
	six, err := neighboursAt(0, unix.AF_INET6)
	if err != nil {
		return nil
	}
	all := make(map[int]netip.Addr, len(four))
	for _, n := range four {
		if a, ok := netip.AddrFromSlice(n.IP); ok && isPeer(n) && Private.Contains(a.Unmap()) {
			all[n.LinkIndex] = a.Unmap()
		}
	}
	out := make(map[int]Addresses, len(all))
	for _, n := range six {
		if a, ok := netip.AddrFromSlice(n.IP); ok && isPeer(n) && all[n.LinkIndex].IsValid() {
			out[n.LinkIndex] = Addresses{V4: all[n.LinkIndex], V6: a}
		}
	}
	return out
}

func isPeer(n netlink.Neigh) bool {
	return n.State == netlink.NUD_PERMANENT && n.HardwareAddr.String() == peerMAC.String()
}

// Neighbours is Beside with a short cache, for frequent calls.
type Neighbours struct {
	mu    sync.Mutex
	when  time.Time
	pairs map[netip.Addr]netip.Addr
}

// How long results are cached: for a container in the cache, and for one that is not.
const (
	keepFound  = time.Second
	keepAbsent = 50 * time.Millisecond
)

// Beside returns the IPv4 address of this host's container with an IPv6 address; invalid: there is no such container.
func (n *Neighbours) Beside(v6 netip.Addr) netip.Addr {
	n.mu.Lock()
	defer n.mu.Unlock()
	v4, is := n.pairs[v6]
	if old := time.Since(n.when); old >= keepFound || !is && old >= keepAbsent {
		n.pairs, n.when = addressPairs(), time.Now()
		v4 = n.pairs[v6]
	}
	return v4
}

// Owners finds the container that has an IPv4 address now. Its cache is by link, and the kernel never reuses a link's
// number, so an address that has moved is never attributed to its previous container.
type Owners struct {
	mu    sync.Mutex
	links map[int]Addresses
}

// Of returns the IPv6 address of this host's container with an IPv4 address; invalid: there is no such container.
func (o *Owners) Of(v4 netip.Addr) (none netip.Addr) {
	if !v4.Is4() {
		return none
	}
	rs, err := netlink.RouteGet(v4.AsSlice())
	if err != nil || len(rs) == 0 {
		return none
	}
	link := rs[0].LinkIndex
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.links[link].V4 != v4 {
		o.links = byLink()
	}
	if at := o.links[link]; at.V4 == v4 {
		return at.V6
	}
	return none
}
