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
	Ops        int // looked at
	Parts      int // histories that stand for themselves: of one machine, of one worker
	Violations []string
	Unknown    int // parts whose search took longer than it may
}

// Check holds a history against the models: of each machine, and of each worker's room. slots is how many machines a
// worker has room for; 0 leaves the room out, as it must be where machines end by themselves. Searches take at most
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
	restored := map[cluster.WorkerID]int64{} // -> when the copy was made that it came back from last
	for _, o := range ops {
		if o.Kind == Restored {
			restored[o.Worker] = o.Call
		}
	}
	machines, workers := map[string][]Op{}, map[cluster.WorkerID][]Op{}
	odd := map[string]bool{} // it was, or may have been, on a worker that forgot
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

// atOnce narrows each call to the moment of its time that takes the least room: what takes some to its end, what
// gives some back to its beginning. An order that is true then is one of the wider times, too; and there is next to
// nothing to search, where calls that waited for a cut to be mended overlap with all that was done meanwhile.
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
			p.Return = math.MaxInt64 // it may still come
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

// machineModel: a machine is made once, at one worker, as one instance; once destroyed it never comes back; its lease
// has one holder. Leases of the history outlast it.
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

// unsure is an Op without an answer, which took effect: had it not, it would stand at the end of all, where nobody
// looks.
func (s machineState) unsure(o Op) any {
	switch {
	case o.Kind == Destroy && s.there:
		return machineState{gone: true}
	case o.Kind == ReleaseLease && s.lease == o.Nonce:
		s.lease = ""
	case o.Kind == Lease && s.there && s.lease == "":
		s.lease = "of somebody who does not know"
	}
	return s // a create that was never told is never looked for
}

// workerState is the state of one worker. Its lists are sorted strings, so that states can be compared.
type workerState struct {
	machines string // a line each
	used     int    // how many those are
	holds    string // tokens with their ends, a line each
}

// capacityModel: what a worker has granted and holds never exceeds its slots, and a hold that is redeemed in time gets
// its room. A hold ends when its time is over, or with its worker's process.
//
// What gives room back counts too where it is not known whether it was done: it has the rest of the history to be done
// in, or it is done last, where it is no matter. A machine gives its room back once, however often it is destroyed.
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

// spends reports whether a create may have redeemed its hold, and then have made nothing: its machine's launch failed,
// or nobody knows.
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

// find returns where the line of a machine begins, or belongs.
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
