package container

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/hostnet/netplan"
	"github.com/soukhq/souk/runtime/reaper/frame"
	"github.com/soukhq/souk/runtime/reaper/rootfs"
	"github.com/soukhq/souk/runtime/reaper/spec"
	"github.com/soukhq/souk/runtime/reaper/users"
)

// putNames writes the files for name resolution (/etc/hosts and so on), except those that the machine has itself.
func putNames(bundle string, in *frame.Container, has []spec.Mount, ids []users.ID) ([]spec.Mount, error) {
	texts, err := textsOf(in)
	if err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, fault.CodeNetwork, "the host's files for name resolution "+
			"(/etc/hosts, /etc/resolv.conf) cannot be read")
	}
	return putEtc(bundle, texts, has, ids)
}

// putUser writes /etc/passwd with the container's user added, if the image's file lacks it and the machine has no file
// of its own.
func putUser(bundle string, at inside, has []spec.Mount) ([]spec.Mount, error) {
	table, err := rootfs.ReadFile(at.root, passwd, maxTable)
	if err != nil {
		return nil, fault.Wrap(err, fault.Precondition, runtime.CodeUser, "the image's tables of users cannot be read")
	}
	with := withUser(table, at.who)
	if with == nil {
		return nil, nil
	}
	return putEtc(bundle, map[string]string{"passwd": string(with)}, has, at.ids)
}

// putEtc writes files to be mounted in /etc, except those that the machine has itself.
func putEtc(bundle string, texts map[string]string, has []spec.Mount, ids []users.ID) ([]spec.Mount, error) {
	taken := make(map[string]bool, len(has))
	for _, m := range has {
		taken[m.To] = true
	}
	var out []spec.Mount
	for name, text := range texts {
		if taken["/etc/"+name] || taken["/etc"] {
			continue
		}
		path := filepath.Join(bundle, "files", name)
		err := os.WriteFile(path, []byte(text), 0o644)
		if err == nil {
			root, _ := users.Outside(ids, 0)
			err = errors.Join(os.Chown(path, root, root), os.Chmod(path, 0o644))
		}
		if err != nil {
			return nil, fault.Wrap(err, fault.Unavailable, fault.CodeFile,
				"the file %s cannot be written", "/etc/"+name)
		}
		out = append(out, spec.Mount{From: path, To: "/etc/" + name})
	}
	return out, nil
}

// AddAddress adds an address of the container's own name to its hosts file; the address is known only after the network
// is made. It does nothing if the machine has its own file.
func (s Store) AddAddress(n Name, hostname string, at netip.Addr) error {
	f, err := os.OpenFile(filepath.Join(s.bundleDir(n.ID), "files", "hosts"), os.O_WRONLY|os.O_APPEND, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fault.Wrap(err, fault.Unavailable, fault.CodeFile, "the file %s cannot be written", "/etc/hosts")
	}
	defer f.Close()
	if _, err := fmt.Fprintf(f, "%s\t%s\n", at, hostname); err != nil {
		return fault.Wrap(err, fault.Unavailable, fault.CodeFile, "the file %s cannot be written", "/etc/hosts")
	}
	return nil
}

// textsOf returns the contents of the files by name; with the host's network, the host's own.
func textsOf(in *frame.Container) (map[string]string, error) {
	out := map[string]string{"hostname": in.Hostname + "\n"}
	if in.HostNet {
		for _, name := range []string{"hosts", "resolv.conf"} {
			raw, err := os.ReadFile("/etc/" + name)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, err
			}
			out[name] = string(raw)
		}
		return out, nil
	}
	out["hosts"] = fmt.Sprintf("127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n%s\t%s\n",
		in.Network.Address, in.Hostname)
	servers, err := nameserverLines(in.Network)
	out["resolv.conf"] = servers
	return out, err
}

// nameserverLines returns the content of resolv.conf. Its only server is the cluster's, if there is one, which forwards
// other names to the host's servers: with two servers, some resolvers such as musl's query both and believe the first
// answer, even a negative one. A Closed container also gets the host's servers that it can reach, since the cluster's
// server resolves only the cluster's names for it. Names of one label are sought in the container's cluster domains,
// then in the host's domains.
func nameserverLines(n *netplan.Network) (string, error) {
	var servers, search, options []string
	at := n.Nameserver()
	ours := at.IsValid()
	if ours {
		servers, search = []string{at.String()}, n.Search
	}
	for _, file := range []string{"/run/systemd/resolve/resolv.conf", "/etc/resolv.conf"} {
		raw, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", err
		}
		s, d, o := resolverOf(raw)
		search, options = append(search, d...), o
		for _, at := range s {
			if !ours || n.Closed && canReach(n, at) {
				servers = append(servers, at)
			}
		}
		break
	}
	var b strings.Builder
	for _, s := range servers {
		fmt.Fprintf(&b, "nameserver %s\n", s)
	}
	if len(search) > 0 {
		fmt.Fprintf(&b, "search %s\n", strings.Join(search, " "))
	}
	b.WriteString(strings.Join(append([]string{"options timeout:2 attempts:2"}, options...), " ") + "\n")
	return b.String(), nil
}

// canReach reports whether a Closed container may reach a server.
func canReach(n *netplan.Network, server string) bool {
	at, err := netip.ParseAddr(server)
	return err == nil && slices.ContainsFunc(n.Egress, func(p netip.Prefix) bool { return p.Contains(at) })
}

// resolverOf returns the parts of a host's resolv.conf that also apply to containers: servers that are not on the host
// itself, search domains, and the ndots option.
func resolverOf(raw []byte) (servers, search, options []string) {
	for line := range bytes.Lines(raw) {
		words := strings.Fields(string(line))
		if len(words) < 2 {
			continue
		}
		switch words[0] {
		case "nameserver":
			a, err := netip.ParseAddr(words[1])
			if err == nil && len(words) == 2 && !a.IsLoopback() && !a.IsLinkLocalUnicast() {
				servers = append(servers, a.String())
			}
		case "search", "domain": // the last one wins
			search = slices.DeleteFunc(words[1:], func(d string) bool { return d == "." })
		case "options":
			for _, o := range words[1:] {
				if strings.HasPrefix(o, "ndots:") {
					options = append(options, o)
				}
			}
		}
	}
	return servers, search, options
}
