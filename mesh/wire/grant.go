package wire

import (
	"cmp"
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/core/market"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// grantTime is how long a worker may take to answer a grant: far longer than its patience.
const grantTime = 2 * time.Minute

// Codes of clauses that say no for the wire's own reasons.
const (
	CodeBusy            = fault.CodeBusy // as many calls are under way as the worker takes at once
	CodeLate fault.Code = "late_ask"     // whoever sent it has had an answer to a later one
)

// grant is the one verb of which a late copy would cost something: see asks.
//
// Once the worker has been asked it is waited for, even when the caller goes: a later ask must not overtake it.
func (s *Server) grant(w http.ResponseWriter, r *http.Request, by Peer) error {
	var g lifecycle.Grant
	if err := s.readArgs(w, r, &g); err != nil {
		return err
	}
	if err := cmp.Or(checkLengths(g.Request.App, g.Hold, g.Source, g.Region), g.Check()); err != nil {
		return err
	}
	number, err := askNumber(r.Header)
	if err != nil {
		return err
	}
	t, err := s.asks.beginAsk(r.Context(), by.ID, g.Request.Machine, number)
	if err != nil {
		return err
	}
	if t == nil {
		return s.refuseGrant(r.Context(), CodeLate, "an ask later than this", "this one",
			"the ask came after a later one of the same machine was answered; nobody waits for it")
	}
	unsure := t.unsure
	defer func() { t.endAsk(unsure) }()
	if r.Context().Err() != nil { // given up while it waited: the worker never hears of it
		return callerGone(r.Context())
	}
	if gate := s.gates[change]; gate.enterCaller(by.ID) {
		defer gate.leaveCaller(by.ID)
	} else if t.unsure { // the worker may still act on the ask before: only it may refuse
		return busyError(fault.Unavailable, string(s.o.Worker.ID()))
	} else {
		return s.refuseGrant(r.Context(), CodeBusy, "a free call", "none",
			busyError(fault.Exhausted, string(s.o.Worker.ID())).Text)
	}
	unsure = true // until it has answered; also when it panics
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), grantTime)
	defer cancel()
	m, err := s.o.Worker.Grant(ctx, g)
	unsure = isDoubtful(err)
	if err != nil {
		return err
	}
	return s.answerJSON(w, m)
}

// isDoubtful says whether an answer leaves open if there is, or will be, a machine.
func isDoubtful(err error) bool {
	return fault.Is(err, fault.Unavailable) || fault.Is(err, fault.Timeout) || fault.Is(err, fault.Internal)
}

// refuseGrant is a refusal that the wire makes itself. It carries the worker's record, as the worker's own do.
func (s *Server) refuseGrant(ctx context.Context, code fault.Code, wanted, had, text string) error {
	rec, err := s.o.Worker.Record(ctx)
	if err != nil {
		return err
	}
	return &fault.Error{Kind: fault.Exhausted, Code: code, Scope: fault.ScopeHost, Op: "wire.grant",
		RetryAfter: busyWait, Text: text,
		Detail: market.Refusal{Record: rec, RetryAfter: busyWait,
			Verdict: placement.Verdict{Failing: []machine.Clause{{Code: string(code), Wanted: wanted, Had: had}}}}}
}

func askNumber(h http.Header) (uint64, error) {
	v := h[askHeader]
	if len(v) == 0 {
		return 0, nil
	}
	n, err := strconv.ParseUint(v[0], 10, 64)
	if err != nil {
		return 0, fault.New(fault.Invalid, codeAsk, "%s must be a number, not %q", askHeader, clipText(v[0], 40))
	}
	return n, nil
}
