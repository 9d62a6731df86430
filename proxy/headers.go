package proxy

import (
	"fmt"
	"net"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/proxy/hop"
)

const (
	requestHeader = "Fly-Request-Id"
	replayHeader  = "Fly-Replay"
	wakeHeader    = "Souk-Wake"   // in an answer: the wake's phases
	timingHeader  = "Souk-Timing" // in a request: always send Souk-Wake
	toHeader      = "Souk-To"     // between members: app, machine, port
	askHeader     = "Souk-Ask"    // between members: a question to the owner, not to the machine
	whoseHeader   = "Souk-Whose"  // between members: the client, see clientKey
	correctHeader = "Souk-Correction"
)

// wellFormed refuses malformed requests that net/http accepts, so that no app has to handle them.
func wellFormed(r *http.Request) error {
	switch {
	case r.Host == "":
		return fault.New(fault.Invalid, codeHost, "a request must say for which host it is (the header Host)")
	case !isHostPort(r.Host):
		return fault.New(fault.Invalid, codeHost, "the header Host is not a host with an optional port")
	case !httpguts.ValidHeaderFieldName(r.Method): // HTTP/2 allows any bytes
		return fault.New(fault.Invalid, fault.CodeMethod, "%.20q is no method of HTTP", r.Method)
	case r.Method == http.MethodConnect || r.Method == http.MethodTrace:
		return fault.New(fault.Invalid, fault.CodeMethod,
			"%s is not possible here: this proxy forwards requests to apps only",
			r.Method)
	case r.URL.Scheme != "" && bareHost(r.URL.Host) == "":
		return fault.New(fault.Invalid, codeHost, "the request target is an absolute URI that names no host")
	case r.URL.Host != "" && bareHost(r.URL.Host) != bareHost(r.Host), !sameHost(r):
		return fault.New(fault.Invalid, codeHost, "the request target and the header Host name different hosts")
	case !isTarget(r):
		return fault.New(fault.Invalid, codeTarget,
			"the request target is not a path with an optional query; write a space in it as %%20")
	}
	return nil
}

// isHostPort reports whether every parser reads s as a host with an optional port.
func isHostPort(s string) bool {
	if !httpguts.ValidHostHeader(s) || strings.ContainsAny(s, "/@\\?#,%'\"") {
		return false
	}
	_, port, found := strings.Cut(s[strings.LastIndexByte(s, ']')+1:], ":")
	return !found || port != "" && len(port) <= 5 && strings.Trim(port, "0123456789") == ""
}

// sameHost reports whether the Host header of an HTTP/2 request, if any, equals its authority.
func sameHost(r *http.Request) bool {
	for _, h := range r.Header["Host"] {
		if !strings.EqualFold(h, r.Host) {
			return false
		}
	}
	return true
}

// isTarget reports whether a request's target is a path (RFC 9112, 3.2.1 and 3.2.2) on whose end all parsers agree.
func isTarget(r *http.Request) bool {
	u := r.URL
	if u.Opaque != "" || u.Scheme != "" && u.Scheme != "http" && u.Scheme != "https" {
		return false
	}
	for i := range len(r.RequestURI) {
		if c := r.RequestURI[i]; c <= ' ' || c == 0x7f {
			return false
		}
	}
	return strings.HasPrefix(u.Path, "/") || u.Path == "" || u.Path == "*" && r.Method == http.MethodOptions
}

