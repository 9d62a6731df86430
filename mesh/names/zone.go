package names

import (
	"math/rand/v2"
	"net/netip"

	"github.com/miekg/dns"
)

// Zone is the domain of all names.
const Zone = "souk."

// Limits of an answer.
const (
	MaxAnswers = 64 // machines
	ttl        = 2  // seconds
)

// Machine is a started machine on a reachable worker.
type Machine struct {
	ID, Name, Worker, Region string
	// its own, or that of its worker's host; invalid: no address is reachable from here
	Addr  netip.Addr
	V4    netip.Addr // its IPv4 address on this host, besides Addr; invalid: unknown
	Port  uint16     // port of its first service; 0: none
	Unled bool       // V4 is unreachable for the client, so answers leave it out
}

// Entry is the address of this host that accepts connections for an app or a group when no machine's own address does.
type Entry struct {
	V4, V6 netip.Addr // on this host, reachable only for its containers; invalid: no entry of that family
	Ports  []uint16   // ports open at the entry
}

// View answers from the current state of the cluster. Its methods are called from many goroutines.
type View interface {
	// Started lists the machines of an app, or of one of its groups if group is not "", that accept requests: they are
	// started, pass their checks and are kept up. It returns at most most of them, drawn at random. known reports
	// whether the app or group exists.
	Started(app, group string, most int) (list []Machine, known bool)
	// Named returns the started machine of an app that has label (in lower case) as its id or name.
	Named(app, label string) (m Machine, found bool)
	// Entry returns the entry of an app, or of a group if group is not "". known reports whether the app or group has,
	// or is about to have, machines that the entry can forward to.
	Entry(app, group string) (at Entry, known bool)
	// Refuses reports whether no machine of an app or group accepts connections from the asking container. Its answer
	// is then the entry, which can report the refusal.
	Refuses(app, group string, asker netip.Addr) bool
}

// Narrow is a View for containers without egress: they reach other machines only by Machine.Addr.
type Narrow struct{ View }

// Started is View's, with V4 marked as unreachable.
func (v Narrow) Started(app, group string, most int) (list []Machine, known bool) {
	list, known = v.View.Started(app, group, most)
	for i := range list {
		list[i].Unled = true
	}
	return list, known
}

// Named is View's, with V4 marked as unreachable.
func (v Narrow) Named(app, label string) (m Machine, found bool) {
	m, found = v.View.Named(app, label)
	m.Unled = true
	return m, found
}

// Answer returns the answer to one message from an address. It never panics and never fails: a malformed message gets
// the response code for its defect, and a message that must not be answered gets nil.
func Answer(v View, q *dns.Msg, asker netip.Addr) *dns.Msg {
	if q.Response {
		return nil // otherwise two servers could answer each other forever
	}
	m := new(dns.Msg)
	m.SetReply(q)
	m.Authoritative = true
	switch {
	case q.Opcode != dns.OpcodeQuery:
		m.Rcode = dns.RcodeNotImplemented
		return m
	case len(q.Question) != 1:
		m.Question, m.Rcode = nil, dns.RcodeFormatError
		return m
	}
	ask := q.Question[0]
	name := dns.CanonicalName(ask.Name)
	if ask.Qclass != dns.ClassINET || !dns.IsSubDomain(Zone, name) || ask.Qtype == dns.TypeANY ||
		ask.Qtype == dns.TypeAXFR || ask.Qtype == dns.TypeIXFR {
		m.Rcode, m.Authoritative = dns.RcodeRefused, false
		return m
	}
	x := lookup(v, name)
	rand.Shuffle(len(x.list), func(i, j int) { x.list[i], x.list[j] = x.list[j], x.list[i] })
	list, self := x.list, false
	if x.single && (ask.Qtype == dns.TypeA || ask.Qtype == dns.TypeAAAA) {
		list, self = keepFirst(x.list, ask, asker)
	}
	for _, one := range list {
		m.Answer, m.Extra = appendAnswer(m.Answer, m.Extra, ask, x.app, one)
	}
	only := len(m.Answer) == 0 || self && len(x.list) > 1 || x.entered && v.Refuses(x.app, x.group, asker)
	if only || ask.Qtype == dns.TypeAAAA {
		x.addEntry(v, m, ask, only)
	}
	if !x.known {
		m.Rcode = dns.RcodeNameError
	}
	if len(m.Answer) == 0 {
		m.Ns = append(m.Ns, soaRecord())
		if ask.Qtype == dns.TypeSOA && name == Zone {
			m.Answer, m.Ns = m.Ns, nil
		}
	}
	return m
}

// keepFirst returns the first machine of a shuffled list that has an address of the requested kind. It returns only one
// because most resolvers, given several, always pick the address most like their own: a client would not spread its
// requests, and a machine of the app would always pick itself. The asking machine itself is returned only if there is
// no other.
func keepFirst(list []Machine, ask dns.Question, asker netip.Addr) (_ []Machine, itself bool) {
	var self []Machine
	for i, m := range list {
		if m.addressRecord(ask.Name, ask.Qtype) == nil {
			continue
		}
		if m.V4.IsValid() && m.V4 == asker.Unmap() {
			self = list[i : i+1]
			continue
		}
		return list[i : i+1], false
	}
	return self, len(self) > 0
}

// every is the label before a name that asks for all of its machines.
const every = "_all"

// meant is the meaning of a name.
type meant struct {
	app, group string // "": the name contains none
	list       []Machine
	single     bool // answer with one of the machines, not all
	entered    bool // the name is that of an app or group, so it may have an entry
	known      bool
}

