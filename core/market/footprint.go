package market

import (
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// Footprint is what a machine occupied at its worker when it asked there for more: to start again, or to grow. The
// machine is judged as if that room were free, and the worker's cordon and conditions no longer apply to it.
type Footprint struct {
	Has  cluster.Resources `json:"has"`
	GPUs []Share           `json:"gpus,omitempty"`
}

// RecordWithout returns the worker's record without what the machine occupies. rec is not changed.
func (o *Footprint) RecordWithout(rec cluster.Record) cluster.Record {
	return asPlaced(recordWithoutGone(rec, amount{res: o.Has, gpus: o.GPUs}))
}

// asPlaced returns the record by which a machine that is already here is judged: without the worker's state,
// conditions, and limits of machines.
func asPlaced(rec cluster.Record) cluster.Record {
	rec.State, rec.Require, rec.Reserved, rec.Full = cluster.Ready, nil, nil, nil
	rec.PromiseLimit = 0
	return rec
}

// Judge judges a machine that is already here, where rec is the worker's record. It adds one rule to placement.Judge:
// a running machine stays on the devices that it has.
func (o *Footprint) Judge(r placement.Request, rec cluster.Record) placement.Verdict {
	rest := o.RecordWithout(rec)
	v := placement.Judge(r, rest)
	if want := r.Resources.GPU; v.Fits && len(rest.GPUs) > 0 && want > 0 && want != o.Has.GPU {
		p := pickDevices(rest.GPUs, want, r.GPUKind, o.GPUs)
		if p != nil && (want < o.Has.GPU || coversShares(p, o.GPUs)) {
			return v
		}
		v = placement.Verdict{Failing: []machine.Clause{{Code: placement.CodeGPUDevice,
			Wanted: "room on the devices it runs on", Had: "others have a part of them: stop it first"}}}
	}
	return v
}

// footprintOf returns what a machine occupies; nil if it is not here.
func (s *Seller) footprintOf(id string) *Footprint {
	g, here := s.grants[id]
	if !here {
		return nil
	}
	o := g.occupiedAmount()
	return &Footprint{Has: o.res, GPUs: o.gpus}
}

// refuseFootprint is refuseRequest for a machine that is already here: the refusal includes the footprint and the
// request that were judged. o is nil for a machine that is not here.
func (s *Seller) refuseFootprint(now time.Time, r placement.Request, v placement.Verdict, o *Footprint) *fault.Error {
	e := s.refuseRequest(now, r, v, "")
	if o != nil {
		refusal, _ := fault.Detail[Refusal](e)
		refusal.Footprint, refusal.Request = o, &r
		e.Detail = refusal
	}
	return e
}
