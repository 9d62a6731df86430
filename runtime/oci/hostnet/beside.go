package hostnet

import (
	"net/netip"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Beside returns the IPv4 address of the container of this host that has an IPv6 address; not valid: there is none.
func Beside(v6 netip.Addr) netip.Addr { return pairs()[v6] }

// pairs are the IPv4 addresses of this host's containers by their IPv6 ones. The host gives the first, and alone knows
// them. The kernel is asked who is at the other end of each link: nobody but souk says so with this hardware address.
func pairs() map[netip.Addr]netip.Addr {
	four, err := netlink.NeighList(0, unix.AF_INET)
	if err != nil {
		return nil
	}
	six, err := netlink.NeighList(0, unix.AF_INET6)
	if err != nil {
		return nil
	}
	byLink := make(map[int]netip.Addr, len(four))
	for _, n := range four {
		if a, ok := netip.AddrFromSlice(n.IP); ok && isPeer(n) && Private.Contains(a.Unmap()) {
			byLink[n.LinkIndex] = a.Unmap()
		}
	}
	out := make(map[netip.Addr]netip.Addr, len(byLink))
	for _, n := range six {
		if a, ok := netip.AddrFromSlice(n.IP); ok && isPeer(n) && byLink[n.LinkIndex].IsValid() {
			out[a] = byLink[n.LinkIndex]
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
		n.pairs, n.when = pairs(), time.Now()
		v4 = n.pairs[v6]
	}
	return v4
}
