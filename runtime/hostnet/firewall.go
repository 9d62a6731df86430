package hostnet

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"

	"github.com/soukhq/souk/fault"
)

// The codes of this package's errors.
const (
	codeAddresses      fault.Code = "addresses"       // no free address was found on this host
	codeFirewall       fault.Code = "firewall"        // the host's firewall drops containers' packets
	CodeNetworkBetween fault.Code = "network_between" // the containers of other workers cannot be reached
)

// A forwarded packet goes through all chains of the forward hook, and any one of them can drop it. So a packet that
// souk's own table accepts may still be dropped by the host's firewall: Docker and ufw set the policy of the chain
// FORWARD to drop. Only a rule in that chain can let the packet pass.

// devices is the prefix of the host's ends of containers' links, in the rules of a firewall.
const devices = "sk"

// place identifies a chain of the host's nftables.
type place struct {
	family       nftables.TableFamily
	table, chain string
}

// String returns the chain's name as nft writes it.
func (p place) String() string {
	return fmt.Sprintf("%s %s %s", families[p.family], p.table, p.chain)
}

var families = map[nftables.TableFamily]string{ //nolint:gochecknoglobals // a constant
	nftables.TableFamilyIPv4: "ip", nftables.TableFamilyIPv6: "ip6", nftables.TableFamilyINet: "inet",
}

// gate is a chain of another program that forwarded packets must pass.
type gate struct {
	place
	legacy bool // from x_tables (iptables-legacy), whose rules are not read
	drops  bool // its policy is drop
	opened bool // a rule of its table lets packets to containers pass
	has    bool // it has rules
	docker bool // its table has Docker's chain for other programs
}

// dockerUser is the chain that Docker evaluates first, reserved for the rules of others.
const dockerUser = "DOCKER-USER"

// String names the gate as an administrator does.
func (g gate) String() string {
	switch {
	case g.legacy && g.family == nftables.TableFamilyIPv6:
		return "chain FORWARD of ip6tables-legacy"
	case g.legacy:
		return "chain FORWARD of iptables-legacy"
	case g.drops:
		return fmt.Sprintf("chain %s of nftables (policy drop)", g.place)
	}
	return fmt.Sprintf("chain %s of nftables", g.place)
}

// remedyCommands returns the commands that let packets of containers pass.
func (g gate) remedyCommands() string {
	chain, tool := g.chain, "iptables"
	if g.docker {
		chain = dockerUser
	}
	if g.family == nftables.TableFamilyIPv6 {
		tool = "ip6tables"
	}
	if g.legacy {
		tool += "-legacy"
	}
	if !g.legacy && (g.family == nftables.TableFamilyINet || g.table != "filter") {
		const one = "nft insert rule %s %s '\"%s*\"' accept"
		return fmt.Sprintf(one+"; "+one, g.place, "iifname", devices, g.place, "oifname", devices)
	}
	return fmt.Sprintf("%s -I %s -i %s+ -j ACCEPT; %[1]s -I %[2]s -o %[3]s+ -j ACCEPT", tool, chain, devices)
}

// findGates finds the gates of this host that are not souk's.
func findGates() ([]gate, error) {
	c, err := nftables.New()
	if err != nil {
		return nil, err
	}
	all, err := c.ListChains()
	if err != nil {
		return nil, err
	}
	var out []gate
	for _, ch := range all {
		_, known := families[ch.Table.Family]
		if !known || ch.Hooknum == nil || *ch.Hooknum != *nftables.ChainHookForward ||
			ch.Type != nftables.ChainTypeFilter || strings.HasPrefix(ch.Table.Name, "souk-") {
			continue
		}
		g := gate{place: place{ch.Table.Family, ch.Table.Name, ch.Name},
			drops: ch.Policy != nil && *ch.Policy == nftables.ChainPolicyDrop}
		if err := g.readChains(c, all); err != nil {
			return nil, err
		}
		if g.drops || g.has {
			out = append(out, g)
		}
	}
	for file, family := range map[string]nftables.TableFamily{
		"ip_tables_names": nftables.TableFamilyIPv4, "ip6_tables_names": nftables.TableFamilyIPv6,
	} {
		raw, err := os.ReadFile("/proc/thread-self/net/" + file) // missing: the kernel has no legacy tables
		if err == nil && slices.Contains(strings.Fields(string(raw)), "filter") {
			out = append(out, gate{place: place{family, "filter", "FORWARD"}, legacy: true, has: true})
		}
	}
	return out, nil
}

