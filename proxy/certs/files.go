package certs

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/mesh/tlscert"
)

const (
	lookEvery = time.Second
	chainFile = "fullchain.pem" // with privkey.pem beside it, as certbot leaves them
	chainKey  = "privkey.pem"

	standardName = "default" // base name of the certificate for clients that name no host
	standardKey  = "*"       // its key in the index; no host name is "*"
)

// files are the user's own certificates in a directory: NAME.crt with NAME.key, fullchain.pem with privkey.pem, and
// these two in each directory in it. default.crt, or fullchain.pem in the directory default, is for clients that name no
// host, too.
type files struct {
	dir string
	log *slog.Logger

	index atomic.Pointer[map[string][]*tls.Certificate] // by name; wildcards as "*.example.com"

	mu    sync.Mutex
	pairs map[string]*ownPair // by the certificate's file
	err   string              // the directory's error that was last logged
}

// ownPair is a pair of files, and what was last logged about it.
type ownPair struct {
	tlscert.Pair
	err   string
	ended *tls.Certificate // the certificate whose expiry was logged
}

// followDir rereads the directory every lookEvery until ctx ends.
func (f *files) followDir(ctx context.Context) {
	every := time.NewTicker(lookEvery)
	defer every.Stop()
	for {
		select {
		case now := <-every.C:
			err := f.reloadChanged(now)
			f.mu.Lock()
			if text := textOf(err); text != f.err {
				if f.err = text; err != nil {
					f.log.Error("the proxy's own certificates were not looked at", "err", err)
				}
			}
			f.mu.Unlock()
		case <-ctx.Done():
			return
		}
	}
}

func textOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// reloadChanged loads the files of the directory that have changed.
func (f *files) reloadChanged(now time.Time) error {
	found, err := pairsIn(f.dir)
	if err != nil {
		return fault.Wrap(err, fault.Unavailable, tlscert.CodeTLS,
			"the directory %s of certificates cannot be read", f.dir)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	next := map[string]*ownPair{}
	for cert, key := range found {
		p := f.pairs[cert]
		if p == nil || p.Key != key {
			p = &ownPair{Pair: tlscert.Pair{Cert: cert, Key: key}}
		}
		next[cert] = p
		f.loadPair(p, now)
	}
	index := map[string][]*tls.Certificate{}
	for _, file := range slices.Sorted(maps.Keys(next)) {
		c := next[file].Shown()
		if c == nil {
			continue
		}
		if file == filepath.Join(f.dir, standardName+".crt") || file == filepath.Join(f.dir, standardName, chainFile) {
			index[standardKey] = append(index[standardKey], c)
		}
		for _, name := range infoOf("", c).Names {
			name = strings.ToLower(name)
			index[name] = append(index[name], c)
		}
	}
	for _, list := range index { // the latest to expire goes first
		slices.SortStableFunc(list, func(a, b *tls.Certificate) int { return b.Leaf.NotAfter.Compare(a.Leaf.NotAfter) })
	}
	f.pairs = next
	f.index.Store(&index)
	return nil
}

// loadPair reads a pair if it has changed, and logs each problem once.
func (f *files) loadPair(p *ownPair, now time.Time) {
	_ = p.Load(now) // the error is kept in Failed
	err := p.Failed()
	if text := textOf(err); text != p.err {
		if p.err = text; err != nil {
			f.log.Error("a certificate of the proxy's was not changed", "err", err)
		}
	}
	if c := p.Shown(); c != nil && c != p.ended && now.After(c.Leaf.NotAfter) {
		p.ended = c
		f.log.Error("a certificate of the proxy's has ended; it is shown only where there is no other", "file", p.Cert,
			"ended", c.Leaf.NotAfter)
	}
}

// pairsIn returns the pairs of files in a directory: key files by their certificate files.
func pairsIn(dir string) (map[string]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	pairs := map[string]string{}
	for _, e := range entries {
		if len(pairs) >= maxKept {
			break
		}
		path := filepath.Join(dir, e.Name())
		name, crt := strings.CutSuffix(path, ".crt")
		switch {
		case crt:
			pairs[path] = name + ".key"
		case e.Name() == chainFile:
			pairs[path] = filepath.Join(dir, chainKey)
		case !e.Type().IsRegular(): // a directory, or a link to one
			chain := filepath.Join(path, chainFile)
			if _, err := os.Stat(chain); err == nil {
				pairs[chain] = filepath.Join(path, chainKey)
			} else if !errors.Is(err, fs.ErrNotExist) && e.IsDir() {
				return nil, err
			}
		}
	}
	return pairs, nil
}

// findCert returns the certificate for a name: among those that the client supports the one that expires last, with an
// exact name before a wildcard. nil: there is none.
func (f *files) findCert(name string, hello *tls.ClientHelloInfo, now time.Time) *tls.Certificate {
	if f == nil || name == "" {
		return nil
	}
	_, parent, _ := strings.Cut(name, ".")
	return f.bestCert(hello, now, name, "*."+parent)
}

// standardCert returns the certificate for clients that name no host.
func (f *files) standardCert(hello *tls.ClientHelloInfo, now time.Time) *tls.Certificate {
	if f == nil {
		return nil
	}
	return f.bestCert(hello, now, standardKey)
}

func (f *files) bestCert(hello *tls.ClientHelloInfo, now time.Time, keys ...string) *tls.Certificate {
	index := *f.index.Load()
	var best *tls.Certificate
	for _, key := range keys {
		list := index[key]
		for _, c := range list {
			if hello.SupportsCertificate(c) == nil {
				best = cmp.Or(best, c)
				break
			}
		}
		if best != nil && now.Before(best.Leaf.NotAfter) {
			return best
		}
		if len(list) > 0 {
			best = cmp.Or(best, list[0])
		}
	}
	return best
}

func (f *files) listCerts() (list []Info) {
	if f == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for file, p := range f.pairs {
		i := Info{Source: "file"}
		if c := p.Shown(); c != nil {
			i = infoOf("file", c)
		}
		i.File, i.Error = file, p.err
		list = append(list, i)
	}
	return list
}
