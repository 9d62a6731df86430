package hostnet

import (
	"net/netip"

	"github.com/google/nftables"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/osthread"
	"github.com/soukhq/souk/runtime/hostnet/netplan"
)

// Able returns why this host cannot give containers a network, nil if it can. It tries: it sets up a network for an
// empty network namespace, in a namespace that stands in for the host.
func Able() error {
	result := make(chan error)
	osthread.Go(func() { result <- tryNetwork() }) // everything it makes goes with the thread's namespace
	if err := <-result; err != nil {
		return fault.Wrap(err, fault.Precondition, fault.CodeNetwork,
			"containers can be given no network on this host, which "+
				"takes veth, nftables with NAT, and IPv6 in its kernel")
	}
	return nil
}

func tryNetwork() error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return err
	}
	inside, err := netns.Get()
	if err != nil {
		return err
	}
	defer inside.Close()
	p := &netplan.Network{Cluster: netip.MustParsePrefix("fd00::/48"), App: netip.MustParsePrefix("fd00::/96")}
	n := New("souk-able")
	if err := n.layHostRules(p); err != nil {
		return err
	}
	l := &link{name: "skable", of: n.tree, group: groupNumber(p), inside: inside}
	if err := l.makePair(); err != nil {
		return err
	}
	defer l.removeLink()
	c, err := nftables.New()
	if err != nil {
		return err
	}
	layChains(c, c.AddTable(&nftables.Table{Name: "souk", Family: nftables.TableFamilyINet}), ofContainer(p))
	return c.Flush()
}
