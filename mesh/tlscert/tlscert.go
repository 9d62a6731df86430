// Package tlscert has the certificate that the API presents to other hosts: from the user's files, read again when they
// change, or signed by a root of souk's own. The proxy's certificates use the same two sources (Pair, Authority).
package tlscert

import (
	"crypto/tls"
	"log/slog"
	"sync"
	"time"
)

// source returns the certificate to present at a time.
type source interface {
	currentCertificate(now time.Time) (*tls.Certificate, error)
}

// serverConfig serves the certificates of a source. It offers HTTP/2 beside HTTP/1.1.
func serverConfig(s source) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate,
			error) {
			return s.currentCertificate(time.Now())
		}}
}

// Files serves a certificate and its key from two PEM files. It checks them for changes when a client connects, at most
// once a second. While the files are unusable, it presents the last usable certificate and logs the error.
func Files(cert, key string, log *slog.Logger) (*tls.Config, error) {
	f := &files{pair: Pair{Cert: cert, Key: key}, log: log}
	if err := f.loadChanged(time.Now()); err != nil {
		return nil, err
	}
	return serverConfig(f), nil
}

// lookEvery is the least time between two checks of the files.
const lookEvery = time.Second

// files are a user's certificate, with the time of the last check.
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

// loadChanged reads the files if they have changed. The caller holds the lock, or has not shared f yet.
func (f *files) loadChanged(now time.Time) error {
	f.looked = now
	return f.pair.Load(now)
}
