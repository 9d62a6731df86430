package services

import (
	"context"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/fault"
)

// Address is where an app answers.
type Address struct {
	URL  string `json:"url"`
	Host string `json:"host_header,omitempty"` // the name to ask for, where the URL does not say it
	Only string `json:"only_on,omitempty"`     // the host that alone reaches it
}

// Text tells of it in words.
func (a Address) Text() string {
	text := a.URL
	if a.Host != "" {
		text += ", asked for Host: " + a.Host
	}
	if a.Only != "" {
		text += ", on " + a.Only + " alone: its proxy listens at its loopback address"
	}
	return text
}

// Addresses asks where an app answers, for who is where this command runs. There is none without a service that has a
// name or a port, or where the souk that is asked has no proxy.
func Addresses(ctx context.Context, cl *client.Client, app string) ([]Address, error) {
	list, err := cl.Services(ctx, app)
	if err != nil {
		return []Address{}, err
	}
	return Of(&list, cl), nil
}

// Of returns where services answer that a souk has told of.
func Of(list *api.ServiceList, cl *client.Client) []Address {
	if list.Doors == nil {
		return []Address{}
	}
	return addresses(list, hostAsked(cl.Addr()))
}

// Curl returns the command that asks there for a page.
func (a Address) Curl() string {
	text := "curl " + a.URL
	if a.Host != "" {
		text = "curl -H 'Host: " + a.Host + "' " + a.URL
	}
	if a.Only != "" {
		text += ", on " + a.Only
	}
	return text
}

// ShowAddresses prints them, below what they are of.
func ShowAddresses(c *cli.Env, all []Address) {
	for _, a := range all {
		c.Field("address", "%s", a.Text())
	}
}

// hostAsked returns the host of the souk that is asked; "" for this one.
func hostAsked(addr string) string {
	if strings.HasPrefix(addr, "unix:") {
		return ""
	}
	if !strings.Contains(addr, "://") {
		addr = "http://" + addr
	}
	u, err := url.Parse(addr)
	if err != nil || cli.IsLoopback(u.Hostname()) {
		return ""
	}
	return u.Hostname()
}

// addresses returns where services answer, each once. host is that of the member whose doors they are, "" for this one.
func addresses(list *api.ServiceList, host string) []Address {
	out := []Address{}
	add := func(a Address) {
		if !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	for i := range list.Services {
		named := map[string]bool{} // names of which the first URL is had, which is by TLS where there is that
		for _, raw := range list.Services[i].URLs {
			u, err := url.Parse(raw)
			if err != nil || named[u.Hostname()] && u.Scheme != "tcp" {
				continue
			}
			named[u.Hostname()] = true
			if u.Scheme == "tcp" {
				add(reached(u, u.Host, host))
			} else if at := doorOf(list.Doors, u); at != "" {
				add(reached(u, at, host))
			}
		}
	}
	return out
}

// doorOf returns the address at which requests for a URL come in.
func doorOf(d *api.Doors, u *url.URL) string {
	at := d.HTTP
	if u.Scheme == "https" {
		at = d.HTTPS
	}
	if len(at) == 0 {
		return ""
	}
	return at[0]
}

// reached returns how a URL is reached whose requests come in at an address of a host.
func reached(u *url.URL, at, host string) Address {
	name := u.Hostname()
	below := name == "localhost" || strings.HasSuffix(name, ".localhost") // which is this host for whoever asks
	if u.Scheme != "tcp" && !below {
		return Address{URL: u.String()} // a name of the DNS leads there, or is to
	}
	door, err := netip.ParseAddrPort(at)
	if err != nil {
		return Address{URL: u.String()}
	}
	ip := door.Addr().Unmap()
	port := net.JoinHostPort("", u.Port())
	if u.Port() == "" {
		port = ""
	}
	here := host == ""
	a := Address{}
	switch {
	case ip.IsLoopback() && !here:
		if a.Only = host; u.Scheme == "tcp" {
			name = ip.String()
		}
	case ip.IsUnspecified() && !here:
		name = host
	case !ip.IsLoopback() && !ip.IsUnspecified():
		name = ip.String()
	case u.Scheme == "tcp":
		name = "localhost"
	}
	to := *u
	if to.Host = name + port; strings.Contains(name, ":") {
		to.Host = "[" + name + "]" + port
	}
	if u.Scheme != "tcp" && name != u.Hostname() {
		a.Host = u.Hostname()
	}
	a.URL = to.String()
	return a
}

// AddressesOrNote is Addresses for a command whose work is done: that they cannot be had is no failure of it.
func AddressesOrNote(ctx context.Context, c *cli.Env, cl *client.Client, app string) []Address {
	all, err := Addresses(ctx, cl, app)
	if err != nil {
		c.Note("where %s answers could not be asked (%s); \"souk services %s\" says it", app, fault.As(err).Text, app)
		return []Address{}
	}
	return all
}
