package machines

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/machine"
)

// networkFlags describe a machine's network.
type networkFlags struct {
	mode    string
	publish publishFlag
	from    []string
	egress  []string
	share   bool
}

func (o *networkFlags) add(f *pflag.FlagSet) {
	f.StringVar(&o.mode, "network", "",
		"own: a link and an address (default for images); none: loopback alone; host: that of the worker's host, "+
			"where the worker allows it")
	f.VarP(&o.publish, "publish", "p",
		"[ADDRESS:]HOST:PORT[/udp], a port of the worker's host that leads to one of the machine, at all of the "+
			"host's addresses or at one, such as 127.0.0.1; repeatable")
	f.StringArrayVar(&o.from, "allow-from", nil, "APP, another app whose machines may connect to it; repeatable")
	f.StringArrayVar(&o.egress, "egress", nil,
		"a network outside that it may reach, such as 192.0.2.0/24, and no other; none: nothing outside; repeatable "+
			"(default: all)")
	f.BoolVar(&o.share, "share-ports", false,
		"other programs of the worker's host may have the ports of its services, too, as with SO_REUSEPORT; of what "+
			"shares the host's network")
}

// apply sets the given flags in a config.
func (o *networkFlags) apply(c *machine.Config) {
	if o.mode == "" && len(o.publish)+len(o.from)+len(o.egress) == 0 && !o.share {
		return
	}
	var n machine.Network
	if c.Network != nil {
		n = *c.Network
	}
	n.Mode = cmp.Or(machine.NetworkMode(o.mode), n.Mode)
	if len(o.publish) > 0 {
		n.Publish = slices.Clone(o.publish)
	}
	if len(o.from) > 0 {
		n.From = slices.Clone(o.from)
	}
	if len(o.egress) > 0 {
		n.Egress = slices.Clone(o.egress)
	}
	n.SharePorts = n.SharePorts || o.share
	c.Network = &n
}

// publishFlag is a list of ports, each written [ADDRESS:]HOST:PORT[/udp], an address of IPv6 in brackets.
type publishFlag []machine.Publish

// Type is what the flag's value is called.
func (*publishFlag) Type() string { return cli.PortsKind }

// String writes the ports as they are set.
func (p *publishFlag) String() string {
	var out []string
	for _, x := range *p {
		text := fmt.Sprintf("%d:%d/%s", x.HostPort, x.Port, cmp.Or(x.Protocol, "tcp"))
		if x.Address != "" {
			text = net.JoinHostPort(x.Address, text)
		}
		out = append(out, text)
	}
	return strings.Join(out, ",")
}

// Set adds one.
func (p *publishFlag) Set(text string) error {
	ports, protocol, said := strings.Cut(text, "/")
	var x machine.Publish
	if strings.Count(ports, ":") > 1 {
		address, rest, err := cutAddress(ports)
		if err != nil {
			return err
		}
		x.Address, ports = address, rest
	}
	host, port, both := strings.Cut(ports, ":")
	var errs [2]error
	x.HostPort, errs[0] = strconv.Atoi(host)
	x.Port, errs[1] = strconv.Atoi(port)
	if err := errors.Join(errs[:]...); err != nil || !both {
		return errors.Join(err, strconv.ErrSyntax)
	}
	switch {
	case protocol == "udp":
		x.Protocol = protocol
	case said && protocol != "tcp":
		return strconv.ErrSyntax
	}
	*p = append(*p, x)
	return nil
}

// cutAddress takes the address off "ADDRESS:HOST:PORT"; "": all addresses.
func cutAddress(text string) (address, rest string, err error) {
	i := strings.LastIndexByte(text[:strings.LastIndexByte(text, ':')], ':')
	at, rest := text[:i], text[i+1:]
	inner := strings.TrimSuffix(strings.TrimPrefix(at, "["), "]")
	a, err := netip.ParseAddr(inner)
	switch {
	case err != nil:
		return "", "", err
	case a.Is6() != (len(at) == len(inner)+2): // an address of IPv6 has brackets, one of IPv4 none
		return "", "", strconv.ErrSyntax
	case a.IsUnspecified():
		return "", rest, nil
	}
	return a.String(), rest, nil
}
