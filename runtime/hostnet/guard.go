package hostnet

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/internal/wait"
	"github.com/soukhq/souk/runtime/hostnet/netplan"
)

// All programs of a host share its rules. A reload of the host's own firewall usually begins with "flush ruleset",
// which also removes the rules for containers. So souk guards them: the kernel reports each removed rule, and missing
// rules are laid again, with the ports of all containers.

// kept is a running container.
type kept struct {
	at    Addresses
	ports []netplan.Port
	from  []netip.Prefix // networks whose machines may connect to it; its own app's first
}

func keptOf(p *netplan.Network, at Addresses) kept {
	return kept{at, p.Publish, append([]netip.Prefix{p.App}, p.Allow...)}
}

// Keep takes over a container whose network an earlier process made; at is what Attach returned. The network of the
// last container taken over determines the host's rules.
func (n *Net) Keep(container string, p *netplan.Network, at Addresses) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.keepContainer(container, keptOf(p, at))
	want := rulesOf(p)
	n.laid = &want
}

// keepContainer is Keep, with mu held.
func (n *Net) keepContainer(container string, k kept) {
	if n.kept == nil {
		n.kept = make(map[string]kept)
	}
	for name, before := range n.kept { // an earlier container of this address has ended
		if before.at.V4 == k.at.V4 {
			before.from = nil
			n.kept[name] = before
		}
	}
	n.kept[container] = k
}

// Mend lays the host's rules again if they have changed. Without containers it does nothing.
func (n *Net) Mend() (mended bool, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.laid == nil || len(n.kept) == 0 {
		return false, nil
	}
	if ok, err := n.hasRules(*n.laid); ok || err != nil {
		return false, err
	}
	return true, n.layAll(*n.laid)
}

// hasRules reports whether the rules are as they were laid: each chain has its rules, and each port leads to its
// container.
func (n *Net) hasRules(want rules) (bool, error) {
	if !isSetTo(forward4, "1") || !isSetTo(forward6, "1") {
		return false, nil
	}
	c, err := nftables.New()
	if err != nil {
		return false, err
	}
	maps, four := portMaps(n.rulesTable()), fourSetsOf(n.rulesTable())
	if ok, err := chainsStand(c, n.rulesTable(), ofHost(want, maps, four)); !ok || err != nil {
		return false, err
	}
	for _, m := range maps {
		led, err := readElements(c, m.Set)
		if err != nil {
			return false, err
		}
		for _, e := range n.publishedElements(m) {
			if there, is := led[string(e.Key)]; !is || !slices.Equal(there.Val, e.Val) {
				return false, nil
			}
		}
	}
	var has [2]map[string]nftables.SetElement
	for i, s := range four.bothSets() {
		if has[i], err = readElements(c, s); err != nil {
			return false, err
		}
	}
	for _, k := range n.kept {
		if !four.hasContainer(has, k, n.apps) {
			return false, nil
		}
	}
	return true, nil
}

// hasChains reports whether the table has all its chains: a flush of the whole ruleset removes these as well. A start
// waits for this check, which takes a tenth of the time of chainsStand.
func (n *Net) hasChains(want rules) (bool, error) {
	has, err := chainsOf()
	return has[n.tree] == len(ofHost(want, portMaps(n.rulesTable()), fourSetsOf(n.rulesTable()))), err
}

// chainsOf counts the chains of the host's tables, by table name.
func chainsOf() (map[string]int, error) {
	c, err := nftables.New()
	if err != nil {
		return nil, err
	}
	chains, err := c.ListChainsOfTableFamily(nftables.TableFamilyINet)
	has := make(map[string]int)
	for _, ch := range chains {
		has[ch.Table.Name]++
	}
	return has, err
}

// chainsStand reports whether each chain of a table has as many rules as it was laid with.
func chainsStand(c *nftables.Conn, t *nftables.Table, chains []chain) (bool, error) {
	if !hasTable(c, t.Name) {
		return false, nil
	}
	for _, ch := range chains {
		rs, err := c.GetRules(t, &nftables.Chain{Name: ch.name, Table: t})
		if isGone(err) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("the host's rules: %w", err)
		}
		if len(rs) != len(ch.rules) {
			return false, nil
		}
	}
	return true, nil
}

// publishedElements returns the elements of one of the maps of ports, for all containers.
func (n *Net) publishedElements(m portMap) (es []nftables.SetElement) {
	for _, k := range n.kept {
		es = append(es, elementsFor(k.ports, k.at, m)...)
	}
	return es
}

