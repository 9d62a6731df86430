// Package tlscert has the certificate that the API shows to other hosts: one of the user's files, read again when they
// change, or one of a root of souk's own. The proxy's certificates come of the same two (Pair, Authority).
package tlscert

import (
	"crypto/tls"
	"log/slog"
	"sync"
	"time"
)

// source gives the certificate that is to be shown at a time.
type source interface {
	currentCertificate(now time.Time) (*tls.Certificate, error)
}

// serverConfig serves what a source gives. HTTP/2 is offered beside HTTP/1.1.
func serverConfig(s source) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate,
			error) {
			return s.currentCertificate(time.Now())
		}}
}

// Files serves a certificate and its key from two PEM files. They are looked at again when somebody connects, at most
// once a second; while what is there cannot be used, the last that could be is shown and log hears of it.
func Files(cert, key string, log *slog.Logger) (*tls.Config, error) {
	f := &files{pair: Pair{Cert: cert, Key: key}, log: log}
	if err := f.loadChanged(time.Now()); err != nil {
		return nil, err
	}
	return serverConfig(f), nil
}

// lookEvery bounds how often files are looked at.
const lookEvery = time.Second

// files are a certificate of the user's.
type files struct {
	log *slog.Logger

	mu     sync.Mutex
	pair   Pair
	looked time.Time
}

func (f *files) currentCertificate(now time.Time) (*tls.Certificate, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now.Sub(f.looked) >= lookEvery {
		if err := f.loadChanged(now); err != nil {
			f.log.Error("the API's certificate was not changed", "err", err)
		}
	}
	return f.pair.Shown(), nil
}

// loadChanged reads the files where they have changed. It is called with the lock, or by who alone knows f.
func (f *files) loadChanged(now time.Time) error {
	f.looked = now
	return f.pair.Load(now)
}
