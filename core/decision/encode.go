package decision

import (
	"encoding/json"
	"math"
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/machine"
)

// AppendLine appends a line of the log, without its newline. It writes the very bytes that encoding/json would (a
// property holds it to that), several times faster: the log is written beside a hundred thousand decisions a second.
// What is rare in a decision is left to encoding/json.
func AppendLine(b []byte, l *Line) ([]byte, error) {
	if l.End != nil || trues(l.Record != nil, l.Decision != nil, l.Changed != nil) != 1 {
		raw, err := json.Marshal(l)
		return append(b, raw...), err
	}
	e := encoder{b: b}
	switch {
	case l.Changed != nil:
		e.raw(`{"changed":`)
		e.changed(l.Changed)
	case l.Record != nil:
		e.raw(`{"record":`)
		e.record(l.Record)
	default:
		e.raw(`{"decision":`)
		e.decision(l.Decision)
	}
	e.raw(`}`)
	return e.b, e.err
}

// trues counts those that are true.
func trues(is ...bool) (n int) {
	for _, b := range is {
		if b {
			n++
		}
	}
	return n
}

type encoder struct {
	b   []byte
	err error
}

func (e *encoder) raw(s string) { e.b = append(e.b, s...) }

// other leaves a value to encoding/json.
func (e *encoder) other(v any) {
	raw, err := json.Marshal(v)
	if err != nil && e.err == nil {
		e.err = err
	}
	e.b = append(e.b, raw...)
}

// some writes a value that may be left out, where it is there.
func (e *encoder) some(name string, there bool, v any) {
	if there {
		e.key(name)
		e.other(v)
	}
}

func (e *encoder) text(s string) { e.b = machine.AppendText(e.b, s) }

func (e *encoder) key(name string) {
	e.raw(`,"`)
	e.raw(name)
	e.raw(`":`)
}

func (e *encoder) str(name, v string) { e.key(name); e.text(v) }

// opt writes a field that is left out when empty.
func (e *encoder) opt(name, v string) {
	if v != "" {
		e.str(name, v)
	}
}

func (e *encoder) integer(name string, v int64) { e.key(name); e.b = strconv.AppendInt(e.b, v, 10) }

func (e *encoder) optInt(name string, v int64) {
	if v != 0 {
		e.integer(name, v)
	}
}

func (e *encoder) float(name string, v float64) { e.key(name); e.number(v) }

// number writes a float as encoding/json does: shortest, with an exponent only where it is very large or small.
func (e *encoder) number(v float64) {
	abs := math.Abs(v)
	if math.IsInf(v, 0) || math.IsNaN(v) || (abs != 0 && (abs < 1e-6 || abs >= 1e21)) {
		e.other(v)
		return
	}
	e.b = strconv.AppendFloat(e.b, v, 'f', -1, 64)
}

func (e *encoder) when(name string, t time.Time) {
	e.key(name)
	if _, offset := t.Zone(); offset != 0 || t.Year() < 1 || t.Year() > 9999 {
		e.other(t)
		return
	}
	e.b = append(e.b, '"')
	e.b = t.AppendFormat(e.b, time.RFC3339Nano)
	e.b = append(e.b, '"')
}

func (e *encoder) ref(r Ref) {
	e.key("incarnation")
	e.b = strconv.AppendUint(e.b, r.Incarnation, 10)
	e.key("version")
	e.b = strconv.AppendUint(e.b, r.Version, 10)
}

func (e *encoder) decision(d *Decision) {
	e.raw(`{"id":`)
	e.text(d.ID)
	e.when("at", d.At)
	e.str("why", d.Why)
	e.key("request")
	e.request(&d.Request)
	e.raw(`,"policy":{"name":`)
	e.text(d.Policy.Name)
	e.integer("version", int64(d.Policy.Version))
	e.raw(`}`)
	e.str("strategy", d.Strategy)
	e.integer("workers", int64(d.Workers))
	e.integer("fitting", int64(d.Fitting))
	e.list("considered", len(d.Considered), d.Considered == nil, func(i int) { e.considered(&d.Considered[i]) })
	if len(d.Groups) > 0 {
		e.list("groups", len(d.Groups), false, func(i int) { e.group(&d.Groups[i]) })
	}
	e.optInt("evaluated", int64(d.Evaluated))
	e.optInt("candidates", int64(d.Candidates))
	e.some("own", d.Own != nil, d.Own)
	if len(d.Asks) > 0 {
		e.list("asks", len(d.Asks), false, func(i int) { e.ask(&d.Asks[i]) })
	}
	e.some("holds", len(d.Holds) > 0, d.Holds)
	e.some("evictions", len(d.Evictions) > 0, d.Evictions)
	e.opt("winner", string(d.Winner))
	e.str("outcome", string(d.Outcome))
	e.str("reason", d.Reason)
	e.opt("pending", string(d.Pending))
	e.some("shadow", d.Shadow != nil, d.Shadow)
	e.raw(`,"took":{"view_ms":`)
	e.number(d.Took.View)
	e.float("rank_ms", d.Took.Rank)
	e.float("ask_ms", d.Took.Ask)
	e.float("total_ms", d.Took.Total)
	e.raw(`}}`)
}

// list writes a list of n things; one that is nil is null.
func (e *encoder) list(name string, n int, null bool, each func(i int)) {
	e.key(name)
	if null {
		e.raw("null")
		return
	}
	e.raw("[")
	for i := range n {
		if i > 0 {
			e.raw(",")
		}
		each(i)
	}
	e.raw("]")
}

