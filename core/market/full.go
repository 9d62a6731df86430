package market

import (
	"cmp"
	"slices"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/placement"
)

// Bounds of the machines that one worker keeps. The room bounds the machines that are up. Those that are down take
// only a row of journal and memory, for as long as their owner likes; so one namespace may have half of all, and one
// app half of that: no tenant uses up a worker's rows.
const (
	// MaxMachines bounds the machines of a worker, started or not. The worker announces each of them and those
	// destroyed recently, at most registry.MaxRecords in total.
	MaxMachines           = 24_000
	MaxNamespaceUnstarted = MaxMachines / 2
	MaxAppUnstarted       = MaxMachines / 4

	// MaxUnstartedBytes bounds the configs, older versions included, of machines that are not up.
	MaxUnstartedBytes          = 256 << 20
	MaxNamespaceUnstartedBytes = MaxUnstartedBytes / 2
	MaxAppUnstartedBytes       = MaxUnstartedBytes / 4
)

// keptOf is a key of counts: one app, one namespace, or with neither all machines.
type keptOf struct{ app, namespace string }

// kept counts machines that are down.
type kept struct {
	machines int
	bytes    int64
}

// keptMachines counts a worker's machines, to refuse more of an app, a namespace or all at a bound.
type keptMachines struct {
	all  int // machines, up or not
	of   map[keptOf]kept
	full map[keptOf]bool
}

func newKeptMachines() keptMachines {
	return keptMachines{of: map[keptOf]kept{}, full: map[keptOf]bool{}}
}

// countMachine adds a machine to the counts (sign 1) or removes it (-1).
func (k *keptMachines) countMachine(g *grant, sign int, rec *cluster.Record) {
	k.all += sign
	k.noteCounts(keptOf{}, rec)
	k.countResting(g, sign, rec)
}

// countResting adds a machine that is down to its counts (sign 1) or removes it (-1).
func (k *keptMachines) countResting(g *grant, sign int, rec *cluster.Record) {
	if g.volume || g.up {
		return
	}
	for _, of := range keptOfs(g) {
		n := k.of[of]
		n.machines, n.bytes = n.machines+sign, n.bytes+int64(sign)*g.tenant.Bytes
		if k.of[of] = n; n.machines == 0 {
			delete(k.of, of)
		}
		k.noteCounts(of, rec)
	}
}

// noteCounts updates the record's Full after a change of the counts of of.
func (k *keptMachines) noteCounts(of keptOf, rec *cluster.Record) {
	f := k.countOf(of)
	machines, bytes := mostOf(of)
	is := f.Machines >= machines || f.Bytes >= bytes
	if !is && !k.full[of] {
		return
	}
	if k.full[of] = is; !is {
		delete(k.full, of)
	}
	list := make([]cluster.Full, 0, len(k.full)) // a copy: published records share the old list
	for of := range k.full {
		list = append(list, k.countOf(of))
	}
	slices.SortFunc(list, func(a, b cluster.Full) int {
		return cmp.Or(cmp.Compare(a.App, b.App), cmp.Compare(a.Namespace, b.Namespace))
	})
	if rec.Full = list; len(list) == 0 {
		rec.Full = nil
	}
	rec.Version++
}

// countOf returns the counts of of. The count of all includes machines that are up.
func (k *keptMachines) countOf(of keptOf) cluster.Full {
	n := k.of[of]
	f := cluster.Full{App: of.app, Namespace: of.namespace, Machines: n.machines, Bytes: n.bytes}
	if of == (keptOf{}) {
		f.Machines = k.all
	}
	return f
}

// keptOfs lists the counts that a machine belongs to.
func keptOfs(g *grant) [3]keptOf {
	return [...]keptOf{{}, {app: g.app}, {namespace: cmp.Or(g.tenant.Namespace, cluster.DefaultNamespace)}}
}

// mostOf returns the bounds of a count.
func mostOf(of keptOf) (machines int, bytes int64) {
	switch {
	case of.app != "":
		return MaxAppUnstarted, MaxAppUnstartedBytes
	case of.namespace != "":
		return MaxNamespaceUnstarted, MaxNamespaceUnstartedBytes
	}
	return MaxMachines, MaxUnstartedBytes
}

// KeepMore refuses a further config of a machine that is here and down if its worker, namespace or app has reached its
// bound of bytes.
func (s *Seller) KeepMore(now time.Time, id string) error {
	g := s.grants[id]
	if g == nil || g.up {
		return nil
	}
	var v placement.Verdict
	for _, of := range keptOfs(g) {
		f := s.kept.countOf(of)
		if _, bytes := mostOf(of); f.Bytes >= bytes {
			v.Failing = append(v.Failing, placement.FullClause(&f))
		}
	}
	if len(v.Failing) == 0 {
		return nil
	}
	return s.refuseRequest(now, s.requestOf(id, cluster.Resources{}), v, "")
}
