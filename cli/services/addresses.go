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
	Host string `json:"host_header,omitempty"` // Host header to send, if the URL has another name
	Only string `json:"only_on,omitempty"`     // the only host that can reach it
}

// Text describes the address.
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

// Addresses returns where an app answers, as seen from this host. There are none without a service with a name or port,
// or if the answering souk has no proxy.
func Addresses(ctx context.Context, cl *client.Client, app string) ([]Address, error) {
	list, err := cl.Services(ctx, app)
	if err != nil {
		return []Address{}, err
	}
	return Of(&list, cl), nil
}

// Of returns the addresses of listed services.
func Of(list *api.ServiceList, cl *client.Client) []Address {
	if list.Doors == nil {
		return []Address{}
	}
	return addresses(list, hostAsked(cl.Addr()))
}

// Curl returns a curl command for the address.
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

// ShowAddresses prints an app's addresses, indented.
func ShowAddresses(c *cli.Env, all []Address) {
	for _, a := range all {
		c.Field("address", "%s", a.Text())
	}
}

// hostAsked returns the host of the answering souk; "": this one.
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

// addresses returns where services answer, each once. host is that of the doors' member; "": this one.
func addresses(list *api.ServiceList, host string) []Address {
	out := []Address{}
	add := func(a Address) {
		if !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	for i := range list.Services {
		named := map[string]bool{} // names whose first URL was taken (the TLS one, if any)
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

// reached returns the address of a URL that is served at an address of a host.
func reached(u *url.URL, at, host string) Address {
	name := u.Hostname()
	below := name == "localhost" || strings.HasSuffix(name, ".localhost") // resolves to the client's own host
	if u.Scheme != "tcp" && !below {
		return Address{URL: u.String()} // a DNS name that leads, or should lead, there
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

// AddressesOrNote is Addresses for a command whose work is done: it only prints a note on an error.
func AddressesOrNote(ctx context.Context, c *cli.Env, cl *client.Client, app string) []Address {
	all, err := Addresses(ctx, cl, app)
	if err != nil {
		c.Note("where %s answers could not be asked (%s); \"souk services %s\" says it", app, fault.As(err).Text, app)
		return []Address{}
	}
	return all
}
