package proxy

import (
	"crypto/tls"
	"crypto/x509"
	"sync"

	"github.com/soukhq/souk/fault"
)

// maxShown bounds the names in shownCerts.
const maxShown = 4096

// codeMisdirected says that the connection was made for another host. The client may try again over a new connection.
const codeMisdirected fault.Code = "misdirected"

// shownCerts holds the certificates shown to clients, by the requested name.
type shownCerts struct {
	mu     sync.Mutex
	byName map[string]*x509.Certificate
}

// rememberShown returns a config that records the certificates it shows.
func (s *shownCerts) rememberShown(conf *tls.Config) *tls.Config {
	conf = conf.Clone()
	get, fixed := conf.GetCertificate, conf.Certificates
	conf.GetCertificate = func(hello *tls.ClientHelloInfo) (c *tls.Certificate, err error) {
		if get != nil {
			c, err = get(hello)
		}
		switch {
		case c != nil:
			s.noteShown(hello.ServerName, c.Leaf)
		case err == nil && len(fixed) == 1:
			s.noteShown(hello.ServerName, fixed[0].Leaf)
		}
		return c, err
	}
	return conf
}

func (s *shownCerts) noteShown(name string, leaf *x509.Certificate) {
	if leaf == nil || name == "" {
		return
	}
	name = bareHost(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byName == nil {
		s.byName = map[string]*x509.Certificate{}
	}
	for other := range s.byName {
		if _, has := s.byName[name]; has || len(s.byName) < maxShown {
			break
		}
		delete(s.byName, other)
	}
	s.byName[name] = leaf
}

func (s *shownCerts) shownFor(name string) *x509.Certificate {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byName[name]
}

// refuseMisdirected refuses a request for a host that its connection's certificate does not cover (RFC 9110, 7.4). The
// request's authority names the app, not the connection: browsers send requests for all names of a certificate over one
// connection. Clients that sent no SNI are not checked.
func (x *exchange) refuseMisdirected() error {
	if x.r.TLS == nil || x.r.TLS.ServerName == "" || x.door.App != "" {
		return nil
	}
	host, named := bareHost(x.r.Host), bareHost(x.r.TLS.ServerName)
	if host == named {
		return nil
	}
	if leaf := x.p.shown.shownFor(named); leaf != nil && leaf.VerifyHostname(host) == nil {
		return nil
	}
	return fault.New(fault.Invalid, codeMisdirected,
		"the request is for %.80q, but its connection was made for %.80q, whose certificate does not cover that; "+
			"open another connection", host, named)
}
