package decision

import (
	"strconv"

	"github.com/soukhq/souk/cluster"
)

// record writes a worker's record, whole. Beside a hundred thousand decisions a second a large fleet's records are as
// much to write as its decisions are, whenever a file begins.
func (e *encoder) record(r *cluster.Record) {
	at := len(e.b)
	e.str("worker", string(r.Worker))
	e.str("region", string(r.Region))
	e.str("state", string(r.State))
	e.ref(RefOf(r))
	e.key("capacity")
	e.resources(r.Capacity)
	e.key("used")
	e.resources(r.Used)
	e.integer("machines", int64(r.Machines))
	e.integer("starting", int64(r.Starting))
	e.integer("max_starting", int64(r.MaxStarting))
	if len(r.Apps) > 0 {
		e.key("apps")
		e.counts(r.Apps)
	}
	if len(r.Images) > 0 {
		e.list("images", len(r.Images), false, func(i int) { e.text(r.Images[i]) })
	}
	e.some("volumes", len(r.Volumes) > 0, r.Volumes)
	e.some("volumes_of", len(r.VolumesOf) > 0, r.VolumesOf)
	if len(r.Attributes) > 0 {
		e.key("attributes")
		e.attributes(r.Attributes)
	}
	e.some("require", len(r.Require) > 0, r.Require)
	e.some("prefer", len(r.Prefer) > 0, r.Prefer)
	if len(r.Reserved) > 0 {
		e.list("reserved", len(r.Reserved), false, func(i int) { e.text(r.Reserved[i]) })
	}
	if !r.Headroom.IsZero() {
		e.key("headroom")
		e.resources(r.Headroom)
	}
	if len(r.GPUs) > 0 {
		e.key("gpus")
		e.devices(r.GPUs)
	}
	e.some("evictable", len(r.Evictable) > 0, r.Evictable)
	e.some("cordon", r.Cordon != nil, r.Cordon)
	e.optInt("backlog", r.Backlog)
	e.when("at", r.At)
	e.some("spending", len(r.Spending) > 0, r.Spending)
	e.some("full", len(r.Full) > 0, r.Full)
	if !r.Promised.IsZero() {
		e.key("promised")
		e.resources(r.Promised)
	}
	e.optInt("promise_limit_milli", r.PromiseLimit)
	e.object(at)
}

func (e *encoder) attributes(attributes cluster.Attributes) {
	byName(e, attributes, func(v cluster.Value) {
		switch v := v.Any().(type) {
		case string:
			e.text(v)
		case float64:
			e.number(v)
		case bool:
			e.b = strconv.AppendBool(e.b, v)
		}
	})
}

// devices writes GPUs; a list that is nil is null.
func (e *encoder) devices(gpus []cluster.GPU) {
	if gpus == nil {
		e.raw("null")
		return
	}
	e.raw("[")
	for i := range gpus {
		if i > 0 {
			e.raw(",")
		}
		e.raw(`{"kind":`)
		e.text(gpus[i].Kind)
		e.integer("free_milli", gpus[i].Free)
		e.opt("id", gpus[i].ID)
		e.opt("node", gpus[i].Node)
		e.opt("model", gpus[i].Model)
		e.optInt("memory_mib", gpus[i].Memory)
		e.opt("health", gpus[i].Health)
		e.raw("}")
	}
	e.raw("]")
}

// changed writes a record as what differs.
func (e *encoder) changed(c *Changed) {
	at := len(e.b)
	e.str("worker", string(c.Worker))
	e.key("version")
	e.b = strconv.AppendUint(e.b, c.Version, 10)
	if c.Used != nil {
		e.key("used")
		e.resources(*c.Used)
	}
	if c.Counts != nil {
		e.key("counts")
		counts := len(e.b)
		e.integer("machines", int64(c.Counts.Machines))
		e.integer("starting", int64(c.Counts.Starting))
		e.optInt("backlog", c.Counts.Backlog)
		e.object(counts)
	}
	if len(c.Apps) > 0 {
		e.key("apps")
		e.counts(c.Apps)
	}
	e.when("at", c.At)
	if c.GPUs != nil {
		e.key("gpus")
		e.devices(*c.GPUs)
	}
	if c.Evictable != nil {
		e.key("evictable")
		e.other(*c.Evictable)
	}
	if c.Promised != nil {
		e.key("promised")
		e.resources(*c.Promised)
	}
	e.object(at)
}