// headersFor returns the headers that the proxy adds to a request to a machine.
func (x *exchange) headersFor(b *backend) []hop.Field {
	proto, port := "http", x.door.outsidePort()
	if x.r.TLS != nil {
		proto = "https"
	}
	for_ := x.peer
	if x.p.trustsClient(x.r.RemoteAddr) {
		if prior := x.r.Header["X-Forwarded-For"]; len(prior) > 0 {
			for_ = strings.Join(prior, ", ") + ", " + x.peer
		}
		if p := x.r.Header.Get("X-Forwarded-Proto"); p == "http" || p == "https" {
			proto = p
		}
	}
	out := make([]hop.Field, 0, 10)
	out = append(out,
		hop.Field{Name: "X-Forwarded-For", Value: for_},
		hop.Field{Name: "X-Forwarded-Proto", Value: proto},
		hop.Field{Name: "X-Forwarded-Port", Value: port},
		hop.Field{Name: "Fly-Client-Ip", Value: x.client},
		hop.Field{Name: "Fly-Forwarded-Proto", Value: proto},
		hop.Field{Name: "Fly-Forwarded-Port", Value: port},
		hop.Field{Name: requestHeader, Value: x.id},
		hop.Field{Name: "Fly-Region", Value: string(x.p.o.Region)},
		hop.Field{Name: "Via", Value: viaHeader(x.r)},
	)
	if x.replays > 0 && x.replayed != "" {
		out = append(out, hop.Field{Name: "Fly-Replay-Src", Value: x.replayed})
	}
	if !b.own {
		out = append(out, hop.Field{Name: toHeader, Value: b.Target.String()},
			hop.Field{Name: whoseHeader, Value: x.p.name + " " + x.clientKey()})
	}
	return out
}

// clientKey names the client among the current clients of this process: by its connection, and if several clients share
// that (a trusted front's), by its address, too. For another member it also names the process.
func (x *exchange) clientKey() string {
	if x.client == x.peer {
		return x.r.RemoteAddr
	}
	return x.r.RemoteAddr + " " + x.client
}

func viaHeader(r *http.Request) string {
	v := "1.1 souk"
	if r.ProtoMajor == 2 {
		v = "2.0 souk"
	}
	if prior := r.Header["Via"]; len(prior) > 0 {
		v = strings.Join(prior, ", ") + ", " + v
	}
	return v
}

// isDropped reports whether a header is not passed on, since only the proxy may set it.
func (x *exchange) isDropped(name string) bool {
	return isReserved(name) || saysWhose(name) && !x.p.trustsClient(x.r.RemoteAddr)
}

// saysWhose reports whether other systems' proxies name the client in this header. Many apps and libraries believe such
// headers; souk sets none, and passes them on only from a trusted proxy.
func saysWhose(name string) bool {
	if strings.Contains(name, "_") {
		name = textproto.CanonicalMIMEHeaderKey(strings.ReplaceAll(name, "_", "-"))
	}
	switch name {
	case "True-Client-Ip", "Cf-Connecting-Ip", "Cf-Connecting-Ipv6", "Cf-Pseudo-Ipv4", "X-Client-Ip",
		"X-Cluster-Client-Ip", "Client-Ip", "X-Originating-Ip", "X-Remote-Ip", "X-Remote-Addr",
		"X-Original-Forwarded-For", "X-Original-Host", "X-Envoy-External-Address", "X-Appengine-User-Ip",
		"Fastly-Client-Ip", "X-Azure-Clientip", "X-Azure-Socketip", "Proxy-Client-Ip", "Wl-Proxy-Client-Ip",
		"X-Proxyuser-Ip", "Incap-Client-Ip", "X-Vercel-Forwarded-For", "X-Nf-Client-Connection-Ip":
		return true
	}
	return false
}

// isLast reports whether the connection must close after a request, since its end may be read in two ways: net/http
// silently drops a Content-Length beside a Transfer-Encoding, and the Transfer-Encoding of HTTP/1.0 (RFC 9112, 6.1).
func isLast(r *http.Request) bool {
	return r.ProtoMajor == 1 && (len(r.TransferEncoding) > 0 || r.ProtoMinor == 0)
}

func isReserved(name string) bool {
	if strings.Contains(name, "_") { // many apps read it as "-"
		name = textproto.CanonicalMIMEHeaderKey(strings.ReplaceAll(name, "_", "-"))
		switch name {
		case "Content-Length", "Transfer-Encoding", "Host", "Connection", "Upgrade", "Via":
			return true
		}
	}
	switch {
	case strings.HasPrefix(name, "Souk-"), strings.HasPrefix(name, "X-Forwarded-"):
		return true
	case strings.HasPrefix(name, "Fly-"):
		return name != "Fly-Force-Instance-Id" && name != "Fly-Prefer-Region"
	}
	return name == "Forwarded" || name == "X-Real-Ip"
}