// readChains reads a gate's chain, and the other chains of its table that it may jump to.
func (g *gate) readChains(c *nftables.Conn, all []*nftables.Chain) error {
	for _, ch := range all {
		if ch.Table.Name != g.table || ch.Table.Family != g.family {
			continue
		}
		rs, err := c.GetRules(ch.Table, ch)
		if isGone(err) {
			continue
		}
		if err != nil {
			return err
		}
		g.has = g.has || ch.Name == g.chain && len(rs) > 0
		g.docker = g.docker || ch.Name == dockerUser
		g.opened = g.opened ||
			slices.ContainsFunc(rs, func(r *nftables.Rule) bool { return opensFor(r, expr.MetaKeyOIFNAME) })
	}
	return nil
}

// opensFor reports whether a rule accepts packets from or to containers (by key), by the name of the device.
func opensFor(r *nftables.Rule, key expr.MetaKey) bool {
	asks, names, accepts := false, false, false
	for _, e := range r.Exprs {
		switch e := e.(type) {
		case *expr.Meta:
			asks = asks || e.Key == key
		case *expr.Cmp:
			names = names || bytes.Equal(e.Data, []byte(devices))
		case *expr.Verdict:
			accepts = e.Kind == expr.VerdictAccept
		}
	}
	return asks && names && accepts
}

// Blocked returns which chains of the host's own firewall drop containers' packets, nil if none does as far as it can
// tell. If any chain might, it sends packets through the host, between namespaces made for this test. If the host does
// not forward packets yet, Blocked does not change that, and counts chains whose policy is drop.
func Blocked() error {
	gs, err := findGates()
	if err != nil || len(gs) == 0 {
		return nil //nolint:nilerr // Able reports missing nftables
	}
	var closed []gate
	var what []string
	if isSetTo(forward4, "1") && isSetTo(forward6, "1") {
		lost, err := tryForward()
		if err != nil {
			return fault.Wrap(err, fault.Unavailable, codeFirewall, "souk cannot test whether the host's firewall "+
				"lets packets of containers pass")
		}
		what = lost.names
		closed = slices.DeleteFunc(gs, func(g gate) bool {
			return !(g.family == nftables.TableFamilyINet || g.family == nftables.TableFamilyIPv6 && lost.v6 ||
				g.family == nftables.TableFamilyIPv4 && lost.v4)
		})
	} else {
		closed = slices.DeleteFunc(gs, func(g gate) bool { return !g.drops || g.opened })
		what = []string{"containers that are on this host"}
	}
	if len(what) == 0 || len(closed) == 0 {
		return nil
	}
	if slices.ContainsFunc(closed, func(g gate) bool { return g.drops }) { // chains that drop are the likely cause
		closed = slices.DeleteFunc(closed, func(g gate) bool { return !g.drops && !g.legacy })
	}
	var names, remedies []string
	for _, g := range closed {
		names, remedies = append(names, g.String()), append(remedies, g.remedyCommands())
	}
	return fault.New(fault.Precondition, codeFirewall, "the host's firewall drops packets of containers (%s): %s; let "+
		"them pass (%s)", strings.Join(what, ", "), strings.Join(names, ", "), strings.Join(remedies, "; "))
}