// lookup returns the meaning of a canonical name of the zone.
func lookup(v View, name string) (x meant) {
	labels := dns.SplitDomainName(name)
	x.single = len(labels) < 3 || labels[0] != every
	if !x.single {
		labels = labels[1:]
	}
	switch len(labels) {
	case 1:
		x.known = true // the zone itself
		return x
	case 2:
		x.app = labels[0]
	case 3:
		x.app, x.group = labels[1], labels[0]
		if m, found := v.Named(x.app, x.group); found {
			x.list, x.known = []Machine{m}, true
			return x
		}
	default:
		return x
	}
	x.entered = true
	x.list, x.known = v.Started(x.app, x.group, MaxAnswers)
	return x
}

// addEntry adds the entry to an answer. If only is set (no machine to return, or only the asking one), the entry
// replaces the machines. In an AAAA answer it follows a machine's address as well: if the server there listens only on
// IPv4, the connection is refused, and the client tries the entry next.
func (x *meant) addEntry(v View, m *dns.Msg, ask dns.Question, only bool) {
	if !x.entered {
		return
	}
	at, known := v.Entry(x.app, x.group)
	x.known = x.known || known
	if !known || !x.single || !at.V4.IsValid() && !at.V6.IsValid() {
		return
	}
	switch ask.Qtype {
	case dns.TypeA, dns.TypeAAAA:
		if only {
			m.Answer = nil
		}
		m.Answer = at.appendRecord(m.Answer, ask.Name, ask.Qtype)
	case dns.TypeSRV:
		if len(at.Ports) > 0 {
			head := dns.RR_Header{Name: ask.Name, Rrtype: ask.Qtype, Class: dns.ClassINET, Ttl: ttl}
			m.Answer = []dns.RR{&dns.SRV{Hdr: head, Priority: 1, Weight: 1, Port: at.Ports[0], Target: ask.Name}}
			m.Extra = at.appendRecord(at.appendRecord(nil, ask.Name, dns.TypeAAAA), ask.Name, dns.TypeA)
		}
	}
}

// appendRecord appends the entry's records of a kind (A or AAAA) under a name.
func (e *Entry) appendRecord(to []dns.RR, name string, kind uint16) []dns.RR {
	for _, a := range []netip.Addr{e.V6, e.V4} {
		if rr := newAddressRecord(name, a); rr != nil && rr.Header().Rrtype == kind {
			to = append(to, rr)
		}
	}
	return to
}

// appendAnswer appends a machine's records for the question.
func appendAnswer(answer, extra []dns.RR, ask dns.Question, app string, m Machine) (_, _ []dns.RR) {
	head := dns.RR_Header{Name: ask.Name, Rrtype: ask.Qtype, Class: dns.ClassINET, Ttl: ttl}
	switch ask.Qtype {
	case dns.TypeA, dns.TypeAAAA:
		if rr := m.addressRecord(ask.Name, ask.Qtype); rr != nil && !hasRecord(answer, rr) {
			answer = append(answer, rr)
		}
	case dns.TypeSRV:
		if m.Port == 0 || !m.Addr.IsValid() {
			break
		}
		target := m.ID + "." + app + "." + Zone
		answer = append(answer, &dns.SRV{Hdr: head, Priority: 1, Weight: 1, Port: m.Port, Target: target})
		for _, kind := range []uint16{dns.TypeAAAA, dns.TypeA} {
			if rr := m.addressRecord(target, kind); rr != nil {
				extra = append(extra, rr)
			}
		}
	case dns.TypeTXT:
		answer = append(answer,
			&dns.TXT{Hdr: head, Txt: []string{txtString("id", m.ID), txtString("name", m.Name),
				txtString("worker", m.Worker),
				txtString("region", m.Region)}})
	}
	return answer, extra
}

// txtString returns one string of a TXT record, of at most 255 bytes.
func txtString(key, value string) string {
	s := key + "=" + value
	return s[:min(len(s), 255)]
}

// addressRecord returns the machine's record of a kind (A or AAAA) under a name, nil if it has none.
func (m *Machine) addressRecord(name string, kind uint16) dns.RR {
	led := m.V4
	if m.Unled {
		led = netip.Addr{}
	}
	for _, a := range []netip.Addr{m.Addr, led} {
		if rr := newAddressRecord(name, a); rr != nil && rr.Header().Rrtype == kind {
			return rr
		}
	}
	return nil
}

func newAddressRecord(name string, a netip.Addr) dns.RR {
	a = a.Unmap()
	switch {
	case a.Is4():
		return &dns.A{Hdr: dns.RR_Header{Name: name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: ttl}, A: a.AsSlice()}
	case a.Is6():
		return &dns.AAAA{Hdr: dns.RR_Header{Name: name, Rrtype: dns.TypeAAAA, Class: dns.ClassINET, Ttl: ttl},
			AAAA: a.AsSlice()}
	}
	return nil
}

// hasRecord reports whether an address is in the list already: several machines of one app may share a host.
func hasRecord(list []dns.RR, rr dns.RR) bool {
	for _, x := range list {
		if dns.IsDuplicate(x, rr) {
			return true
		}
	}
	return false
}

// soaRecord returns the record of a negative answer (RFC 2308); it limits how long the answer may be cached.
func soaRecord() dns.RR {
	return &dns.SOA{Hdr: dns.RR_Header{Name: Zone, Rrtype: dns.TypeSOA, Class: dns.ClassINET, Ttl: ttl},
		Ns: "ns." + Zone, Mbox: "nobody." + Zone,
		Serial: 1, Refresh: 3600, Retry: 600, Expire: 86400, Minttl: ttl}
}
