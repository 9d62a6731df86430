package server

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/unixsock"
	"github.com/soukhq/souk/internal/unixuser"
	"github.com/soukhq/souk/mesh/tlscert"
	"github.com/soukhq/souk/runtime/hostnet"
)

// doorFlags say where the API is served besides this host's socket.
type doorFlags struct {
	Addr string
	Cert string
	Key  string

	UnixUsers string
}

func (o *doorFlags) add(f *pflag.FlagSet) {
	f.StringVar(&o.Addr, "addr", DefaultAddr, "HOST:PORT of the API; with TLS where it is not loopback; port 0 takes "+
		"any that is free")
	f.StringVar(&o.Cert, "tls-cert", "", "a PEM file with the API's certificate, read again when it changes (default: "+
		"none on loopback, else one of souk's own)")
	f.StringVar(&o.Key, "tls-key", "", "the PEM file with its key")
	f.StringVar(&o.UnixUsers, "unix-users", "",
		"whom this host's users.sock serves, and as whom tasks run here: alice,bob,@GROUP, or all from number 1000 "+
			"on; never root (default: nobody)")
}

// check refuses contradictory flags.
func (o *doorFlags) check() error {
	if _, _, err := net.SplitHostPort(o.Addr); err != nil {
		return cli.Usagef("--addr is HOST:PORT, as %s, not %q", DefaultAddr, o.Addr)
	}
	if (o.Cert == "") != (o.Key == "") {
		return cli.Usagef("--tls-cert and --tls-key go together: the certificate, and the key that it was made for")
	}
	_, err := o.users()
	return err
}

// users returns the Unix users that users.sock serves; nil: there is no such socket.
func (o *doorFlags) users() (*unixuser.Users, error) {
	u, err := unixuser.Parse(o.UnixUsers)
	if err != nil {
		return nil, cli.Usagef("--unix-users: %v", err)
	}
	if u != nil && os.Geteuid() != 0 {
		return nil, cli.Usagef("--unix-users takes a souk that root runs: another cannot run tasks as other users")
	}
	return u, nil
}

// doors are where the API is served: a socket for the clients of this host, and an address for others. The API starts
// programs, so its token never travels in clear: on loopback it stays on the host, elsewhere there is TLS.
type doors struct {
	listeners []net.Listener
	addr      string          // HOST:PORT, or https://HOST:PORT
	root      string          // file of the root of souk's own certificate; "": none
	users     *unixuser.Users // that users.sock serves; nil: there is no such socket
}

// listenFunc opens the listener of a TCP address; name identifies it within this process.
type listenFunc func(name, addr string) (net.Listener, error)

// openDoors opens the doors. hosts are this host's names and addresses, used if --addr names none.
func openDoors(dir string, o *doorFlags, hosts []string, listen listenFunc, log *slog.Logger) (d *doors, err error) {
	d = &doors{}
	if d.users, err = o.users(); err != nil {
		return nil, err
	}
	conf, err := d.tlsOf(dir, o, hosts, log)
	if err != nil {
		return nil, err
	}
	socket, err := unixsock.Listen(filepath.Join(dir, cli.SocketFile))
	if err != nil {
		return nil, err
	}
	ln, err := listen("api", o.Addr)
	if err != nil {
		return nil, errors.Join(fault.Wrap(err, fault.Unavailable, fault.CodeListen,
			"%s cannot be listened on; give another --addr, port 0 takes any that is free", o.Addr), socket.Close())
	}
	d.addr = ln.Addr().String()
	if conf != nil {
		ln, d.addr = tls.NewListener(ln, conf), "https://"+named(d.addr, hosts)
	}
	d.listeners = []net.Listener{ln, unixsock.Checked(socket, func(err error) {
		log.Warn("a connection was refused", "err", err)
	})}
	if d.users != nil {
		users, err := openUsersDoor(dir)
		if err != nil {
			return nil, errors.Join(err, d.close())
		}
		d.listeners = append(d.listeners, users)
	}
	return d, nil
}

