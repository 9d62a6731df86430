package node

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/fleet"
	"github.com/soukhq/souk/runtime/hostnet"
	"github.com/soukhq/souk/runtime/hostnet/netplan"
	"github.com/soukhq/souk/runtime/process"
)

// between connects this host's containers with those of other members' hosts: it keeps the tunnel's peers in line with
// the fleet.
type between struct {
	self      cluster.WorkerID
	fleet     *fleet.Fleet
	addresses *netplan.Addresses
	way       netplan.Way
	at        netip.Addr
	tunnel    *hostnet.Tunnel
	begun     time.Time
	log       *slog.Logger

	mu     sync.Mutex
	failed error    // why the tunnel could not be updated; nil: it is up to date
	peers  int      // number of hosts that it leads to
	others []string // workers with another kind of tunnel, or none
}

// Pace of following the fleet.
const (
	betweenPace = 50 * time.Millisecond // at most one update per this time
	mendEvery   = 10 * time.Second      // everything is checked, since other programs may have changed it
	// Existing peers stay for this long after a start, since not all members have reported yet.
	betweenGrace = 10 * time.Second
)

// helperLog is the log of WireGuard in user space, in the process's directory.
const helperLog = "wireguard.log"

// openBetween finds the tunnel of an earlier process of this directory, or removes it if none is wanted any more.
func (n *Node) openBetween() error {
	c := n.o.Containers
	if n.o.Member == nil {
		return nil
	}
	n.network.Between = n.betweenFinding
	if c.Between == "" || c.Between == netplan.NoWay {
		if err := hostnet.RemoveTunnel(n.network.Realm); err != nil {
			n.o.Log.Warn("the tunnel to other workers, which is not wanted any more, could not be removed", "err", err)
		}
		return nil
	}
	t, err := hostnet.OpenTunnel(hostnet.TunnelOptions{Way: c.Between, ID: string(n.o.Member.ID()), At: c.BetweenAt,
		Name: n.network.Realm, Network: netplan.Network{Cluster: n.network.Addresses.Of, Realm: n.network.Realm},
		Helper: c.Helper, Log: filepath.Join(n.network.Realm, helperLog), Build: process.Build()})
	if err != nil {
		return err
	}
	n.between = &between{self: n.o.Member.ID(), fleet: n.fleet, addresses: n.network.Addresses, way: c.Between,
		at: c.BetweenAt, tunnel: t, begun: time.Now(), log: n.o.Log}
	return nil
}

// addAttributes adds the attributes of this host's end of the tunnel, which the others must know.
func (b *between) addAttributes(a cluster.Attributes) {
	a[cluster.BetweenAttribute] = cluster.Text(string(b.way))
	a[cluster.BetweenAddressAttribute] = cluster.Text(b.at.String())
	if key := b.tunnel.Public(); key != (wgtypes.Key{}) {
		a[cluster.BetweenKeyAttribute] = cluster.Text(key.String())
	}
}

// run follows the fleet until ctx ends. The tunnel stays as long as a container here may use it.
func (b *between) run(ctx context.Context) {
	mend := time.NewTicker(mendEvery)
	defer mend.Stop()
	removed := watchRemovals(ctx, b.tunnel.Watch)
	for anew := true; ; {
		s := b.fleet.Snapshot()
		b.followPeers(s, anew)
		select {
		case <-ctx.Done():
			b.removeTunnel()
			return
		case <-s.Past():
			anew = false
		case <-mend.C:
			anew = true
		case <-removed:
			anew = true
		}
		select {
		case <-ctx.Done():
		case <-time.After(betweenPace):
		}
	}
}

func (b *between) removeTunnel() {
	if _, any := b.peersOf(b.fleet.Snapshot()); any {
		return
	}
	if err := b.tunnel.Remove(); err != nil {
		b.log.Warn("the tunnel to other workers could not be removed", "err", err)
	}
}

// followPeers updates the tunnel's peers from the fleet. A failure is logged once, and retried.
func (b *between) followPeers(s *fleet.Snapshot, anew bool) {
	peers, _ := b.peersOf(s)
	err := b.tunnel.Apply(peers, anew)
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil && (b.failed == nil || b.failed.Error() != err.Error()) {
		b.log.Warn("containers of other workers cannot be reached", "err", err)
	}
	b.failed, b.peers = err, len(peers)
}

// peersOf returns the hosts that the tunnel should lead to, and whether this host has containers that may use it.
// Unreachable workers are included: their containers go on.
func (b *between) peersOf(s *fleet.Snapshot) (peers []hostnet.Peer, used bool) {
	machines, own := map[cluster.WorkerID][]netip.Addr{}, map[netip.Addr]bool{}
	for x := range s.AllMachines() {
		if !x.Apart {
			continue
		}
		a := b.addresses.Machine(x.App, x.ID)
		if x.Worker == b.self {
			own[a] = true
		} else {
			machines[x.Worker] = append(machines[x.Worker], a)
		}
	}
	var others []string
	for w := range s.Workers() {
		if w.Own {
			continue
		}
		p := hostnet.Peer{ID: string(w.ID), Partial: !w.Reported || time.Since(b.begun) < betweenGrace}
		if w.Reported && !b.readTunnelEnd(&p, w.Record.Attributes) {
			others = append(others, p.ID)
			continue
		}
		for _, a := range machines[w.ID] {
			if !own[a] {
				p.Machines = append(p.Machines, a)
			}
		}
		peers = append(peers, p)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.others = others
	return peers, len(own) > 0
}

// needsTunnelTo reports whether the tunnel should lead to the containers of another worker.
func (b *between) needsTunnelTo(s *fleet.Snapshot, id cluster.WorkerID) bool {
	w, known := s.Worker(id)
	return known && w.Reported && b.readTunnelEnd(new(hostnet.Peer), w.Record.Attributes)
}

// readTunnelEnd reads a worker's end of the tunnel from its attributes, and reports whether it has one of the same
// kind.
func (b *between) readTunnelEnd(p *hostnet.Peer, a cluster.Attributes) bool {
	text := func(name string) string {
		s, _ := a[name].Any().(string)
		return s
	}
	at, err := netip.ParseAddr(text(cluster.BetweenAddressAttribute))
	if err != nil || text(cluster.BetweenAttribute) != string(b.way) {
		return false
	}
	p.At = at.Unmap()
	if b.way == netplan.WireGuard {
		p.Key, err = wgtypes.ParseKey(text(cluster.BetweenKeyAttribute))
	}
	return err == nil
}

// betweenFinding reports how containers of this host reach those of others.
func (n *Node) betweenFinding() cluster.Finding {
	f := cluster.Finding{Name: "containers: of other workers", OK: true}
	b := n.between
	if b == nil {
		kernel := "has WireGuard"
		if !hostnet.KernelWireGuard() {
			kernel = "has no WireGuard, which souk then is in user space"
		}
		f.Have = "reached at ports of their hosts alone: --network-between is none; the kernel " + kernel
		return f
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.failed != nil {
		f.OK, f.Have, f.Advice = false, "not reached", fault.As(b.failed).Error()
		return f
	}
	f.Have = fmt.Sprintf("reached by %s, at %d hosts", b.tunnel.How(), b.peers)
	if len(b.others) > 0 {
		f.Have += fmt.Sprintf("; not those of %s, which have another --network-between", strings.Join(b.others, ", "))
	}
	return f
}
