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

// grantTime is how long a worker may take to answer a grant: far longer than its own limit.
const grantTime = 2 * time.Minute

// Codes of refusals made by the wire itself.
const (
	CodeBusy            = fault.CodeBusy // the worker has its maximum number of calls in progress
	CodeLate fault.Code = "late_ask"     // a later ask of the caller has been answered
)

// grant is the only verb for which a late duplicate is harmful: see asks.
//
// After it has called the worker it waits for the answer, even if the caller goes away: a later ask must not overtake
// this one.
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
	if r.Context().Err() != nil { // given up while it waited: the worker is not asked
		return callerGone(r.Context())
	}
	if gate := s.gates[change]; gate.enterCaller(by.ID) {
		defer gate.leaveCaller(by.ID)
	} else if t.unsure { // the worker may still act on the previous ask, so only the worker may refuse
		return busyError(fault.Unavailable, string(s.o.Worker.ID()))
	} else {
		return s.refuseGrant(r.Context(), CodeBusy, "a free call", "none",
			busyError(fault.Exhausted, string(s.o.Worker.ID())).Text)
	}
	unsure = true // until the worker has answered; also if it panics
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), grantTime)
	defer cancel()
	m, err := s.o.Worker.Grant(ctx, g)
	unsure = isDoubtful(err)
	if err != nil {
		return err
	}
	return s.answerJSON(w, m)
}

// isDoubtful reports whether an answer leaves open if a machine exists or will exist.
func isDoubtful(err error) bool {
	return fault.Is(err, fault.Unavailable) || fault.Is(err, fault.Timeout) || fault.Is(err, fault.Internal)
}

// refuseGrant makes a refusal of the wire's own. It carries the worker's record, as the worker's refusals do.
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
