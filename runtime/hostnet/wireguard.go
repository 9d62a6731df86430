package hostnet

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/mdlayher/genetlink"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/wgctrl"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime/hostnet/wgspace"
)

// wireguard carries packets encrypted, and accepts from a peer only packets whose source is a machine on that peer. The
// kernel or a helper in user space implements it. The private key is only in the device, never on a disk: after a
// reboot a host has a new key.
type wireguard struct {
	t      *Tunnel
	key    wgtypes.Key // private
	helper bool        // implemented in user space
}

func (w *wireguard) publicKey() wgtypes.Key { return w.key.PublicKey() }

func (w *wireguard) describeCarrier() string {
	if w.helper {
		return "wireguard in user space, as the kernel has none"
	}
	return "wireguard, the kernel's"
}

// loadKey takes the key of the existing device, or makes a new key.
func (w *wireguard) loadKey() error {
	d, err := w.readDevice()
	if err == nil && d.PrivateKey != (wgtypes.Key{}) {
		w.key = d.PrivateKey
		return nil
	}
	if w.key, err = wgtypes.GeneratePrivateKey(); err != nil {
		return fault.Wrap(err, fault.Unavailable, CodeNetworkBetween, "a key of WireGuard cannot be made")
	}
	return nil
}

// withControl calls f with a client that configures WireGuard devices.
func withControl(f func(*wgctrl.Client) error) error {
	c, err := wgctrl.New()
	if err != nil {
		return err
	}
	return errors.Join(f(c), c.Close())
}

func (w *wireguard) readDevice() (d *wgtypes.Device, err error) {
	err = withControl(func(c *wgctrl.Client) error {
		d, err = c.Device(w.t.name)
		return err
	})
	return d, err
}

func (w *wireguard) openDevice() (netlink.Link, error) {
	l, err := w.findDevice()
	if err != nil {
		if err := RemoveTunnel(w.t.o.Name); err != nil { // missing, broken, or of another build
			return nil, err
		}
		if l, err = w.makeDevice(); err != nil {
			return nil, err
		}
	}
	_, kernel := l.(*netlink.Wireguard)
	w.helper = !kernel
	if err := withControl(w.setUp); err != nil {
		return nil, fmt.Errorf("set WireGuard up: %w", err)
	}
	return l, w.t.applySettings(l)
}

// setUp gives the device its key and its port, unless it has them: setting them again would reopen its socket.
func (w *wireguard) setUp(c *wgctrl.Client) error {
	d, err := c.Device(w.t.name)
	if err != nil || d.PrivateKey == w.key && d.ListenPort == TunnelPort {
		return err
	}
	port := TunnelPort
	return c.ConfigureDevice(w.t.name, wgtypes.Config{PrivateKey: &w.key, ListenPort: &port})
}

// findDevice finds a working device. A user-space device must be of this build.
func (w *wireguard) findDevice() (netlink.Link, error) {
	l, err := netlink.LinkByName(w.t.name)
	if err != nil {
		return nil, err
	}
	if _, kernel := l.(*netlink.Wireguard); !kernel && l.Attrs().Alias != w.t.o.Build {
		return nil, errors.New("another build")
	}
	if _, err := w.readDevice(); err != nil {
		return nil, err
	}
	return l, nil
}

