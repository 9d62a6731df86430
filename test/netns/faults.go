package netns

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/florianl/go-nfqueue/v2"
	"github.com/mdlayher/netlink"

	"github.com/soukhq/souk/fault"
)

// Deafen drops everything that the host receives from others. They still receive from it, unless they are deafened,
// too.
func (h *Host) Deafen(to ...*Host) error {
	for _, o := range to {
		if o != h {
			h.cuts = append(h.cuts, o.Addr)
		}
	}
	return h.apply()
}

// Lose makes the host lose a share of what it receives, in percent.
func (h *Host) Lose(percent int) error {
	h.loss = percent
	return h.apply()
}

// Delay delays everything that the host receives by d.
func (h *Host) Delay(d time.Duration) (err error) {
	if h.late, err = h.newDelayer(d); err != nil {
		return err
	}
	return h.Do(func() error {
		return command("iptables", "-w", "10", "-t", "mangle", "-A", "INPUT", "-i", "eth0", "-j", "NFQUEUE",
			"--queue-num",
			"0")
	})
}

// Shut makes a TCP port of the host unreachable for all others, as a firewall does: packets to it are dropped.
func (h *Host) Shut(port int) error {
	h.shut = port
	return h.apply()
}

// Heal removes every network fault.
func (h *Host) Heal() error {
	h.cuts, h.loss, h.shut = nil, 0, 0
	if h.late != nil {
		if err := h.Do(func() error {
			return command("iptables", "-w", "10", "-t", "mangle", "-F",
				"INPUT")
		}); err != nil {
			return err
		}
		h.late.close()
		h.late = nil
	}
	return h.apply()
}

// Part cuts the hosts in two: the two sides do not receive from each other.
func (hs Hosts) Part(side func(i int) bool) error {
	for i, h := range hs {
		var others []*Host
		for k, o := range hs {
			if side(i) != side(k) {
				others = append(others, o)
			}
		}
		if err := h.Deafen(others...); err != nil {
			return err
		}
	}
	return nil
}

// Heal removes every network fault of all hosts.
func (hs Hosts) Heal() error {
	for _, h := range hs {
		if err := h.Heal(); err != nil {
			return err
		}
	}
	return nil
}

// apply replaces the host's rules, at once.
func (h *Host) apply() error {
	var b strings.Builder
	b.WriteString("add table inet fault\ndelete table inet fault\nadd table inet fault\n")
	b.WriteString("add chain inet fault in { type filter hook input priority 0; policy accept; }\n")
	if len(h.cuts) > 0 {
		fmt.Fprintf(&b, "add rule inet fault in iifname eth0 ip saddr { %s } drop\n", strings.Join(h.cuts, ", "))
	}
	if h.shut > 0 {
		fmt.Fprintf(&b, "add rule inet fault in iifname eth0 tcp dport %d drop\n", h.shut)
	}
	if h.loss > 0 {
		fmt.Fprintf(&b, "add rule inet fault in iifname eth0 numgen random mod 100 < %d drop\n", h.loss)
	}
	return h.Do(func() error {
		cmd := exec.Command("nft", "-f", "-")
		cmd.Stdin = strings.NewReader(b.String())
		if out, err := cmd.CombinedOutput(); err != nil {
			return fault.Wrap(err, fault.Internal, codeNft, "the rules of host %s: %s", h.Name,
				strings.TrimSpace(string(out)))
		}
		return nil
	})
}

// delayer delays every packet by the same time, so their order stays.
type delayer struct {
	queue   *nfqueue.Nfqueue
	stop    context.CancelFunc
	waiting chan late
	done    chan struct{}
}

type late struct {
	packet uint32
	until  time.Time
}

// maxLate bounds the packets that wait at one host; more are dropped, as a full queue does.
const maxLate = 1 << 16

func (h *Host) newDelayer(d time.Duration) (*delayer, error) {
	q, err := nfqueue.Open(
		&nfqueue.Config{NetNS: int(h.ns.Fd()), NfQueue: 0, MaxQueueLen: maxLate, Copymode: nfqueue.NfQnlCopyMeta,
			WriteTimeout: time.Second},
	)
	if err != nil {
		return nil, fault.Wrap(err, fault.Internal, codeNfqueue, "the kernel gives no queue on host %s", h.Name)
	}
	if err := q.SetOption(netlink.NoENOBUFS, true); err != nil {
		return nil, fault.Wrap(err, fault.Internal, codeNfqueue, "the queue of host %s cannot be made lossy", h.Name)
	}
	ctx, cancel := context.WithCancel(context.Background())
	l := &delayer{queue: q, stop: cancel, waiting: make(chan late, maxLate), done: make(chan struct{})}
	take := func(a nfqueue.Attribute) int {
		l.waiting <- late{*a.PacketID, time.Now().Add(d)}
		return 0
	}
	if err := q.RegisterWithErrorFunc(ctx, take, func(error) int { return 0 }); err != nil {
		cancel()
		return nil, fault.Wrap(err, fault.Internal, codeNfqueue, "no reader can be started for the packet queue of "+
			"host %s", h.Name)
	}
	go l.release(ctx)
	return l, nil
}

func (l *delayer) release(ctx context.Context) {
	defer close(l.done)
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		var p late
		select {
		case p = <-l.waiting:
		case <-ctx.Done():
			return
		}
		t.Reset(time.Until(p.until))
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
		_ = l.queue.SetVerdict(p.packet, nfqueue.NfAccept) // on an error the packet is lost, as in real networks
	}
}

// close closes the queue; waiting packets are dropped.
func (l *delayer) close() {
	l.stop()
	<-l.done
	_ = l.queue.Close()
}
