package hostnet

import (
	"errors"

	"github.com/vishvananda/netlink"
)

// listTries bounds how often a kernel list that changes while it is read is read again.
const listTries = 20

// listWhole returns what list returns, and reads again if the kernel reports a change during the read, which may make
// the list incomplete. On a busy host that is no error.
func listWhole[T any](list func() ([]T, error)) (out []T, err error) {
	for range listTries {
		if out, err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			return out, err
		}
	}
	return out, err
}

func allLinks() ([]netlink.Link, error) { return listWhole(netlink.LinkList) }

func neighboursAt(link, family int) ([]netlink.Neigh, error) {
	return listWhole(func() ([]netlink.Neigh, error) { return netlink.NeighList(link, family) })
}

func listRoutes(family int, like *netlink.Route, mask uint64) ([]netlink.Route, error) {
	return listWhole(func() ([]netlink.Route, error) { return netlink.RouteListFiltered(family, like, mask) })
}

func addressesOf(l netlink.Link) ([]netlink.Addr, error) {
	return listWhole(func() ([]netlink.Addr, error) { return netlink.AddrList(l, netlink.FAMILY_ALL) })
}
