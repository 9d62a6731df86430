package hostnet

import (
	"net/netip"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Beside returns the IPv4 address of the container of this host that has an IPv6 address; not valid: there is none.
func Beside(v6 netip.Addr) netip.Addr { return addressPairs()[v6] }

// addressPairs are the IPv4 addresses of this host's containers by their IPv6 ones.
func addressPairs() map[netip.Addr]netip.Addr {
	all := byLink()
	out := make(map[netip.Addr]netip.Addr, len(all))
	for _, at := range all {
		out[at.V6] = at.V4
	}
	return out
}

// byLink are the addresses of this host's containers by their links. The host gives the IPv4 ones, and alone knows them.
// The kernel is asked who is at the other end of each link: nobody but souk says so with this hardware address.
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

// Neighbours tells the same of many containers, again and again: what the kernel says is kept for a moment.
type Neighbours struct {
	mu    sync.Mutex
	when  time.Time
	pairs map[netip.Addr]netip.Addr
}

// For how long what the kernel says is kept: of a container that is in it, and of one that is not.
const (
	keepFound  = time.Second
	keepAbsent = 50 * time.Millisecond
)

// Beside returns the IPv4 address of the container of this host that has an IPv6 address; not valid: there is none.
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

// Owners tells which container has an IPv4 address now. What is kept is by links, whose numbers the kernel gives once,
// so an address that was another container's a moment ago is never taken for that one's.
type Owners struct {
	mu    sync.Mutex
	links map[int]Addresses
}

// Of returns the IPv6 address of the container of this host that has an IPv4 address; not valid: there is none.
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
