package wake

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/soukhq/souk/core/routing"
)

// takeRequest has a machine serve a request, or returns it with a correction.
func (b *box) takeRequest(e *entry, t routing.Ticket, r *request) {
	w := b.owner.w
	var c routing.Correction
	switch {
	case b.power != routing.Up || b.rests || len(b.woken) > 0:
		c = routing.DoesNotRun
	case w.c.Policy.Hard > 0 && b.load >= w.c.Policy.Hard:
		c = routing.AtItsLimit
	default:
		b.load++
		b.tellOthers()
		w.scheduleWithin([2]time.Duration{r.Takes, r.Takes}, func() { b.endRequest(e, t, r) })
		return
	}
	w.res.Corrected++
	w.doAfterHop(e, b.id, func() { e.carryOut(e.pool.Corrected(w.clockTime(), w.rng, t, c, nil)) })
}

// endRequest ends a request at its machine.
func (b *box) endRequest(e *entry, t routing.Ticket, r *request) {
	w := b.owner.w
	if b.power != routing.Up || b.rests {
		w.res.Broken = append(w.res.Broken, fmt.Sprintf("%s was stopped with a request", b.id))
	}
	if b.load--; b.load == 0 {
		b.since = w.clockTime()
	}
	b.tellOthers()
	w.doAfterHop(e, b.id, func() {
		delete(e.waiting, t)
		w.res.Answered++
		w.res.LastEnd = time.Duration(w.now) * time.Microsecond
		w.res.Waits = append(w.res.Waits, time.Duration(w.now-r.since)*time.Microsecond-r.Takes)
		e.carryOut(e.pool.Done(w.clockTime(), w.rng, t))
	})
}

// wakeMachine starts a machine, once for all callers, and calls them when it is ready.
func (b *box) wakeMachine(then func(error)) {
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
	w.scheduleWithin(w.c.Start, b.becomeReady)
}

// becomeReady marks a machine up. If it is being stopped, it is up only after the stop.
func (b *box) becomeReady() {
	w := b.owner.w
	if b.rests {
		w.scheduleWithin(w.c.Start, b.becomeReady)
		return
	}
	b.power, b.since = routing.Up, w.clockTime()
	w.res.Peak = max(w.res.Peak, w.countUp())
	b.tellOthers()
	list := b.woken
	b.woken = nil
	for _, then := range list {
		then(nil)
	}
}

// decideRests decides which of an owner's machines rest.
func (o *owner) decideRests() {
	s := routing.Service{Policy: o.w.c.Policy}
	for _, b := range o.machines {
		load := b.load
		if len(b.woken) > 0 {
			load++
		}
		s.Machines = append(s.Machines, routing.Member{Machine: b.id, Region: o.region,
			Up: b.power == routing.Up && !b.rests, Load: load, Own: true, Since: b.since})
	}
	for _, id := range slices.Sorted(maps.Keys(o.facts)) { // in a fixed order, so that a run is repeatable
		s.Machines = append(s.Machines, o.facts[id])
	}
	rests, _ := o.idle.Step(o.w.clockTime(), []routing.Service{s})
	for _, r := range rests {
		b := o.w.boxByID(r.Machine)
		if b.load > 0 {
			o.w.res.Broken = append(o.w.res.Broken, b.id+" was to rest with a request")
			continue
		}
		b.rests = true
		o.w.res.Rests++
		o.w.scheduleWithin(o.w.c.Stop, func() {
			b.rests, b.power = false, routing.Asleep
			b.tellOthers()
			if o.w.countUp() <= o.w.c.Policy.Min {
				o.w.res.AllAsleep = time.Duration(o.w.now) * time.Microsecond
			}
		})
	}
}

// tellOthers sends a machine's state to the entries and the other owners, each with a delay. A newer state replaces an
// older one, like versions of a record.
func (b *box) tellOthers() {
	w := b.owner.w
	fact := routing.Member{Machine: b.id, Region: b.owner.region, Up: b.power == routing.Up, Load: b.load}
	power, load, when := b.power, b.load, w.now
	for _, e := range w.entries {
		w.scheduleWithin(w.c.News, func() { e.hearMachine(b.id, power, load, when) })
	}
	for _, o := range w.owners {
		if o != b.owner {
			w.scheduleWithin(w.c.News, func() { o.hearMember(fact, when) })
		}
	}
}

func (o *owner) hearMember(m routing.Member, when int64) {
	if when >= o.heard[m.Machine] {
		o.heard[m.Machine], o.facts[m.Machine] = when, m
	}
}

func (e *entry) hearMachine(id string, power routing.Power, load int, when int64) {
	if when < e.heard[id] {
		return
	}
	e.heard[id] = when
	for i := range e.facts {
		if e.facts[i].Machine == id {
			e.facts[i].Power, e.facts[i].Load = power, load
		}
	}
	e.refreshPool()
}
