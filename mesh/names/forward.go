package names

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/miekg/dns"
)

// Bounds of what is asked of other servers.
const (
	MaxForwarded    = 128                     // queries under way at once
	MaxForwardedOne = 32                      // of one address that asks
	forwardTime     = 1500 * time.Millisecond // for one server to answer
	maxServers      = 3                       // that are asked in turn, as glibc does
	readAgain       = 5 * time.Second         // for how long what a file says of servers is believed
)

// Forwarder asks the host's own servers for names outside of the zone, so that who asks here needs no other server: of
// two servers some resolvers believe whichever answers first.
type Forwarder struct {
	// Servers returns the servers to be asked, each "HOST:PORT", the first one first; nil: those of /etc/resolv.conf.
	Servers func() []string

	mu      sync.Mutex
	all     int                // queries under way
	by      map[netip.Addr]int // of them, by who asks
	servers []string           // as of read
	read    time.Time
}

// forwardQuery answers a query whose name lies outside of the zone. An answer that no server gives is SERVFAIL.
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

// isAnswerTo reports whether a message answers a query: another may have been sent by whoever guesses.
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

// addQuery counts a query in, unless too many are under way.
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

// serversToAsk returns the servers to be asked.
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

// serversOf reads a resolv.conf as the host's own programs do: one that names no server means the host itself.
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

// forwardable reports whether a query is one that is passed on: for a name of somebody else.
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
