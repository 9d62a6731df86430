package history

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// Result is what a search found.
type Result struct {
	Ops        int // calls checked
	Parts      int // independent histories: one per machine and per worker
	Violations []string
	Unknown    int // parts whose search ran out of time
}

// Check checks a history against the models of each machine and of each worker's room. slots is how many machines fit
// on a worker; 0 skips the check of room, which is necessary if machines end by themselves. Each search takes at most
// limit.
func Check(ops []Op, slots int, limit time.Duration) Result {
	res := Result{Ops: len(ops)}
	deadline := time.Now().Add(limit)
	run := func(what string, m porcupine.Model, part []Op) {
		res.Parts++
		if porcupine.CheckOperationsTimeout(m, atOnce(part),
			max(time.Until(deadline)/4, time.Millisecond)) == porcupine.Ok {
			return
		}
		switch porcupine.CheckOperationsTimeout(m, operations(part), max(time.Until(deadline), time.Millisecond)) {
		case porcupine.Illegal:
			res.Violations = append(res.Violations,
				fmt.Sprintf("what clients were told of %s has no order in which it is true: %s", what,
					historyText(part)))
		case porcupine.Unknown:
			res.Unknown++
		}
	}
	restored := map[cluster.WorkerID]int64{} // time of the disk copy that it was last restored from
	for _, o := range ops {
		if o.Kind == Restored {
			restored[o.Worker] = o.Call
		}
	}
	machines, workers := map[string][]Op{}, map[cluster.WorkerID][]Op{}
	odd := map[string]bool{} // machines that are or may be on a worker that forgot
	for _, o := range ops {
		_, forgot := restored[o.Worker]
		if o.Machine != "" && o.Kind != Hold && o.Kind != Release {
			machines[o.Machine] = append(machines[o.Machine], o)
			odd[o.Machine] = odd[o.Machine] || forgot || forgotten(o, restored)
		}
		if o.Worker != "" && !forgot {
			workers[o.Worker] = append(workers[o.Worker], o)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(machines)) {
		if !odd[id] {
			run("machine "+id, machineModel(), machines[id])
		}
	}
	if slots > 0 {
		for _, id := range slices.Sorted(maps.Keys(workers)) {
			run("the room of worker "+string(id), capacityModel(slots), workers[id])
		}
	}
	return res
}

// atOnce narrows each call to the moment when it needs least room: a call that takes room to its end, a call that frees
// room to its beginning. An order that is valid for the moments is valid for the whole calls, too, and is found
// quickly; with whole calls, those that waited for a partition to heal would overlap with everything meanwhile.
func atOnce(ops []Op) []porcupine.Operation {
	out := operations(ops)
	for i, o := range ops {
		switch {
		case o.Outcome == Unsure || o.Kind == Killed || o.Kind == Restored:
		case o.spends() || o.Kind == Destroy || o.Kind == Release || o.Kind == ReleaseLease:
			out[i].Return = o.Call
		default:
			out[i].Call = o.Return
		}
	}
	return out
}

func operations(ops []Op) []porcupine.Operation {
	var out []porcupine.Operation
	for _, o := range ops {
		p := porcupine.Operation{ClientId: o.Client, Input: o, Output: o, Call: o.Call, Return: o.Return}
		if o.Outcome == Unsure {
			p.Return = math.MaxInt64 // it may still take effect
		}
		out = append(out, p)
	}
	return out
}

func historyText(ops []Op) string {
	ops = slices.Clone(ops)
	slices.SortFunc(ops, func(a, b Op) int { return cmp.Compare(a.Call, b.Call) })
	text := ""
	for i, o := range ops {
		if i == 12 {
			return text + fmt.Sprintf("; and %d more", len(ops)-i)
		}
		if i > 0 {
			text += "; "
		}
		text += fmt.Sprintf("%s at %s by %s %s", o.Kind, cmp.Or(string(o.Worker), "?"), cmp.Or(o.Gateway, "?"),
			o.Outcome)
		if o.Code != "" {
			text += " (" + string(o.Code) + ")"
		}
	}
	return text
}

// machineState is the state of one machine.
type machineState struct {
	there    bool
	gone     bool
	worker   cluster.WorkerID
	instance string
	lease    string // nonce of the lease in force
}

// machineModel is the model of a machine: it is made once, at one worker, as one instance; once destroyed it never
// comes back; its lease has one holder. Leases in a history do not expire within it.
func machineModel() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return machineState{} },
		Step: func(s, in, _ any) (bool, any) {
			st, o := s.(machineState), in.(Op)
			if o.Outcome == Unsure {
				return true, st.unsure(o)
			}
			return st.step(o)
		},
	}
}

