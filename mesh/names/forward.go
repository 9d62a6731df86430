package names

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/miekg/dns"
)

// Limits of queries to other servers.
const (
	MaxForwarded    = 128                     // queries in progress
	MaxForwardedOne = 32                      // queries in progress for one address
	forwardTime     = 1500 * time.Millisecond // to wait for one server
	maxServers      = 3                       // servers asked in turn, as in glibc
	readAgain       = 5 * time.Second         // how long the servers read from the file are used
)

// Forwarder asks the host's own servers for names outside of the zone, so that clients need no second server: with two
// servers, some resolvers believe whichever answers first.
type Forwarder struct {
	// Servers returns the servers to ask, each "HOST:PORT", in order of preference; nil: those of /etc/resolv.conf.
	Servers func() []string

	mu      sync.Mutex
	all     int                // queries in progress
	by      map[netip.Addr]int // queries in progress, by client
	servers []string           // as last read from the file
	read    time.Time
}

// forwardQuery answers a query for a name outside of the zone. If no server answers, it returns SERVFAIL.
func (f *Forwarder) forwardQuery(ctx context.Context, q *dns.Msg, asker netip.Addr, tcp bool) *dns.Msg {
	failed := new(dns.Msg)
	failed.SetRcode(q, dns.RcodeServerFailure)
	if !f.addQuery(asker) {
		return failed
	}
	defer f.removeQuery(asker)
	ask := new(dns.Msg)
	ask.Id = dns.Id()
	ask.RecursionDesired, ask.CheckingDisabled, ask.AuthenticatedData = q.RecursionDesired, q.CheckingDisabled,
		q.AuthenticatedData
	ask.Question = q.Question
	edns := q.IsEdns0()
	ask.SetEdns0(maxUDP, edns != nil && edns.Do())
	c := &dns.Client{Net: "udp", Timeout: forwardTime, UDPSize: maxUDP}
	if tcp {
		c.Net = "tcp"
	}
	for _, server := range f.serversToAsk() {
		a, _, err := c.ExchangeContext(ctx, ask, server)
		if err != nil || !isAnswerTo(a, ask) || a.Rcode == dns.RcodeServerFailure || a.Rcode == dns.RcodeRefused {
			continue
		}
		a.Id, a.Question = q.Id, q.Question
		if a.Extra = withoutEdns(a.Extra); edns != nil {
			a.SetEdns0(maxUDP, edns.Do())
		}
		return a
	}
	return failed
}

// isAnswerTo reports whether a message answers a query; others may be guessed by an attacker.
func isAnswerTo(a, ask *dns.Msg) bool {
	return a.Response && a.Id == ask.Id && len(a.Question) == 1 && a.Question[0].Qtype == ask.Question[0].Qtype &&
		dns.CanonicalName(a.Question[0].Name) == dns.CanonicalName(ask.Question[0].Name)
}

func withoutEdns(list []dns.RR) (out []dns.RR) {
	for _, rr := range list {
		if rr.Header().Rrtype != dns.TypeOPT {
			out = append(out, rr)
		}
	}
	return out
}

// addQuery counts a new query, or returns false if too many are in progress.
func (f *Forwarder) addQuery(asker netip.Addr) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.all >= MaxForwarded || f.by[asker] >= MaxForwardedOne {
		return false
	}
	if f.by == nil {
		f.by = map[netip.Addr]int{}
	}
	f.all++
	f.by[asker]++
	return true
}

func (f *Forwarder) removeQuery(asker netip.Addr) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all--
	if f.by[asker]--; f.by[asker] == 0 {
		delete(f.by, asker)
	}
}

// serversToAsk returns the servers to ask.
func (f *Forwarder) serversToAsk() (out []string) {
	if f.Servers != nil {
		return f.Servers()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if now := time.Now(); f.servers == nil || now.Sub(f.read) >= readAgain {
		f.servers, f.read = serversOf("/etc/resolv.conf"), now
	}
	return f.servers
}

// serversOf reads a resolv.conf as the host's own programs do: if it names no server, the server is the host itself.
func serversOf(file string) (out []string) {
	c, err := dns.ClientConfigFromFile(file)
	if err != nil || len(c.Servers) == 0 {
		return []string{"127.0.0.1:53"}
	}
	for _, s := range c.Servers[:min(len(c.Servers), maxServers)] {
		out = append(out, net.JoinHostPort(s, "53"))
	}
	return out
}

// forwardable reports whether to forward a query: an ordinary query for a name outside of the zone.
func forwardable(q *dns.Msg) bool {
	if q.Response || q.Opcode != dns.OpcodeQuery || len(q.Question) != 1 {
		return false
	}
	ask := q.Question[0]
	switch ask.Qtype {
	case dns.TypeANY, dns.TypeAXFR, dns.TypeIXFR:
		return false
	}
	return ask.Qclass == dns.ClassINET && !dns.IsSubDomain(Zone, dns.CanonicalName(ask.Name))
}
