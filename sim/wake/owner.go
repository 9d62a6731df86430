package wake

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/soukhq/souk/core/routing"
)

// take has a machine serve a request, or sends it back with a correction.
func (b *box) take(e *entry, t routing.Ticket, r *request) {
	w := b.owner.w
	var c routing.Correction
	switch {
	case b.power != routing.Up || b.rests || len(b.woken) > 0:
		c = routing.DoesNotRun
	case w.c.Policy.Hard > 0 && b.load >= w.c.Policy.Hard:
		c = routing.AtItsLimit
	default:
		b.load++
		b.tell()
		w.in([2]time.Duration{r.Takes, r.Takes}, func() { b.end(e, t, r) })
		return
	}
	w.res.Corrected++
	w.hop(e, b.id, func() { e.do(e.pool.Corrected(w.clock(), w.rng, t, c, nil)) })
}

// end is the end of a request at its machine.
func (b *box) end(e *entry, t routing.Ticket, r *request) {
	w := b.owner.w
	if b.power != routing.Up || b.rests {
		w.res.Broken = append(w.res.Broken, fmt.Sprintf("%s was stopped with a request", b.id))
	}
	if b.load--; b.load == 0 {
		b.since = w.clock()
	}
	b.tell()
	w.hop(e, b.id, func() {
		delete(e.waiting, t)
		w.res.Answered++
		w.res.LastEnd = time.Duration(w.now) * time.Microsecond
		w.res.Waits = append(w.res.Waits, time.Duration(w.now-r.since)*time.Microsecond-r.Takes)
		e.do(e.pool.Done(w.clock(), w.rng, t))
	})
}

// wake starts a machine, once for all that want it, and has them called when it is ready.
func (b *box) wake(then func(error)) {
	w := b.owner.w
	if b.power == routing.Up && !b.rests {
		then(nil)
		return
	}
	b.woken = append(b.woken, then)
	if len(b.woken) > 1 {
		return
	}
	w.res.Wakes++
	w.in(w.c.Start, b.ready)
}

// ready is when a machine is up. One that was being stopped meanwhile is up only once that has ended.
func (b *box) ready() {
	w := b.owner.w
	if b.rests {
		w.in(w.c.Start, b.ready)
		return
	}
	b.power, b.since = routing.Up, w.clock()
	w.res.Peak = max(w.res.Peak, w.up())
	b.tell()
	list := b.woken
	b.woken = nil
	for _, then := range list {
		then(nil)
	}
}

// look has an owner decide which of its machines rest.
func (o *owner) look() {
	s := routing.Service{Policy: o.w.c.Policy}
	for _, b := range o.machines {
		load := b.load
		if len(b.woken) > 0 {
			load++
		}
		s.Machines = append(s.Machines, routing.Member{Machine: b.id, Region: o.region,
			Up: b.power == routing.Up && !b.rests, Load: load, Own: true, Since: b.since})
	}
	for _, id := range slices.Sorted(maps.Keys(o.facts)) { // in one order, so that a run repeats
		s.Machines = append(s.Machines, o.facts[id])
	}
	rests, _ := o.idle.Step(o.w.clock(), []routing.Service{s})
	for _, r := range rests {
		b := o.w.box(r.Machine)
		if b.load > 0 {
			o.w.res.Broken = append(o.w.res.Broken, b.id+" was to rest with a request")
			continue
		}
		b.rests = true
		o.w.res.Rests++
		o.w.in(o.w.c.Stop, func() {
			b.rests, b.power = false, routing.Asleep
			b.tell()
			if o.w.up() <= o.w.c.Policy.Min {
				o.w.res.AllAsleep = time.Duration(o.w.now) * time.Microsecond
			}
		})
	}
}

// tell has the entries and the other owners know of a machine, each a while later. What was told later is believed
// over what was told before, as a record of the fleet has a version.
func (b *box) tell() {
	w := b.owner.w
	fact := routing.Member{Machine: b.id, Region: b.owner.region, Up: b.power == routing.Up, Load: b.load}
	power, load, when := b.power, b.load, w.now
	for _, e := range w.entries {
		w.in(w.c.News, func() { e.hear(b.id, power, load, when) })
	}
	for _, o := range w.owners {
		if o != b.owner {
			w.in(w.c.News, func() { o.hear(fact, when) })
		}
	}
}

func (o *owner) hear(m routing.Member, when int64) {
	if when >= o.heard[m.Machine] {
		o.heard[m.Machine], o.facts[m.Machine] = when, m
	}
}

func (e *entry) hear(id string, power routing.Power, load int, when int64) {
	if when < e.heard[id] {
		return
	}
	e.heard[id] = when
	for i := range e.facts {
		if e.facts[i].Machine == id {
			e.facts[i].Power, e.facts[i].Load = power, load
		}
	}
	e.view()
}
