package services

import (
	"strings"
	"testing"

	"github.com/soukhq/souk/api"
)

// TestAppAddressesReachTheAppFromEachHost: an app's addresses are such that who reads them reaches it, on the host that is asked and on another.
func TestAppAddressesReachTheAppFromEachHost(t *testing.T) {
	for name, c := range map[string]struct {
		http, https string
		urls        []string
		asked       string
		want        string
	}{
		"on this host": {"127.0.0.1:4284", "", []string{"http://shop.localhost:4284"}, "unix:/run/souk.sock",
			"http://shop.localhost:4284"},
		"on this host, any address": {"[::]:80", "", []string{"http://shop.localhost"}, "127.0.0.1:4280",
			"http://shop.localhost"},
		"on this host, one address": {"10.0.0.7:4284", "", []string{"http://shop.localhost:4284"}, "unix:/s",
			"http://10.0.0.7:4284, asked for Host: shop.localhost"},
		"from another, any address": {"0.0.0.0:4284", "", []string{"http://shop.localhost:4284"},
			"https://fra-1.example:4280", "http://fra-1.example:4284, asked for Host: shop.localhost"},
		"from another, IPv6": {"[::]:4284", "", []string{"http://shop.localhost:4284"}, "https://[2001:db8::7]:4280",
			"http://[2001:db8::7]:4284, asked for Host: shop.localhost"},
		"from another, loopback": {"127.0.0.1:4284", "", []string{"http://shop.localhost:4284"},
			"https://10.0.0.7:4280",
			"http://shop.localhost:4284, on 10.0.0.7 alone: its proxy listens at its loopback address"},
		"a name of the DNS, by TLS": {"0.0.0.0:80", "0.0.0.0:443",
			[]string{"https://shop.example.com", "http://shop.example.com"}, "https://10.0.0.7:4280",
			"https://shop.example.com"},
		"a port, from another": {"127.0.0.1:4284", "", []string{"tcp://0.0.0.0:5432"}, "https://10.0.0.7:4280",
			"tcp://10.0.0.7:5432"},
		"a port, on this host": {"127.0.0.1:4284", "", []string{"tcp://[::]:5432"}, "unix:/s", "tcp://localhost:5432"},
		"a port of loopback, from another": {"127.0.0.1:4284", "", []string{"tcp://127.0.0.1:5432"},
			"https://10.0.0.7:4280",
			"tcp://127.0.0.1:5432, on 10.0.0.7 alone: its proxy listens at its loopback address"},
		"two names and a port": {"127.0.0.1:4284", "", []string{"http://a.localhost:4284", "http://b.localhost:4284",
			"tcp://127.0.0.1:9000"}, "unix:/s",
			"http://a.localhost:4284|http://b.localhost:4284|tcp://localhost:9000"},
		"no door": {"", "", []string{"http://a.localhost:4284"}, "unix:/s", ""},
	} {
		list := api.ServiceList{Doors: &api.Doors{}, Services: []api.ServiceInfo{{URLs: c.urls}, {URLs: c.urls}}}
		if c.http != "" {
			list.Doors.HTTP = []string{c.http}
		}
		if c.https != "" {
			list.Doors.HTTPS = []string{c.https}
		}
		var got []string
		for _, a := range addresses(&list, hostAsked(c.asked)) {
			got = append(got, a.Text())
		}
		if s := strings.Join(got, "|"); s != c.want {
			t.Errorf("%s: %s, not %s", name, s, c.want)
		}
	}
}
