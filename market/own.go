package market

import (
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/placement"
)

// Own is what a machine occupied at its worker when it asked there for more: to start again, or to grow. It is judged as if
// that were free, and whom the worker takes is no longer asked.
type Own struct {
	Has  cluster.Resources `json:"has"`
	GPUs []Share           `json:"gpus,omitempty"`
}

// Sees gives the worker's record as the machine sees it. rec is not changed.
func (o *Own) Sees(rec cluster.Record) cluster.Record {
	return owned(without(rec, room{o.Has, o.GPUs}))
}

// owned gives the record as a machine sees it that has its place here already: whom the worker takes is no longer asked.
func owned(rec cluster.Record) cluster.Record {
	rec.State, rec.Require, rec.Reserved = cluster.Ready, nil, nil
	return rec
}

// Judge says whether the machine may occupy what r wants, where rec is the worker's record. It is placement.Judge, and one
// rule more: one that runs stays on the devices that it has.
func (o *Own) Judge(r placement.Request, rec cluster.Record) placement.Verdict {
	sees := o.Sees(rec)
	v := placement.Judge(r, sees)
	if want := r.Resources.GPU; v.Fits && len(sees.GPUs) > 0 && want > 0 && want != o.Has.GPU {
		p := pick(sees.GPUs, want, r.GPUKind, o.GPUs)
		if p != nil && (want < o.Has.GPU || covers(p, o.GPUs)) {
			return v
		}
		v = placement.Verdict{Failing: []machine.Clause{{Code: placement.CodeGPUDevice,
			Wanted: "room on the devices it runs on", Had: "others have a part of them: stop it first"}}}
	}
	return v
}

// own gives what a machine occupies; nil for one that is not here.
func (s *Seller) own(id string) *Own {
	g, here := s.grants[id]
	if !here {
		return nil
	}
	o := g.occupies()
	return &Own{Has: o.res, GPUs: o.gpus}
}

// refuseOwn is refuse for a machine that has its place here: the refusal tells by what it was judged. o is
// nil for one that is not here.
func (s *Seller) refuseOwn(now time.Time, r placement.Request, v placement.Verdict, o *Own) *fault.Error {
	e := s.refuse(now, r, v, "")
	if o != nil {
		refusal := e.Detail.(Refusal)
		refusal.Own, refusal.Request = o, &r
		e.Detail = refusal
	}
	return e
}
