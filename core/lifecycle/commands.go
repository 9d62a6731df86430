package lifecycle

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/soukhq/souk/core/fsm"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// MaxPending bounds the commands that wait for one machine's operation to end.
const MaxPending = 8

// commands handle what people and buyers ask of machines: verbs, and grants of new machines.
type commands struct {
	*machines
	evictions *evictions
	waiters   *waiters
	terms     *terms
	pending   map[string][]pendingCommand // by the machine whose operation must end first
}

type pendingCommand struct {
	ticket uint64
	c      Command
}

// carryOut carries out a command, or queues it until the machine's operation ends.
func (s *commands) carryOut(ticket uint64, c Command) {
	r, err := s.admitCommand(c)
	if err != nil {
		s.replyTo(ticket, nil, "", err)
		return
	}
	previous := r.Machine.State
	if s.doImmediate(r, c) {
		s.replyTo(ticket, r, previous, nil)
		return
	}
	if run := s.runOf(c.Machine); run != nil && s.duringRun(ticket, r, c, run) {
		return
	}
	previous = r.Machine.State
	begun, err := s.judgeVerb(r, c)
	if err != nil || !begun || s.runOf(c.Machine) == nil { // or the operation ended within this input
		s.replyTo(ticket, r, previous, err)
		return
	}
	s.answerAtEnd(ticket, r, previous, c.Begun)
}

// admitCommand returns a command's machine unless a newer steward, another instance, a lease or a halt forbids the
// command. A queued command is checked again when its turn comes.
func (s *commands) admitCommand(c Command) (*row, error) {
	if err := c.checkOrder(); err != nil {
		return nil, err
	}
	if err := s.terms.obeyTerm(c.App, c.Term); err != nil {
		return nil, err
	}
	r, err := s.findMachine(c.App, c.Machine)
	if err == nil && c.Expect != "" && c.Expect != r.Machine.InstanceID {
		err = fault.New(fault.Conflict, codeOtherInstance,
			"the %s is meant for instance %s of machine %s, which is at instance %s now; look at the machine again",
			c.Verb, c.Expect, c.Machine, r.Machine.InstanceID)
	}
	if err == nil && c.Term == nil && c.Replica == nil && (c.Verb == Update || c.Verb == Resize) {
		err = refuseReplicaChange(r)
	}
	if err == nil && needsLease(c.Verb) && !c.isWakeForRequest() {
		err = s.leases.checkNonce(c.Machine, c.Nonce)
	}
	if err == nil && c.Verb == Destroy && c.Kill && c.Term != nil && r.Machine.State.Up() {
		// A steward kills machines that it saw down. One that is up again may have requests, which a stop waits for.
		err = fault.New(fault.Precondition, codeWrongState,
			"machine %s is %s now, although its steward saw it down before it ordered the destroy: stop it first",
			c.Machine, r.Machine.State)
	}
	if err == nil && c.Verb.startsLife() {
		err = cmp.Or(s.halt.refuseIfHalted(), s.refuseApart(r.Machine.Replica), r.refuseWake(&c))
	}
	return r, err
}

// refuseReplicaChange returns an error if the machine is a replica: only its steward may change it, and the steward
// would not notice and undo another's change.
func refuseReplicaChange(r *row) error {
	of := r.Machine.Replica
	if of == nil {
		return nil
	}
	return fault.New(fault.Precondition, machine.CodeReplica,
		"machine %s is replica %d of group %s of its app's service, which "+
			"keeps it as its release says: make another release", r.Machine.ID, of.Index, of.Group)
}