// Opening is rules in a chain of the host's own firewall that let containers' packets pass; souk's own table then
// judges them. The rules are in the form that iptables writes, so that iptables can list them.
type Opening struct {
	chain  string
	places []place
	name   string // the comment that identifies the rules
}

// NewOpening makes an opening in a chain: NAME, in the tables filter of iptables and ip6tables in nftables, or
// FAMILY/TABLE/NAME. name identifies the opening's owner. It does nothing yet.
func NewOpening(chain, name string) (*Opening, error) {
	o := &Opening{chain: chain, name: fmt.Sprintf("souk-forward-%08x", groupOf(name))}
	parts := strings.Split(chain, "/")
	if len(parts) == 1 && chain != "" {
		o.places = []place{{nftables.TableFamilyIPv4, "filter", chain}, {nftables.TableFamilyIPv6, "filter", chain}}
		return o, nil
	}
	for family, is := range families {
		if len(parts) == 3 && parts[0] == is && parts[1] != "" && parts[2] != "" {
			o.places = []place{{family, parts[1], parts[2]}}
			return o, nil
		}
	}
	return nil, fault.New(fault.Invalid, codeFirewall, "%q is no chain of a firewall: write its name, as FORWARD or "+
		"DOCKER-USER, or its family, table and name, as inet/filter/forward", chain)
}

// Chain returns the name of the opening's chain.
func (o *Opening) Chain() string { return o.chain }

// Lay adds the rules where they are missing, and reports whether it added any.
func (o *Opening) Lay() (laid bool, err error) {
	c, err := nftables.New()
	if err != nil {
		return false, err
	}
	all, err := c.ListChains()
	if err != nil {
		return false, err
	}
	found := false
	for _, ch := range all {
		if !slices.Contains(o.places, place{ch.Table.Family, ch.Table.Name, ch.Name}) {
			continue
		}
		found = true
		has, err := o.rulesIn(c, ch)
		if err != nil {
			return false, err
		}
		for _, key := range []expr.MetaKey{expr.MetaKeyIIFNAME, expr.MetaKeyOIFNAME} {
			if slices.ContainsFunc(has, func(r *nftables.Rule) bool { return opensFor(r, key) }) {
				continue
			}
			laid = true
			c.InsertRule(&nftables.Rule{Table: ch.Table, Chain: ch, Exprs: []expr.Any{
				&expr.Meta{Key: key, Register: 1}, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte(devices)},
				&expr.Counter{}, &expr.Verdict{Kind: expr.VerdictAccept},
			}, UserData: userdata.AppendString(nil, userdata.TypeComment, o.name)})
		}
	}
	if !found {
		return false, fault.New(fault.Precondition, codeFirewall,
			"there is no chain %s in this host's nftables to let "+
				"packets of containers pass", o.chain)
	}
	if !laid {
		return false, nil
	}
	return true, c.Flush()
}

func (o *Opening) rulesIn(c *nftables.Conn, ch *nftables.Chain) ([]*nftables.Rule, error) {
	rs, err := c.GetRules(ch.Table, ch)
	if isGone(err) {
		err = nil
	}
	return slices.DeleteFunc(rs, func(r *nftables.Rule) bool {
		said, _ := userdata.GetString(r.UserData, userdata.TypeComment)
		return said != o.name
	}), err
}

// RemoveOpening removes the rules of an opening from all chains; nil if there are none.
func RemoveOpening(name string) error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	all, err := c.ListChains()
	if err != nil {
		return err
	}
	o, removed := Opening{name: fmt.Sprintf("souk-forward-%08x", groupOf(name))}, false
	for _, ch := range all {
		rs, err := o.rulesIn(c, ch)
		if err != nil {
			return err
		}
		for _, r := range rs {
			r.Table, r.Chain = ch.Table, ch
			removed, err = true, errors.Join(err, c.DelRule(r))
		}
		if err != nil {
			return err
		}
	}
	if !removed {
		return nil
	}
	return c.Flush()
}
