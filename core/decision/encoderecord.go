package decision

import (
	"strconv"

	"github.com/soukhq/souk/cluster"
)

// writeRecord writes a complete record of a worker. It is fast because each new file of the log begins with the
// records of the whole fleet, which are as many bytes as a second's decisions.
func (e *encoder) writeRecord(r *cluster.Record) {
	at := len(e.b)
	e.writeString("worker", string(r.Worker))
	e.writeString("region", string(r.Region))
	e.writeString("state", string(r.State))
	e.writeRef(RefOf(r))
	e.writeKey("capacity")
	e.writeResources(r.Capacity)
	e.writeKey("used")
	e.writeResources(r.Used)
	e.writeInteger("machines", int64(r.Machines))
	e.writeInteger("starting", int64(r.Starting))
	e.writeInteger("max_starting", int64(r.MaxStarting))
	if len(r.Apps) > 0 {
		e.writeKey("apps")
		e.writeCounts(r.Apps)
	}
	if len(r.Images) > 0 {
		e.writeList("images", len(r.Images), false, func(i int) { e.writeText(r.Images[i]) })
	}
	e.writeOptional("volumes", len(r.Volumes) > 0, r.Volumes)
	e.writeOptional("volumes_of", len(r.VolumesOf) > 0, r.VolumesOf)
	if len(r.Attributes) > 0 {
		e.writeKey("attributes")
		e.writeAttributes(r.Attributes)
	}
	e.writeOptional("require", len(r.Require) > 0, r.Require)
	e.writeOptional("prefer", len(r.Prefer) > 0, r.Prefer)
	if len(r.Reserved) > 0 {
		e.writeList("reserved", len(r.Reserved), false, func(i int) { e.writeText(r.Reserved[i]) })
	}
	if !r.Headroom.IsZero() {
		e.writeKey("headroom")
		e.writeResources(r.Headroom)
	}
	if len(r.GPUs) > 0 {
		e.writeKey("gpus")
		e.writeDevices(r.GPUs)
	}
	e.writeOptional("evictable", len(r.Evictable) > 0, r.Evictable)
	e.writeOptional("cordon", r.Cordon != nil, r.Cordon)
	e.optInt("backlog", r.Backlog)
	e.writeTime("at", r.At)
	e.writeOptional("spending", len(r.Spending) > 0, r.Spending)
	e.writeOptional("full", len(r.Full) > 0, r.Full)
	if !r.Tasks.IsZero() {
		e.writeKey("tasks")
		e.writeResources(r.Tasks)
	}
	e.writeOptional("wanted", len(r.Wanted) > 0, r.Wanted)
	if !r.Promised.IsZero() {
		e.writeKey("promised")
		e.writeResources(r.Promised)
	}
	e.optInt("promise_limit_milli", r.PromiseLimit)
	e.wrapAsObject(at)
}

func (e *encoder) writeAttributes(attributes cluster.Attributes) {
	byName(e, attributes, func(v cluster.Value) {
		switch v := v.Any().(type) {
		case string:
			e.writeText(v)
		case float64:
			e.writeNumber(v)
		case bool:
			e.b = strconv.AppendBool(e.b, v)
		}
	})
}

// writeDevices writes a list of GPUs, or null for a nil list.
func (e *encoder) writeDevices(gpus []cluster.GPU) {
	if gpus == nil {
		e.writeRaw("null")
		return
	}
	e.writeRaw("[")
	for i := range gpus {
		if i > 0 {
			e.writeRaw(",")
		}
		e.writeRaw(`{"kind":`)
		e.writeText(gpus[i].Kind)
		e.writeInteger("free_milli", gpus[i].Free)
		e.writeNonEmpty("id", gpus[i].ID)
		e.writeNonEmpty("node", gpus[i].Node)
		e.writeNonEmpty("model", gpus[i].Model)
		e.optInt("memory_mib", gpus[i].Memory)
		e.writeNonEmpty("health", gpus[i].Health)
		e.writeRaw("}")
	}
	e.writeRaw("]")
}

// writeChanged writes the difference between two versions of a record.
func (e *encoder) writeChanged(c *Changed) {
	at := len(e.b)
	e.writeString("worker", string(c.Worker))
	e.writeKey("version")
	e.b = strconv.AppendUint(e.b, c.Version, 10)
	if c.Used != nil {
		e.writeKey("used")
		e.writeResources(*c.Used)
	}
	if c.Counts != nil {
		e.writeKey("counts")
		counts := len(e.b)
		e.writeInteger("machines", int64(c.Counts.Machines))
		e.writeInteger("starting", int64(c.Counts.Starting))
		e.optInt("backlog", c.Counts.Backlog)
		e.wrapAsObject(counts)
	}
	if len(c.Apps) > 0 {
		e.writeKey("apps")
		e.writeCounts(c.Apps)
	}
	e.writeTime("at", c.At)
	if c.GPUs != nil {
		e.writeKey("gpus")
		e.writeDevices(*c.GPUs)
	}
	if c.Evictable != nil {
		e.writeKey("evictable")
		e.writeByJSON(*c.Evictable)
	}
	if c.Promised != nil {
		e.writeKey("promised")
		e.writeResources(*c.Promised)
	}
	e.wrapAsObject(at)
}