// duringRun handles a command on a machine with an operation in progress: it joins that operation, is queued, is
// refused, or aborts the operation. It returns true if the command is dealt with, false if the machine is now free for
// it.
func (s *commands) duringRun(ticket uint64, r *row, c Command, run *fsm.Run) bool {
	id := r.Machine.ID
	same := string(c.Verb) == run.Op || c.Verb == Start && (run.Op == opStartEvict || wakesLife(run.Op))
	switch {
	case c.Verb == Destroy && c.Kill && run.Op != opDestroy:
		if _, err := argsFor(r, c); err != nil {
			s.replyTo(ticket, r, r.Machine.State, err)
			return true
		}
		s.abortRun(run.Key, "the machine is being destroyed")
		return false
	case same && (c.Verb == Start || c.Verb == Stop || c.Verb == Destroy):
		s.answerAtEnd(ticket, r, r.Machine.State, c.Begun)
	case len(s.pending[id]) >= MaxPending:
		s.replyTo(ticket, r, "", &fault.Error{Kind: fault.Conflict, Code: fault.CodeBusy, RetryAfter: time.Second,
			Text: "too many commands wait for machine " + id + " already; try again when its " + run.Op + " has ended"})
	default:
		s.pending[id] = append(s.pending[id], pendingCommand{ticket, c})
	}
	return true
}

// doPending carries out a machine's queued commands, up to the first that begins an operation.
func (s *commands) doPending(id string) {
	for s.runOf(id) == nil && len(s.pending[id]) > 0 {
		p := s.pending[id][0]
		s.pending[id] = s.pending[id][1:]
		s.carryOut(p.ticket, p.c)
	}
	if len(s.pending[id]) == 0 {
		delete(s.pending, id)
	}
}

// answerAtEnd answers ticket when the machine's operation ends, or now if begun is set.
func (s *commands) answerAtEnd(ticket uint64, r *row, previous machine.State, begun bool) {
	if !begun {
		s.waiters.addWaiter(machineKey(r.Machine.ID), ticket, previous)
		return
	}
	s.out.Sync = true
	s.replyBegun(ticket, r, previous)
}

// replyBegun answers a command whose operation is in progress.
func (s *commands) replyBegun(ticket uint64, r *row, previous machine.State) {
	out := Outcome{Machine: r.publicMachine(), Previous: previous}
	if run := s.runOf(r.Machine.ID); run != nil {
		out.Begun = &machine.Begun{Operation: run.Op, Until: finalState(run)}
	}
	s.out.Replies = append(s.out.Replies, Reply{Ticket: ticket, Outcome: out})
}

// answerOverdue answers a command that has waited for too long: with the operation in progress, or, if the command is
// still queued, with an error. A command that is answered already is ignored.
func (s *commands) answerOverdue(ticket uint64) {
	if key, w, ok := s.waiters.takeWaiter(ticket); ok {
		id, isMachine := strings.CutPrefix(key, "m/")
		if isMachine {
			s.replyBegun(ticket, s.rows[id], w.previous)
			return
		}
		v := s.volumes.rows[strings.TrimPrefix(key, "v/")]
		s.out.Replies = append(s.out.Replies, Reply{Ticket: ticket, Volume: v.publicVolume(),
			Err: fault.New(fault.Timeout,
				fault.CodeDeadline, "volume %s is not ready yet; it is being worked on, so look again later",
				v.Volume.ID)})
		return
	}
	for id, list := range s.pending {
		i := slices.IndexFunc(list, func(p pendingCommand) bool { return p.ticket == ticket })
		if i < 0 {
			continue
		}
		verb, op := list[i].c.Verb, "operation"
		if s.pending[id] = slices.Delete(list, i, i+1); len(s.pending[id]) == 0 {
			delete(s.pending, id)
		}
		if run := s.runOf(id); run != nil {
			op = run.Op
		}
		s.replyTo(ticket, nil, "", &fault.Error{Kind: fault.Conflict, Code: fault.CodeBusy, RetryAfter: time.Second,
			Text: fmt.Sprintf("the %s of machine %s was dropped before it began, because the machine's %s takes "+
				"long; ask again when that has ended", verb, id, op)})
		return
	}
}

// isWakeForRequest reports whether a command starts a machine for a request. A lease does not prevent it: its holder
// is at work on the machine, and the request cannot wait for that to end.
func (c *Command) isWakeForRequest() bool { return c.Verb == Start && c.Source == machine.SourceProxy }

// needsLease reports whether a lease keeps others from a verb, as in the Machines API.
func needsLease(v Verb) bool { return v != Signal && v != SetMetadata }

