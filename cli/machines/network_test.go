package machines

import (
	"testing"

	"github.com/soukhq/souk/machine"
)

// TestPublishFlagParsesAndPrintsPorts: what -p takes, and how it is shown.
func TestPublishFlagParsesAndPrintsPorts(t *testing.T) {
	t.Parallel()
	at := func(address string, host, port int, protocol string) machine.Publish {
		return machine.Publish{Address: address, Protocol: protocol, HostPort: host, Port: port}
	}
	for _, c := range []struct {
		text    string
		publish machine.Publish
		shown   string
	}{
		{"8080:80", at("", 8080, 80, ""), "8080:80/tcp"},
		{"53:54/udp", at("", 53, 54, "udp"), "53:54/udp"},
		{"127.0.0.1:8080:80", at("127.0.0.1", 8080, 80, ""), "127.0.0.1:8080:80/tcp"},
		{"127.0.0.1:53:54/udp", at("127.0.0.1", 53, 54, "udp"), "127.0.0.1:53:54/udp"},
		{"[::1]:8080:80", at("::1", 8080, 80, ""), "[::1]:8080:80/tcp"}, // which the server refuses
		{"[2001:DB8:0::7]:1:2/tcp", at("2001:db8::7", 1, 2, ""), "[2001:db8::7]:1:2/tcp"},
		{"0.0.0.0:8080:80", at("", 8080, 80, ""), "8080:80/tcp"},
		{"[::]:8080:80", at("", 8080, 80, ""), "8080:80/tcp"},
	} {
		var p publishFlag
		if err := p.Set(c.text); err != nil || len(p) != 1 || p[0] != c.publish || p.String() != c.shown {
			t.Errorf("%s: %+v shown as %s, %v", c.text, p, p.String(), err)
		}
	}
	for _, text := range []string{"", ":", "::", "80", "127.0.0.1::80", "localhost:1:2", "::1:8080:80",
		"[127.0.0.1]:1:2", "[::1:1:2", "::1]:1:2", "[]:1:2", "127.0.0.1:1:2:3", "[::1]:1", "127.0.0.1:a:2",
		"127.0.0.1:1:2/sctp"} {
		var p publishFlag
		if err := p.Set(text); err == nil {
			t.Errorf("%q is taken as %+v", text, p)
		}
	}
}
