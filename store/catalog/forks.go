package catalog

import (
	"cmp"
	"slices"
	"strings"

	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/machine"
)

// MaxForks bounds the overtaken heads kept for an app; the oldest are dropped.
const MaxForks = 20

// forked returns the changes that keep an app's head which an imported head replaces, if the imported one does not
// follow it: the two were written independently. Each member that had it writes the same row.
func (c *Services) forked(app string, value []byte) []change {
	var v versioned[release.Head]
	before := c.heads.get(app)
	if before == nil || v.UnmarshalJSON(value) != nil || v.row == nil {
		return nil
	}
	key := app + "/" + before.ID()
	// An imported head that before follows replaces it, too, if a member whose clock was ahead wrote it again.
	if c.forks.has(key) || !v.row.Overtakes(before) && !before.Follows(v.row.ID()) {
		return nil
	}
	type kept struct {
		key string
		h   *release.Head
	}
	all := []kept{{key, before}}
	for _, other := range c.forks.byApp[app] {
		if h := c.forks.get(other); h != nil {
			all = append(all, kept{other, h})
		}
	}
	slices.SortFunc(all, func(a, b kept) int { return cmp.Or(b.h.At.Compare(a.h.At), strings.Compare(a.key, b.key)) })
	if n := slices.IndexFunc(all, func(k kept) bool { return k.key == key }); n >= MaxForks {
		return nil
	}
	out := []change{c.forks.put(key, newVersioned(before))}
	for _, k := range all[min(MaxForks, len(all)):] {
		out = append(out, c.forks.remove(k.key))
	}
	return out
}

func checkHead(key, _ string, h *release.Head) error {
	if !machine.ValidLabel(key) {
		return named(key, appOf(key))
	}
	return h.Check()
}

func checkFork(key, sum string, h *release.Head) error {
	if err := namedInApp(key, sum, h.ID()); err != nil {
		return err
	}
	return h.Check()
}