// request writes a request; its wishes, which most have none of, are left to encoding/json.
func (e *encoder) request(r *placement.Request) {
	e.raw(`{"app":`)
	e.text(r.App)
	e.str("machine", r.Machine)
	if len(r.Regions) > 0 {
		e.list("regions", len(r.Regions), false, func(i int) { e.text(string(r.Regions[i])) })
	}
	e.key("resources")
	e.resources(r.Resources)
	e.opt("image", r.Image)
	if len(r.Volumes) > 0 {
		e.list("volumes", len(r.Volumes), false, func(i int) { e.text(r.Volumes[i]) })
	}
	e.some("publish", len(r.Publish) > 0, r.Publish)
	e.key("start")
	e.b = strconv.AppendBool(e.b, r.Start)
	if r.Wakes {
		e.key("wakes")
		e.raw("true")
	}
	e.opt("namespace", r.Namespace)
	e.opt("gpu_kind", r.GPUKind)
	if !reflect.ValueOf(&r.Scheduling).Elem().IsZero() {
		e.key("scheduling")
		e.scheduling(&r.Scheduling)
	}
	if r.Fleet.Affinity != nil || r.Fleet.Spread != nil {
		e.key("fleet")
		e.other(&r.Fleet)
	}
	e.some("funds", r.Funds != nil, r.Funds)
	e.raw(`}`)
}

// scheduling writes wishes; all but the band and the priority, which is what most have, are left to encoding/json.
func (e *encoder) scheduling(s *machine.Scheduling) {
	if rest := (machine.Scheduling{Band: s.Band, Priority: s.Priority}); !reflect.DeepEqual(&rest, s) {
		e.other(s)
		return
	}
	at := len(e.b)
	e.opt("band", string(s.Band))
	e.optInt("priority", int64(s.Priority))
	e.object(at)
}

func (e *encoder) resources(r cluster.Resources) {
	if r.Named != nil {
		e.other(r)
		return
	}
	at := len(e.b)
	e.optInt("cpu_milli", r.CPU)
	e.optInt("memory_mib", r.Memory)
	e.optInt("disk_mib", r.Disk)
	e.optInt("ports", r.Ports)
	e.optInt("gpu_milli", r.GPU)
	e.object(at)
}

// object turns the fields written since at, each with a comma before it, into an object.
func (e *encoder) object(at int) {
	if len(e.b) == at {
		e.raw("{}")
		return
	}
	e.b[at] = '{'
	e.raw("}")
}

func (e *encoder) considered(c *Considered) {
	e.raw(`{"worker":`)
	e.text(c.Worker)
	e.key("fits")
	e.b = strconv.AppendBool(e.b, c.Fits)
	e.float("score", c.Score)
	e.terms(c.Terms)
	e.failing(c.Failing)
	e.some("notes", len(c.Notes) > 0, c.Notes)
	e.ref(c.Ref)
	e.float("age_ms", c.Age)
	if c.Never {
		e.raw(`,"never":true`)
	}
	e.raw(`}`)
}

func (e *encoder) terms(terms machine.Terms) {
	if len(terms) == 0 {
		return
	}
	e.key("terms")
	b, err := terms.AppendJSON(e.b)
	if e.b = b; err != nil && e.err == nil {
		e.err = err
	}
}

// counts writes a map of counts, which is not empty.
func (e *encoder) counts(counts map[string]int) {
	byName(e, counts, func(n int) { e.b = strconv.AppendInt(e.b, int64(n), 10) })
}

// byName writes a map in the order of its names, as encoding/json does.
func byName[V any](e *encoder, m map[string]V, value func(V)) {
	var space [32]string
	names := space[:0]
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	at := len(e.b)
	for _, name := range names {
		e.raw(",")
		e.text(name)
		e.raw(":")
		value(m[name])
	}
	e.object(at)
}

func (e *encoder) failing(cs []machine.Clause) {
	if len(cs) == 0 {
		return
	}
	e.list("failing", len(cs), false, func(i int) { e.clause(&cs[i]) })
}

func (e *encoder) clause(c *machine.Clause) {
	e.raw(`{"code":`)
	e.text(c.Code)
	e.str("wanted", c.Wanted)
	e.str("had", c.Had)
	e.raw(`}`)
}

func (e *encoder) group(g *Group) {
	at := len(e.b)
	e.list("codes", len(g.Codes), g.Codes == nil, func(i int) { e.text(g.Codes[i]) })
	e.integer("count", int64(g.Count))
	e.str("example", string(g.Example))
	e.ref(g.Ref)
	e.list("failing", len(g.Failing), g.Failing == nil, func(i int) { e.clause(&g.Failing[i]) })
	if g.Never {
		e.raw(`,"never":true`)
	}
	e.object(at)
}

func (e *encoder) ask(a *Ask) {
	at := len(e.b)
	e.str("worker", string(a.Worker))
	e.ref(a.Ref)
	e.str("result", string(a.Result))
	if a.Evict {
		e.raw(`,"evict":true`)
	}
	e.failing(a.Failing)
	if a.Healed != nil {
		e.key("healed")
		healed := len(e.b)
		e.ref(*a.Healed)
		e.object(healed)
	}
	e.float("ms", a.Millis)
	e.object(at)
}
