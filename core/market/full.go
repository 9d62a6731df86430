package market

import (
	"cmp"
	"slices"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/placement"
)

// Bounds of the machines that one worker keeps. Those that are up are bound by its room as well; those that are not
// take a row of its journal and memory for as long as their owner likes, so of one namespace there are half as many as
// of all, and of one app half of that: no tenant takes a worker's rows from the others.
const (
	// MaxMachines bounds the machines of a worker, started or not. It announces each of them, and beside them those
	// that were destroyed lately, and can announce registry.MaxRecords in all.
	MaxMachines           = 24_000
	MaxNamespaceUnstarted = MaxMachines / 2
	MaxAppUnstarted       = MaxMachines / 4

	// MaxUnstartedBytes bounds the configs, older versions included, of machines that are not up.
	MaxUnstartedBytes          = 256 << 20
	MaxNamespaceUnstartedBytes = MaxUnstartedBytes / 2
	MaxAppUnstartedBytes       = MaxUnstartedBytes / 4
)

// keptOf names an app, a namespace, or with neither all: whose machines are counted.
type keptOf struct{ app, namespace string }

// kept counts machines that are not up.
type kept struct {
	machines int
	bytes    int64
}

// keptMachines is what a seller counts to know whose machines its worker takes no more of.
type keptMachines struct {
	all  int // machines, up or not
	of   map[keptOf]kept
	full map[keptOf]bool
}

func newKeptMachines() keptMachines {
	return keptMachines{of: map[keptOf]kept{}, full: map[keptOf]bool{}}
}

// countMachine enters a machine more in the record (sign 1), or one less (-1).
func (k *keptMachines) countMachine(g *grant, sign int, rec *cluster.Record) {
	k.all += sign
	k.noteCounts(keptOf{}, rec)
	k.countResting(g, sign, rec)
}

// countResting enters a machine in the counts of those that are not up (sign 1), or takes it out (-1).
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

// noteCounts brings the record's Full up to date with the counts of one.
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
	list := make([]cluster.Full, 0, len(k.full)) // nobody's record is changed
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

// countOf returns what there is of one. Of all, machines that are up count too.
func (k *keptMachines) countOf(of keptOf) cluster.Full {
	n := k.of[of]
	f := cluster.Full{App: of.app, Namespace: of.namespace, Machines: n.machines, Bytes: n.bytes}
	if of == (keptOf{}) {
		f.Machines = k.all
	}
	return f
}

// keptOfs lists whose machines a machine counts among.
func keptOfs(g *grant) [3]keptOf {
	return [...]keptOf{{}, {app: g.app}, {namespace: cmp.Or(g.tenant.Namespace, cluster.DefaultNamespace)}}
}

// mostOf returns the bounds of one.
func mostOf(of keptOf) (machines int, bytes int64) {
	switch {
	case of.app != "":
		return MaxAppUnstarted, MaxAppUnstartedBytes
	case of.namespace != "":
		return MaxNamespaceUnstarted, MaxNamespaceUnstartedBytes
	}
	return MaxMachines, MaxUnstartedBytes
}

// KeepMore refuses another config of a machine that is here and not up, where its worker keeps as many bytes of them as
// it may.
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