// editAnswer changes the head of an answer on its way to the client.
func (x *exchange) editAnswer(h http.Header) {
	dropSouk(h)
	h[requestHeader] = []string{x.id}
	if x.woke != nil || x.r.Header.Get(timingHeader) != "" {
		h[wakeHeader] = []string{x.serverTiming()}
	}
	x.backend.answers.applyTo(h)
}

// dropSouk drops the headers from a machine's answer that only a proxy may set.
func dropSouk(h http.Header) {
	for name := range h {
		if strings.HasPrefix(name, "Souk-") {
			delete(h, name)
		}
	}
}

// serverTiming returns the Server-Timing header: the phases until the head of the answer came.
func (x *exchange) serverTiming() string {
	total := x.first.Sub(x.began)
	parts := []string{"total;dur=" + millis(total)}
	rest := total
	if x.woke != nil {
		parts = append(parts, "start;dur="+millis(x.woke.Start), "ready;dur="+millis(x.woke.Ready))
		rest -= x.held
		parts = append(parts, "route;dur="+millis(max(0, x.held-x.woke.Start-x.woke.Ready)))
	}
	return strings.Join(append(parts, "first-byte;dur="+millis(rest)), ", ")
}

func millis(d time.Duration) string { return strconv.FormatFloat(float64(d)/1e6, 'f', 2, 64) }

// answers are the headers that a service's config sets in its answers.
type answers struct{ set map[string][]string }

func answersOf(s *machine.Service) *answers {
	out := map[string][]string{}
	for _, p := range s.Ports {
		if p.HTTPOptions == nil || p.HTTPOptions.Response == nil {
			continue
		}
		for name, v := range p.HTTPOptions.Response.Headers {
			if name = textproto.CanonicalMIMEHeaderKey(name); hop.OfOneHop(name) {
				continue // the config may not change an answer's framing
			}
			switch v := v.(type) {
			case bool:
				if !v {
					out[name] = nil
				}
			case []any:
				for _, one := range v {
					out[name] = append(out[name], fmt.Sprint(one))
				}
			default:
				out[name] = []string{fmt.Sprint(v)}
			}
		}
	}
	if len(out) == 0 {
		return nil
	}
	return &answers{out}
}

func (a *answers) applyTo(h http.Header) {
	if a == nil {
		return
	}
	for name, values := range a.set {
		valid := httpguts.ValidHeaderFieldName(name)
		for _, v := range values {
			valid = valid && httpguts.ValidHeaderFieldValue(v)
		}
		switch {
		case !valid:
		case values == nil:
			delete(h, name)
		default:
			h[name] = values
		}
	}
}

// toHTTPS redirects a request in the clear for an app that allows only TLS.
func (x *exchange) toHTTPS() bool {
	if x.r.TLS != nil || !x.p.doors.hasTLS() || !x.p.forcesHTTPS(x.key) {
		return false
	}
	host := bareHost(x.r.Host)
	if port := x.p.doors.portTLS(); port != 443 {
		host = net.JoinHostPort(host, strconv.Itoa(port))
	}
	x.code = http.StatusMovedPermanently
	if x.r.Method != http.MethodGet && x.r.Method != http.MethodHead {
		x.code = http.StatusPermanentRedirect
	}
	x.w.Header().Set("Location", "https://"+host+x.r.URL.RequestURI())
	x.w.WriteHeader(x.code)
	return true
}

// forcesHTTPS reports whether the service of a key requires TLS.
func (p *Proxy) forcesHTTPS(k key) bool {
	for m := range p.o.Fleet.Snapshot().MachinesOf(k.app) {
		if s := k.serviceIn(m.Services); s != nil {
			for i := range s.Ports {
				if s.Ports[i].ForceHTTPS {
					return true
				}
			}
			return false
		}
	}
	return false
}