func (s machineState) step(o Op) (bool, any) {
	yes := o.Outcome == Yes
	switch o.Kind {
	case Create:
		if !yes {
			return !s.there, s
		}
		if s.there {
			return s.worker == o.Worker && s.instance == o.Instance, s
		}
		return !s.gone, machineState{there: true, worker: o.Worker, instance: o.Instance}
	case Destroy:
		if yes {
			return s.there || s.gone, machineState{gone: true}
		}
		return !s.there || s.lease != "", s
	case Lease:
		if yes {
			s.lease = o.Nonce
			return s.there, s
		}
		return !s.there || s.lease != "", s
	case ReleaseLease:
		if yes {
			ok := s.there && s.lease == o.Nonce
			s.lease = ""
			return ok, s
		}
		return !s.there || s.lease != o.Nonce, s
	}
	return true, s
}

// unsure applies an Op without an answer as if it took effect. If it did not, the search can order it last, where it
// changes nothing.
func (s machineState) unsure(o Op) any {
	switch {
	case o.Kind == Destroy && s.there:
		return machineState{gone: true}
	case o.Kind == ReleaseLease && s.lease == o.Nonce:
		s.lease = ""
	case o.Kind == Lease && s.there && s.lease == "":
		s.lease = "of somebody who does not know"
	}
	return s // an unanswered create has no id to look for
}

// workerState is the state of one worker. Its lists are sorted strings, so that states can be compared.
type workerState struct {
	machines string // one per line
	used     int    // number of machines
	holds    string // tokens with their ends, a line each
}

// capacityModel is the model of a worker's room: grants and holds never exceed its slots, and a hold redeemed in time
// gets its room. A hold ends when its time is over, or with its worker's process.
//
// Calls that free room count even without an answer: they may take effect at any later time, or last, where it does not
// matter. A machine frees its room once, however often it is destroyed.
func capacityModel(slots int) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return workerState{} },
		Step: func(s, in, _ any) (bool, any) {
			st, o := s.(workerState), in.(Op)
			held := st.held(o)
			frees := o.Outcome == Unsure && (o.Kind == Destroy || o.Kind == Release)
			switch {
			case o.spends():
				delete(held, o.Token)
			case o.Kind == Killed:
				held = map[string]int64{}
			case o.Outcome != Yes && !frees:
				_, redeems := held[o.Token]
				return !(o.Kind == Create && o.Outcome == No && redeems && o.Return < held[o.Token] &&
					o.Code == fault.CodeNoCapacity), st
			case o.Kind == Create:
				delete(held, o.Token)
				st.add(o.Machine)
			case o.Kind == Destroy:
				st.remove(o.Machine)
			case o.Kind == Hold:
				held[o.Token] = o.Expires
			case o.Kind == Release:
				delete(held, o.Token)
			}
			st.holds = pack(held)
			return st.used+len(held) <= slots, st
		},
	}
}

// spends reports whether a create may have used up its hold without making a machine: its launch failed, or its outcome
// is unknown.
func (o Op) spends() bool {
	return o.Kind == Create && o.Token != "" && (o.Outcome == Unsure ||
		o.Outcome == No && o.Code == machine.CodeLaunchFailed)
}

func (s *workerState) add(id string) {
	if at, there := s.find(id); !there {
		s.machines, s.used = s.machines[:at]+id+"\n"+s.machines[at:], s.used+1
	}
}

func (s *workerState) remove(id string) {
	if at, there := s.find(id); there {
		s.machines, s.used = s.machines[:at]+s.machines[at+len(id)+1:], s.used-1
	}
}

// find returns where the line of a machine begins, or where to insert it.
func (s *workerState) find(id string) (at int, there bool) {
	for line := range strings.Lines(s.machines) {
		if line >= id+"\n" {
			return at, line == id+"\n"
		}
		at += len(line)
	}
	return at, false
}

// held returns the holds that may still be in force when an Op takes effect.
func (s workerState) held(o Op) map[string]int64 {
	held := map[string]int64{}
	for rest := s.holds; rest != ""; {
		var token string
		var until int64
		line := rest
		if i := slices.Index([]byte(rest), '\n'); i >= 0 {
			line, rest = rest[:i], rest[i+1:]
		}
		if _, err := fmt.Sscanf(line, "%s %d", &token, &until); err == nil && until > o.Return {
			held[token] = until
		}
	}
	return held
}

func pack(held map[string]int64) (text string) {
	for _, token := range slices.Sorted(maps.Keys(held)) {
		text += fmt.Sprintf("%s %d\n", token, held[token])
	}
	return text
}