// layAll lays the host's rules, and makes all ports lead to their containers, in one transaction.
func (n *Net) layAll(want rules) error {
	if err := enableForwarding(); err != nil {
		return err
	}
	c, err := nftables.New()
	if err != nil {
		return err
	}
	t := c.AddTable(n.rulesTable())
	maps := portMaps(t)
	for _, m := range maps {
		if err := c.AddSet(m.Set, nil); err != nil {
			return err
		}
		if err := leadPorts(c, m.Set, n.publishedElements(m)); err != nil {
			return err
		}
	}
	four := fourSetsOf(t)
	n.apps = numbers{}
	if err := four.laySets(c, n.kept, n.apps); err != nil {
		return err
	}
	layChains(c, t, ofHost(want, maps, four))
	if err := c.Flush(); err != nil {
		return fmt.Errorf("the host's rules: %w", err)
	}
	n.laid, n.ours = &want, true
	return nil
}

// lookAgain is how often the rules are checked without a message from the kernel, since messages can get lost.
const lookAgain = 10 * time.Second

// Guard calls Mend when another program has removed rules, and at intervals, until ctx ends.
func (n *Net) Guard(ctx context.Context, log *slog.Logger) {
	removed := make(chan struct{}, 1)
	go Watch(ctx, n.tree, func() {
		select {
		case removed <- struct{}{}:
		default:
		}
	})
	again := time.NewTicker(lookAgain)
	defer again.Stop()
	failed := ""
	for ctx.Err() == nil {
		mended, err := n.Mend()
		switch {
		case err == nil && mended:
			log.Warn("somebody changed the rules of containers' networks, and they are laid again", "table", n.tree)
			failed = ""
		case err == nil:
			failed = ""
		case err.Error() != failed:
			log.Error("the rules of containers' networks are not all there, and cannot be laid", "err", err)
			failed = err.Error()
		}
		select {
		case <-ctx.Done():
		case <-removed:
		case <-again.C:
		}
	}
}

// Watch calls removed when another program has removed something of a table of rules, or may have done so unnoticed,
// until ctx ends.
func Watch(ctx context.Context, table string, removed func()) {
	for ctx.Err() == nil {
		if err := watchTable(ctx, table, removed); err != nil {
			_ = wait.For(ctx, time.Second) // on an error, ctx has ended and so does the loop
		}
	}
}

func watchTable(ctx context.Context, table string, removed func()) error {
	s, err := nl.Subscribe(unix.NETLINK_NETFILTER, unix.NFNLGRP_NFTABLES)
	if err != nil {
		return err
	}
	defer s.Close()
	stop := context.AfterFunc(ctx, s.Close)
	defer stop()
	removed() // earlier removals were not reported
	for {
		list, _, err := s.Receive()
		if errors.Is(err, unix.ENOBUFS) {
			removed()
			continue
		}
		if err != nil {
			return err
		}
		for _, m := range list {
			if isRemovalOf(m.Header.Type, m.Data, table) {
				removed()
				break
			}
		}
	}
}

// isRemovalOf reports whether a message of nftables reports a removal in a table. The table's name is the first
// attribute of each such message (linux/netfilter/nf_tables.h).
func isRemovalOf(kind uint16, data []byte, table string) bool {
	if kind>>8 != unix.NFNL_SUBSYS_NFTABLES {
		return false
	}
	switch kind & 0xff {
	case unix.NFT_MSG_DELTABLE, unix.NFT_MSG_DELCHAIN, unix.NFT_MSG_DELRULE, unix.NFT_MSG_DELSET,
		unix.NFT_MSG_DELSETELEM:
	default:
		return false
	}
	const head, attr = 4, 4 // sizes of nfgenmsg, and of an attribute's header
	for data = data[min(head, len(data)):]; len(data) >= attr; {
		size := int(binary.NativeEndian.Uint16(data))
		if size < attr || size > len(data) {
			return true // unreadable: assume a removal
		}
		if binary.NativeEndian.Uint16(data[2:]) == unix.NFTA_TABLE_NAME {
			return string(data[attr:size]) == table+"\x00"
		}
		data = data[min(len(data), (size+3)&^3):]
	}
	return true
}

// Unguarded returns the tables of rules that are missing or incomplete although containers have links.
func Unguarded() (tables []string, err error) {
	ls, err := allLinks()
	if err != nil {
		return nil, err
	}
	has, err := chainsOf()
	if err != nil {
		return nil, err
	}
	all := len(ofHost(rules{}, portMaps(&nftables.Table{}), fourSetsOf(&nftables.Table{})))
	for _, l := range ls {
		a := l.Attrs()
		if l.Type() == "veth" && a.HardwareAddr.String() == hostMAC.String() && a.Alias != "" && has[a.Alias] < all &&
			!slices.Contains(tables, a.Alias) {
			tables = append(tables, a.Alias)
		}
	}
	return tables, nil
}
