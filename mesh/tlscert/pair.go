package tlscert

import (
	"crypto/tls"
	"errors"
	"os"
	"time"

	"github.com/soukhq/souk/fault"
)

// Pair is a certificate and its key in two PEM files of the user. Its methods must not be called concurrently.
type Pair struct {
	Cert, Key string // the files
	shown     *tls.Certificate
	failed    error
	of        [2]stamp // versions of the files that shown, or the last failure, came from
}

// stamp identifies a version of a file.
type stamp struct {
	at   time.Time
	size int64
}

// Shown returns the last usable certificate; nil: there was none.
func (p *Pair) Shown() *tls.Certificate { return p.shown }

// Failed returns why the current files cannot be used; nil: Shown is from the current files.
func (p *Pair) Failed() error { return p.failed }

// Load reads the files if they have changed. If they are unusable, or the certificate has expired, it returns an error
// once and keeps the previous certificate.
func (p *Pair) Load(now time.Time) error {
	var of [2]stamp
	for i, name := range []string{p.Cert, p.Key} {
		st, err := os.Stat(name)
		if err != nil {
			p.of = [2]stamp{}
			return p.unusableError(err)
		}
		of[i] = stamp{st.ModTime(), st.Size()}
	}
	if of == p.of {
		return nil
	}
	p.of = of
	c, err := tls.LoadX509KeyPair(p.Cert, p.Key)
	if err == nil && c.Leaf != nil && now.After(c.Leaf.NotAfter) {
		err = errors.New("it ended on " + c.Leaf.NotAfter.UTC().Format(time.DateTime) + " UTC")
	}
	if err != nil {
		return p.unusableError(err)
	}
	p.shown, p.failed = &c, nil
	return nil
}

func (p *Pair) unusableError(err error) error {
	p.failed = fault.Wrap(err, fault.Invalid, CodeTLS,
		"the certificate in %s with the key in %s cannot be used", p.Cert,
		p.Key)
	return p.failed
}
