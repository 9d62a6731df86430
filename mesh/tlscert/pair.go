package tlscert

import (
	"crypto/tls"
	"errors"
	"os"
	"time"

	"github.com/soukhq/souk/fault"
)

// Pair is a certificate and its key in two PEM files of the user's. Its methods are called by one goroutine at a time.
type Pair struct {
	Cert, Key string // the files
	shown     *tls.Certificate
	failed    error
	of        [2]stamp // the files that shown, or the last failure, came from
}

// stamp tells two versions of a file apart.
type stamp struct {
	at   time.Time
	size int64
}

// Shown returns the certificate that could be used last; nil: none could.
func (p *Pair) Shown() *tls.Certificate { return p.shown }

// Failed returns why what is in the files now cannot be used; nil: it is what is shown.
func (p *Pair) Failed() error { return p.failed }

// Load reads the files where they have changed. What cannot be used, or has ended, is an error once, and
// changes nothing.
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