// doImmediate carries out the verbs that do not affect a running machine; false: the verb is not one of them.
func (s *commands) doImmediate(r *row, c Command) bool {
	switch c.Verb {
	case Cordon, Uncordon:
		r.Machine.Cordoned = c.Verb == Cordon
	case SetMetadata:
		cfg := *r.Machine.Config
		m := map[string]string{}
		if !c.ReplaceMetadata {
			m = maps.Clone(cfg.Metadata)
		}
		if m == nil {
			m = map[string]string{}
		}
		for k, v := range c.Metadata {
			if v == nil {
				delete(m, k)
			} else {
				m[k] = *v
			}
		}
		cfg.Metadata = m
		r.Machine.Config = &cfg
	default:
		return false
	}
	r.Machine.UpdatedAt = formatTime(s.now)
	s.dirty[r.Machine.ID] = true
	s.out.Sync = true
	return true
}

// waiters are the commands that wait for the end of an operation in progress, by its key.
type waiters struct {
	*core
	byKey map[string][]waiter
}

type waiter struct {
	ticket   uint64
	run      string        // the operation's id
	previous machine.State // the state that the command found
	failed   error         // set if this run repairs a failed one: why that failed
}

// addWaiter answers ticket when the present operation of key ends.
func (s *waiters) addWaiter(key string, ticket uint64, previous machine.State) {
	s.byKey[key] = append(s.byKey[key], waiter{ticket: ticket, run: s.engine.Active(key).ID, previous: previous})
}

// takeWaiter removes and returns the waiter of a ticket, and the key of its operation.
func (s *waiters) takeWaiter(ticket uint64) (key string, w waiter, ok bool) {
	for key, list := range s.byKey {
		if i := slices.IndexFunc(list, func(w waiter) bool { return w.ticket == ticket }); i >= 0 {
			w = list[i]
			if s.byKey[key] = slices.Delete(list, i, i+1); len(s.byKey[key]) == 0 {
				delete(s.byKey, key)
			}
			return key, w, true
		}
	}
	return "", w, false
}

// drainWaiters removes the waiters of key and calls f with each.
func (s *waiters) drainWaiters(key string, f func(waiter)) {
	list := s.byKey[key]
	delete(s.byKey, key)
	for _, w := range list {
		f(w)
	}
}

// carryOver moves the waiters of a failed run to the run that repairs it.
func (s *waiters) carryOver(f fsm.Finished, to *fsm.Run) {
	for i, w := range s.byKey[f.Key] {
		if w.run == f.ID {
			s.byKey[f.Key][i].run, s.byKey[f.Key][i].failed = to.ID, f.Err
		}
	}
}

// answerWaiters answers the waiters of a run that has ended. reply completes each answer.
func (s *waiters) answerWaiters(f fsm.Finished, reply func(*Reply)) {
	var others []waiter // waiters of the operation that follows an aborted one
	for _, w := range s.byKey[f.Key] {
		if w.run != f.ID {
			others = append(others, w)
			continue
		}
		rep := Reply{Ticket: w.ticket, Err: f.Err, Outcome: Outcome{Previous: w.previous}}
		if w.failed != nil {
			rep.Err = w.failed
		}
		reply(&rep)
		s.out.Replies = append(s.out.Replies, rep)
	}
	if s.byKey[f.Key] = others; others == nil {
		delete(s.byKey, f.Key)
	}
}

// Do handles a command. Its reply comes when its operation ends (or has begun, with Command.Begun), or at once if
// there is nothing to do.
func (s *Supervisor) Do(now time.Time, ticket uint64, c Command) Out {
	s.openOut(now)
	s.commands.carryOut(ticket, c)
	return s.closeOut()
}

// Overdue answers a command that has waited for too long: with the operation in progress, or with why the command is
// not carried out. It does nothing if the command has been answered.
func (s *Supervisor) Overdue(now time.Time, ticket uint64) Out {
	s.openOut(now)
	s.commands.answerOverdue(ticket)
	return s.closeOut()
}
