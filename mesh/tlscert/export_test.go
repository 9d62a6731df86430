package tlscert

import (
	"crypto/tls"
	"log/slog"
	"time"
)

// Source is source, for tests that have a clock.
type Source struct{ s source }

// Certificate returns what is shown at a time.
func (s Source) Certificate(now time.Time) (*tls.Certificate, error) {
	return s.s.currentCertificate(now)
}

// OpenFiles is Files for tests that have a clock.
func OpenFiles(cert, key string, log *slog.Logger) (Source, error) {
	f := &files{pair: Pair{Cert: cert, Key: key}, log: log}
	return Source{f}, f.loadChanged(time.Now())
}

// Forge makes a certificate with a root that was stolen.
func Forge(dir, host string) (*tls.Certificate, error) {
	r, err := openRoot(apiRoot, dir, nil, time.Now())
	if err != nil {
		return nil, err
	}
	return r.issueFor([]string{host}, time.Now())
}
