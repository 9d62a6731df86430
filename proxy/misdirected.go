package proxy

import (
	"crypto/tls"
	"crypto/x509"
	"sync"

	"github.com/soukhq/souk/fault"
)

// maxShown bounds for how many names it is remembered what was shown.
const maxShown = 4096

// codeMisdirected says that the connection was made for another host. A client may ask again over another one.
const codeMisdirected fault.Code = "misdirected"

// shownCerts are the certificates that clients were shown, by the name that they asked for.
type shownCerts struct {
	mu     sync.Mutex
	byName map[string]*x509.Certificate
}

// rememberShown returns a config that remembers what it shows.
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

// refuseMisdirected refuses a request for a host that the certificate of its connection does not vouch for (RFC 9110,
// 7.4). Which app is meant is the authority's to say and not the connection's: a browser sends requests for all names
// of a certificate over one connection. Who named no host when it connected was not shown a certificate for one.
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
		"the request is for %.80q and its connection was made for %.80q, whose certificate does not cover that; make "+
			"another connection", host, named)
}
