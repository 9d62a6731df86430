package hostnet

import (
	"errors"
	"net/netip"
	"strings"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
)

// Sweep removes ports that lead to containers that are gone.
func (n *Net) Sweep() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return sweepPorts(n.rulesTable())
}

// sweepOthers sweeps the tables of the host's other workers: a removed worker no longer sweeps its own.
func (n *Net) sweepOthers() error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	ts, err := c.ListTablesOfFamily(nftables.TableFamilyINet)
	for _, t := range ts {
		if t.Name != n.tree && strings.HasPrefix(t.Name, "souk-") {
			err = errors.Join(err, sweepPorts(t))
		}
	}
	return err
}

// sweepTries bounds how often a table is swept while others sweep it too. Each failed try means that another process
// has removed something.
const sweepTries = 10

// sweepPorts removes ports that lead to containers that are gone from a table. Other workers of the host do so too: if
// one was faster, the kernel refuses the whole transaction, and sweepPorts looks again at what is left.
func sweepPorts(t *nftables.Table) (err error) {
	for range sweepTries {
		var c *nftables.Conn
		if c, err = nftables.New(); err != nil {
			return err
		}
		if err = sweepOnce(c, t); !isGone(err) {
			return err
		}
	}
	return err
}

func sweepOnce(c *nftables.Conn, t *nftables.Table) error {
	var there map[netip.Addr]bool
	for _, m := range portMaps(t) {
		es, err := readElements(c, m.Set)
		if err != nil {
			return err
		}
		if len(es) > 0 && there == nil {
			if there, err = containerAddresses(t.Name); err != nil {
				return err
			}
		}
		var gone []nftables.SetElement
		for _, e := range es {
			if a, ok := netip.AddrFromSlice(e.Val[:max(0, len(e.Val)-4)]); ok && !there[a] {
				gone = append(gone, e)
			}
		}
		if len(gone) > 0 {
			if err := c.SetDeleteElements(m.Set, gone); err != nil {
				return err
			}
		}
	}
	four := fourSetsOf(t)
	if err := four.dropElements(c, func(a netip.Addr) bool {
		if there == nil {
			if all, err := containerAddresses(t.Name); err == nil {
				there = all
			}
		}
		return there != nil && !there[a]
	}); err != nil {
		return err
	}
	return c.Flush()
}

// containerAddresses returns the addresses routed to containers of the worker whose table has this name.
func containerAddresses(tree string) (map[netip.Addr]bool, error) {
	ours := map[int]bool{}
	ls, err := allLinks()
	if err != nil {
		return nil, err
	}
	for _, l := range ls {
		ours[l.Attrs().Index] = l.Attrs().Alias == tree
	}
	rs, err := listRoutes(netlink.FAMILY_ALL, new(netlink.Route), 0)
	if err != nil {
		return nil, err
	}
	out := map[netip.Addr]bool{}
	for _, r := range rs {
		if r.Dst != nil && ours[r.LinkIndex] {
			if a, ok := netip.AddrFromSlice(r.Dst.IP); ok {
				out[a.Unmap()] = true
			}
		}
	}
	return out, nil
}
