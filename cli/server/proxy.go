package server

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"

	"github.com/spf13/pflag"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/node"
	"github.com/soukhq/souk/proxy/certs"
)

// proxyFlags say where the proxy listens.
type proxyFlags struct {
	HTTP    string
	HTTPS   string
	Certs   string
	ACME    string
	ACMEURL string
	Ports   string
	Domains []string
	Trusted []string
	Proxies []string
	Access  string
	Sample  float64
}

// DefaultHTTP is the proxy's default address, unless another souk uses it.
const DefaultHTTP = "127.0.0.1:4284"

func (o *proxyFlags) add(f *pflag.FlagSet) {
	f.StringVar(&o.HTTP, "http", "", "HOST:PORT at which HTTP requests for machines come in, or off (default: "+
		DefaultHTTP+", or where that is taken any port that is free)")
	f.StringVar(&o.HTTPS, "https", "off", "HOST:PORT at which the same come in over TLS, or off")
	f.StringVar(&o.Certs, "certs", "",
		"a directory with certificates of your own, NAME.crt and NAME.key, read again when they change; default.crt "+
			"is for clients that name no host")
	f.StringVar(&o.ACME, "acme", "", "the e-mail address of who agrees to the terms of an ACME authority, by which "+
		"certificates are got for apps' names (default: none are)")
	f.StringVar(&o.ACMEURL, "acme-directory", letsEncrypt, "the URL of the ACME authority")
	f.StringVar(&o.Ports, "ports", "127.0.0.1",
		"the address at which the other ports of services are opened, or off")
	f.StringArrayVar(&o.Domains, "domain", []string{"localhost"},
		"a domain below which each app has its name, as shop.localhost; repeatable")
	f.StringArrayVar(&o.Trusted, "trusted-proxy", nil,
		"a network such as 10.0.0.0/8 of proxies in front, which may say for whom they ask (X-Forwarded-For); "+
			"repeatable")
	f.StringArrayVar(&o.Proxies, "proxy-protocol-from", nil,
		"a network such as 10.0.0.0/8 of proxies in front whose connections begin with a header of the PROXY "+
			"protocol, version 1 or 2, at each door for requests; repeatable")
	f.StringVar(&o.Access, "access-log", "", "a file to which a line of JSON goes for each request; - is stderr")
	f.Float64Var(&o.Sample, "access-log-share", 1,
		"which share of the requests the access log gets, those that fail or wake a machine always")
}

const letsEncrypt = "https://acme-v02.api.letsencrypt.org/directory"

// proxyDoors are the proxy's listeners and its log.
type proxyDoors struct {
	how *node.Proxy // nil: no proxy
	log *os.File    // nil: none
}

// plan opens the proxy's listeners.
func (o *proxyFlags) plan(listen listenFunc) (p proxyDoors, err error) {
	how := &node.Proxy{Domains: o.Domains, Sample: o.Sample,
		Inside: func(addr string) (net.Listener, error) { return listen("inside", addr) }}
	if o.Sample < 0 || o.Sample > 1 {
		return p, cli.Usagef("--access-log-share is 0 to 1, not %v", o.Sample)
	}
	if how.Trusted, err = networks("--trusted-proxy", o.Trusted); err != nil {
		return p, err
	}
	if how.ProxyProtocol, err = networks("--proxy-protocol-from", o.Proxies); err != nil {
		return p, err
	}
	if o.Ports != "off" {
		if _, err := netip.ParseAddr(o.Ports); err != nil {
			return p, cli.Usagef("--ports is an address such as 127.0.0.1 or ::, or off, not %q", o.Ports)
		}
		how.Listen = func(port int) (net.Listener, error) {
			return listen("port", net.JoinHostPort(o.Ports, strconv.Itoa(port)))
		}
	}
	switch o.Access {
	case "":
	case "-":
		how.Access = os.Stderr
	default:
		if p.log, err = os.OpenFile(o.Access, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
			return p, fault.Wrap(err, fault.Invalid, codeAccessLog, "the access log %s cannot be opened", o.Access)
		}
		how.Access = p.log
	}
	p.how = how
	if o.HTTP != "off" {
		if how.HTTP, err = o.listen(listen); err != nil {
			return p, errors.Join(err, p.close())
		}
	}
	if err = o.overTLS(how, listen); err != nil {
		return p, errors.Join(err, p.close())
	}
	return p, nil
}

// networks parses a flag's list of networks.
func networks(flag string, list []string) (all []netip.Prefix, err error) {
	for _, text := range list {
		n, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, cli.Usagef("%s is a network such as 10.0.0.0/8, not %q", flag, text)
		}
		all = append(all, n)
	}
	return all, nil
}

// overTLS opens the door for HTTP over TLS, and sets up its certificates.
func (o *proxyFlags) overTLS(how *node.Proxy, listen listenFunc) (err error) {
	if o.HTTPS == "off" || o.HTTPS == "" {
		if o.Certs != "" || o.ACME != "" {
			return cli.Usagef("--certs and --acme go with --https HOST:PORT")
		}
		return nil
	}
	how.Certs = &node.Certs{Files: o.Certs}
	if o.ACME != "" {
		how.Certs.ACME = &certs.ACME{
			Directory: o.ACMEURL,
			Email:     o.ACME,
			Agreed:    true,
			HTTP:      how.HTTP != nil,
			TLS:       true,
		}
	}
	if how.HTTPS, err = listen("https", o.HTTPS); err != nil {
		return fault.Wrap(err, fault.Unavailable, fault.CodeListen,
			"%s cannot be listened on for HTTP requests over TLS; give another --https, or off", o.HTTPS)
	}
	return nil
}

// listen opens the door for HTTP. It is no error if another souk has the default address already.
func (o *proxyFlags) listen(listen listenFunc) (net.Listener, error) {
	at := o.HTTP
	if at == "" {
		at = DefaultHTTP
	}
	ln, err := listen("http", at)
	if err != nil && o.HTTP == "" {
		ln, err = listen("http", "127.0.0.1:0")
	}
	if err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, fault.CodeListen,
			"%s cannot be listened on for HTTP requests; give another --http, or off", at)
	}
	return ln, nil
}

// say prints where the proxy listens.
func (p *proxyDoors) say(c *cli.Env) {
	if p.how == nil || p.how.HTTP == nil {
		return
	}
	domain := ""
	if len(p.how.Domains) > 0 {
		domain = ", as http://APP." + p.how.Domains[0] + portOf(p.how.HTTP)
	}
	fmt.Fprintf(c.Out, "  machines answer HTTP at %s%s\n", p.how.HTTP.Addr(), domain)
}

// portOf returns an address's port as the suffix of an HTTP URL.
func portOf(ln net.Listener) string {
	a, ok := ln.Addr().(*net.TCPAddr)
	if !ok || a.Port == 80 {
		return ""
	}
	return ":" + strconv.Itoa(a.Port)
}

// close closes the listeners that are not served.
func (p *proxyDoors) close() error {
	var errs []error
	if p.how != nil {
		for _, ln := range []net.Listener{p.how.HTTP, p.how.HTTPS} {
			if ln != nil {
				errs = append(errs, ln.Close())
			}
		}
	}
	if p.log != nil {
		errs = append(errs, p.log.Close())
	}
	return errors.Join(errs...)
}