// openUsersDoor opens the socket for users, and lets them pass through the directory, which none of them may list.
func openUsersDoor(dir string) (net.Listener, error) {
	if err := os.Chmod(dir, 0o711); err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, fault.CodeDir, "users cannot be let pass through %s", dir)
	}
	return unixsock.ListenToAll(filepath.Join(dir, cli.UsersSocketFile))
}

// tell writes the address to a file for clients, just before the API is served.
func (d *doors) tell(dir string) error {
	return cli.WriteWhole(filepath.Join(dir, addrFile), d.addr+"\n", 0o644)
}

// forOthers returns the address for other hosts, with its certificate's root in PEM; root "": not souk's own.
func (d *doors) forOthers() (addr, root string) {
	if d.root == "" {
		return d.addr, ""
	}
	raw, err := os.ReadFile(d.root)
	if err != nil {
		return "", "" // should not happen: it was just written
	}
	return d.addr, string(raw)
}

// addrFile holds the address while the API is served.
const addrFile = "addr"

// tlsOf returns how the address is served; nil: in clear, on loopback.
func (d *doors) tlsOf(dir string, o *doorFlags, hosts []string, log *slog.Logger) (*tls.Config, error) {
	host, _, err := net.SplitHostPort(o.Addr)
	if err != nil {
		return nil, err
	}
	switch {
	case o.Cert != "":
		return tlscert.Files(o.Cert, o.Key, log)
	case cli.IsLoopback(host):
		return nil, nil
	}
	var named []string
	if ip := net.ParseIP(host); host != "" && (ip == nil || !ip.IsUnspecified()) {
		named, hosts = []string{host}, nil
	}
	d.root = filepath.Join(dir, tlscert.RootFile)
	return tlscert.Own(dir, named, append(hosts, "localhost", "127.0.0.1", "::1"), time.Now())
}

// named replaces a wildcard address by the first host.
func named(addr string, hosts []string) string {
	host, port, err := net.SplitHostPort(addr)
	if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsUnspecified() || len(hosts) == 0 {
		return addr
	}
	return net.JoinHostPort(hosts[0], port)
}

// close closes the listeners that are not served.
func (d *doors) close() error {
	var errs []error
	for _, ln := range d.listeners {
		errs = append(errs, ln.Close())
	}
	return errors.Join(errs...)
}

// shut removes the files of the address and the socket, which would mislead clients.
func (d *doors) shut(dir string) {
	os.Remove(filepath.Join(dir, addrFile))
	os.Remove(filepath.Join(dir, cli.SocketFile))
	os.Remove(filepath.Join(dir, cli.UsersSocketFile))
}

// printRoot prints what clients on other hosts need.
func (d *doors) printRoot(c *cli.Env, dir string) {
	if d.root == "" {
		return
	}
	fmt.Fprintf(c.Out, "  others  copy %s and a token to them, then there: souk context add NAME %s --root "+
		"api-root.pem --token-file FILE\n", d.root, d.addr)
}

// printUsersDoor prints which Unix users users.sock serves.
func (d *doors) printUsersDoor(c *cli.Env, dir string) {
	if d.users != nil {
		fmt.Fprintf(c.Out, "  users   %s, for the Unix users %s of this host\n",
			filepath.Join(dir, cli.UsersSocketFile), d.users)
	}
}

// hostsHere lists the names and addresses that other hosts may reach this one at, the given one first.
func hostsHere(given string) (hosts []string) {
	if given != "" {
		hosts = append(hosts, given)
	}
	addrs, _ := net.InterfaceAddrs() // on an error only the name is left
	hosts = append(hosts, reachable(addrs)...)
	if name, err := os.Hostname(); err == nil {
		hosts = append(hosts, name)
	}
	return hosts
}

// reachable returns those of a host's addresses that other hosts may reach it at.
func reachable(addrs []net.Addr) (out []string) {
	for _, a := range addrs {
		n, is := a.(*net.IPNet)
		if !is || n.IP.IsLoopback() || n.IP.IsLinkLocalUnicast() {
			continue
		}
		if at, _ := netip.AddrFromSlice(n.IP); !hostnet.IsEntryServer(at) {
			out = append(out, n.IP.String())
		}
	}
	return out
}
