package layer_test

import (
	"archive/tar"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/soukhq/souk/runtime/image/imagetest"
)

// node is a file of the model.
type node struct {
	kind     byte // as in a tar
	mode     int64
	uid, gid int
	time     int64
	body     string // or where a link leads
	xattr    string
}

// model is what an image's tree should be: a map, changed by one entry after another, in the simplest way there is.
type model struct {
	tree map[string]node
	own  map[string]bool // what the present layer has said
	devs map[string]bool // devices of the present layer, which are left out
}

var errRefused = errors.New("refused") //nolint:gochecknoglobals // a constant

func newModel() *model {
	return &model{tree: map[string]node{"": {kind: tar.TypeDir, mode: 0o755}}}
}

func (m *model) layer() { m.own, m.devs = map[string]bool{"": true}, map[string]bool{} }

func below(at, dir string) bool { return at != "" && (dir == "" || strings.HasPrefix(at, dir+"/")) }

func (m *model) remove(at string) {
	for p := range m.tree {
		if p == at || below(p, at) {
			delete(m.tree, p)
			delete(m.own, p)
		}
	}
}

func (m *model) removeOthers(dir string) {
	for p := range m.tree {
		if below(p, dir) && !m.own[p] {
			delete(m.tree, p)
		}
	}
}

// leaveOut removes what a device has the name of.
func (m *model) leaveOut(at string) {
	m.remove(at)
	m.devs[at] = true
}

// resolve follows links as in a chroot; one that leads above it is refused.
func (m *model) resolve(name string) (string, error) {
	at, links := "", 0
	rest := strings.Split(name, "/")
	for len(rest) > 0 {
		p := rest[0]
		rest = rest[1:]
		if p == "" || p == "." {
			continue
		}
		if p == ".." {
			if at == "" {
				return "", errRefused
			}
			if at = path.Dir(at); at == "." {
				at = ""
			}
			continue
		}
		next := path.Join(at, p)
		n, ok := m.tree[next]
		switch {
		case !ok || n.kind == tar.TypeDir:
			at = next
		case n.kind == tar.TypeSymlink:
			if links++; links > 40 {
				return "", errRefused
			}
			if strings.HasPrefix(n.body, "/") {
				at = ""
			}
			rest = append(strings.Split(n.body, "/"), rest...)
		default:
			return "", errRefused
		}
	}
	return at, nil
}

func (m *model) makeDir(at string) error {
	if at == "" {
		return nil
	}
	dir := path.Dir(at)
	if dir == "." {
		dir = ""
	}
	if err := m.makeDir(dir); err != nil {
		return err
	}
	n, ok := m.tree[at]
	if ok && n.kind != tar.TypeDir {
		return errRefused
	}
	if !ok {
		m.tree[at] = node{kind: tar.TypeDir, mode: 0o755}
	}
	m.own[at] = true
	return nil
}

func (m *model) apply(f imagetest.File) error {
	dir, base := path.Split(f.Name)
	parent, err := m.resolve(dir)
	if err != nil {
		return err
	}
	if hidden, is := strings.CutPrefix(base, ".wh."); is {
		if base == ".wh..wh..opq" {
			if err := m.makeDir(parent); err != nil {
				return err
			}
			m.removeOthers(parent)
			return nil
		}
		at := path.Join(parent, hidden)
		if n, ok := m.tree[at]; ok && m.own[at] {
			if n.kind == tar.TypeDir {
				m.removeOthers(at)
			}
			return nil
		} else if ok {
			m.remove(at)
			return m.makeDir(parent)
		}
		return nil
	}
	if err := m.makeDir(parent); err != nil {
		return err
	}
	at := path.Join(parent, base)
	n := node{kind: f.Type, mode: f.Mode, uid: f.UID, gid: f.GID, time: f.Time.Unix(), body: f.Body,
		xattr: f.Xattrs["user.a"]}
	switch f.Type {
	case tar.TypeDir:
		if old, ok := m.tree[at]; !ok || old.kind != tar.TypeDir {
			m.remove(at)
		}
	case tar.TypeLink:
		dir, base := path.Split(f.Link)
		from, err := m.resolve(dir)
		if err != nil {
			return err
		}
		to := path.Join(from, base)
		target, ok := m.tree[to]
		if !ok && m.devs[to] {
			m.leaveOut(at)
			return nil
		}
		if !ok || target.kind == tar.TypeDir || below(to, at) {
			return errRefused
		}
		if err := m.makeDir(from); err != nil {
			return err
		}
		m.own[to] = true
		if to != at {
			m.remove(at)
		}
		n = target
	case tar.TypeChar, tar.TypeBlock:
		m.leaveOut(at)
		return nil
	case tar.TypeSymlink:
		n.mode, n.body, n.xattr = 0o777, f.Link, ""
		m.remove(at)
	default:
		m.remove(at)
	}
	m.tree[at] = n
	m.own[at] = true
	return nil
}

func (n node) String() string {
	return fmt.Sprintf("%c %o %d:%d %d %q %q", n.kind, n.mode, n.uid, n.gid, n.time, n.body, n.xattr)
}