// makeDevice makes the device, in the kernel if it has WireGuard.
func (w *wireguard) makeDevice() (netlink.Link, error) {
	mtu, err := w.t.tunnelMTU()
	if err != nil {
		return nil, err
	}
	if err := errors.Join(portFree(), w.t.layGuardRules(nil)); err != nil {
		return nil, err
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU, attrs.Group = w.t.name, mtu, tunnelGroup(&w.t.o.Network)
	err = netlink.LinkAdd(&netlink.Wireguard{LinkAttrs: attrs})
	if errors.Is(err, unix.EOPNOTSUPP) { // the kernel has no WireGuard
		err = w.startHelper(mtu)
	}
	if err != nil {
		return nil, fmt.Errorf("make a WireGuard device: %w", err)
	}
	return netlink.LinkByName(w.t.name)
}

// portFree fails if another program listens on the port: the device would be made but receive nothing.
func portFree() error {
	c, err := net.ListenUDP("udp", &net.UDPAddr{Port: TunnelPort})
	if errors.Is(err, syscall.EADDRINUSE) {
		return fault.New(fault.Precondition, CodeNetworkBetween,
			"UDP port %d of this host, which the tunnel to other workers needs, is in use by another program",
			TunnelPort)
	}
	if err != nil {
		return err
	}
	return c.Close()
}

// helperPatience bounds the time until a helper's device exists.
const helperPatience = 15 * time.Second

// startHelper starts WireGuard in user space, in a new session and without souk's environment, and waits until its
// device exists.
func (w *wireguard) startHelper(mtu int) error {
	if len(w.t.o.Helper) == 0 {
		return fault.New(fault.Precondition, CodeNetworkBetween, "the kernel of this host has no WireGuard")
	}
	log, err := os.OpenFile(w.t.o.Log, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	ready, said, err := os.Pipe()
	if err != nil {
		return err
	}
	defer ready.Close()
	argv := append(w.t.o.Helper[:len(w.t.o.Helper):len(w.t.o.Helper)], w.t.name, strconv.Itoa(mtu))
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = "/", []string{"GORACE=" + os.Getenv("GORACE")}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{said} // descriptor wgspace.Ready
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	_ = said.Close()
	if err != nil {
		return err
	}
	go func() { _ = cmd.Wait() }() // reaps the helper if it ends first; a later Apply finds its device missing
	if err := ready.SetReadDeadline(time.Now().Add(helperPatience)); err != nil {
		return err
	}
	raw, err := io.ReadAll(io.LimitReader(ready, 4096))
	if text := strings.TrimSpace(string(raw)); text != "ok" {
		return errors.Join(err,
			fmt.Errorf("WireGuard in user space could not begin (%s)", cmp.Or(text, "it says nothing")))
	}
	l, err := netlink.LinkByName(w.t.name)
	if err != nil {
		return err
	}
	return netlink.LinkSetAlias(l, w.t.o.Build)
}

func removeSocket(name string) error {
	if err := os.Remove(wgspace.Socket(name)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

func (w *wireguard) knownPeers(_ netlink.Link, have map[netip.Addr]netip.Addr) (map[netip.Addr]Peer, error) {
	d, err := w.readDevice()
	if err != nil {
		return nil, err
	}
	out := map[netip.Addr]Peer{}
	for _, p := range d.Peers {
		for _, n := range p.AllowedIPs {
			a, _ := netip.AddrFromSlice(n.IP)
			if g, is := have[a]; is {
				out[g] = Peer{At: addrOf(p.Endpoint), Key: p.PublicKey}
			}
		}
	}
	return out, nil
}

func addrOf(at *net.UDPAddr) (none netip.Addr) {
	if at == nil {
		return none
	}
	return at.AddrPort().Addr().Unmap()
}

func (w *wireguard) setPeers(_ netlink.Link, peers []Peer) error {
	d, err := w.readDevice()
	if err != nil {
		return err
	}
	before := map[wgtypes.Key]wgtypes.Peer{}
	for _, p := range d.Peers {
		before[p.PublicKey] = p
	}
	var c wgtypes.Config
	for _, p := range peers {
		was, known := before[p.Key]
		delete(before, p.Key)
		if set, due := peerChange(p, was, known); due {
			c.Peers = append(c.Peers, set)
		}
	}
	for key := range before {
		c.Peers = append(c.Peers, wgtypes.PeerConfig{PublicKey: key, Remove: true})
	}
	if len(c.Peers) == 0 {
		return nil
	}
	return withControl(func(x *wgctrl.Client) error { return x.ConfigureDevice(w.t.name, c) })
}

// peerChange returns the change to a peer's configuration, if one is due. If machines are only added, the existing ones
// stay reachable meanwhile.
func peerChange(p Peer, was wgtypes.Peer, known bool) (c wgtypes.PeerConfig, due bool) {
	c = wgtypes.PeerConfig{PublicKey: p.Key}
	if addrOf(was.Endpoint) != p.At {
		c.Endpoint = net.UDPAddrFromAddrPort(netip.AddrPortFrom(p.At, TunnelPort))
	}
	before := map[netip.Addr]bool{}
	for _, n := range was.AllowedIPs {
		a, _ := netip.AddrFromSlice(n.IP)
		before[a] = true
	}
	var all, added []net.IPNet
	for _, a := range p.Machines {
		n := *ipNet(hostPrefix(a))
		all = append(all, n)
		if !before[a] {
			added = append(added, n)
		}
		delete(before, a)
	}
	c.AllowedIPs, c.ReplaceAllowedIPs = added, len(before) > 0
	if c.ReplaceAllowedIPs {
		c.AllowedIPs = all
	}
	return c, !known || c.Endpoint != nil || len(c.AllowedIPs) > 0 || c.ReplaceAllowedIPs
}

// KernelWireGuard reports whether the kernel of this host has WireGuard.
func KernelWireGuard() bool {
	c, err := genetlink.Dial(nil)
	if err != nil {
		return false
	}
	defer c.Close()
	_, err = c.GetFamily(unix.WG_GENL_NAME)
	return err == nil
}
