package catalog

import (
	"cmp"
	"slices"
	"strings"

	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/machine"
)

// MaxForks bounds the heads of an app that were overtaken and are kept; the oldest go.
const MaxForks = 20

// keepImported commits a row that another member wrote. before is the head that stood where the row is one: if neither
// knew of the other, the one that is replaced is kept as a fork, in the same commit, and told to all. Each member that
// had it writes the same row.
func (c *Catalog) keepImported(x change, before *release.Head) error {
	if x.record.Bucket != bucketHead || before == nil {
		return c.keep(x)
	}
	forks := c.forked(x.record.Key, x.record.Value, before)
	if err := c.keep(append(forks, x)...); err != nil {
		return err
	}
	for _, f := range forks {
		c.tell(f.record)
	}
	return nil
}

// forked returns the changes that keep a head which another replaces, if that one did not follow on it.
func (c *Catalog) forked(app string, value []byte, before *release.Head) []change {
	var v versioned[release.Head]
	if v.UnmarshalJSON(value) != nil || v.row == nil {
		return nil
	}
	key := app + "/" + before.ID()
	_, there := c.forks.all[key]
	// A head that before has followed on replaces it where a member wrote it again, its clock having been ahead.
	if there || !v.row.Overtakes(before) && !before.Follows(v.row.ID()) {
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
		x, _ := c.forks.remove(k.key)
		out = append(out, x)
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
