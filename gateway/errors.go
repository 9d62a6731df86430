package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"strconv"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/broker"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/market"
)

// statusOf gives the HTTP code of an error and the Machines API's status word.
//
// No refusal is 502 or 503: clients send those again, with every method. Nor is anything else, because what a lost
// answer may have done is known only to who asks.
func statusOf(e *fault.Error) (int, string) {
	switch e.Code { // the cases in which the Machines API is narrower than a kind
	case "unauthenticated":
		return http.StatusUnauthorized, ""
	case "app_name_taken":
		return http.StatusUnprocessableEntity, "name_taken"
	case "idempotency_key":
		return http.StatusUnprocessableEntity, ""
	case "too_large":
		return http.StatusRequestEntityTooLarge, ""
	case "method":
		return http.StatusMethodNotAllowed, ""
	case "busy", "too_many_keys":
		if e.Kind != fault.Conflict {
			return http.StatusTooManyRequests, ""
		}
	}
	switch e.Kind {
	case fault.Invalid:
		return http.StatusBadRequest, ""
	case fault.Denied:
		return http.StatusForbidden, ""
	case fault.NotFound:
		return http.StatusNotFound, ""
	case fault.Conflict:
		return http.StatusConflict, ""
	case fault.Precondition:
		return http.StatusPreconditionFailed, ""
	case fault.Exhausted:
		return statusOfExhausted(e)
	case fault.Timeout:
		return http.StatusRequestTimeout, ""
	case fault.Unimplemented:
		return http.StatusNotImplemented, ""
	}
	return http.StatusInternalServerError, ""
}

func statusOfExhausted(e *fault.Error) (int, string) {
	switch e.Scope {
	case fault.ScopeHost:
		return http.StatusConflict, "" // a status that clients do not know would outrank the text
	case fault.ScopeVolume:
		return http.StatusPreconditionFailed, "volume_placement_capacity"
	case fault.ScopeQuota: // not 429: the Machines API has that for its rate alone, and this for a tenant over its quota
		return http.StatusForbidden, ""
	}
	if e.Code == "no_volume_capacity" {
		return http.StatusConflict, ""
	}
	return http.StatusUnprocessableEntity, "insufficient_capacity"
}

// bodyOf gives the body of an error. A fault of souk's own names the request instead of its cause: the cause may hold
// what is nobody's business, and is in the log.
func bodyOf(e *fault.Error, status, request string) api.ErrorBody {
	b := api.ErrorBody{Error: e.Error(), Status: status, Souk: api.Reason{
		Kind: e.Kind, Code: e.Code, Scope: e.Scope, Resource: e.Resource, RetryAfter: e.RetryAfter.Seconds(), Request: request,
	}}
	if e.Kind == fault.Internal || e.Kind == fault.Unavailable && e.Err != nil {
		b.Error = e.Text + "; its cause is in souk's log under " + request
	}
	switch d := e.Detail.(type) {
	case market.Refusal:
		b.Souk.Clauses = d.Verdict.Failing
	case []machine.Candidate:
		b.Souk.Candidates = d
	case broker.Unplaced:
		b.Souk.Pending, b.Souk.Decision, b.Souk.Candidates, b.Souk.Clauses = d.Pending, d.Decision, d.Candidates, d.Clauses
	case []machine.Clause:
		b.Souk.Clauses = d
	case string:
		b.Souk.Machine = d
	}
	return b
}

// fail answers an error. It is the only place that does, and the only one that logs it.
func (g *Gateway) fail(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil && errors.Is(err, context.Canceled) {
		return // who asked is gone
	}
	e := asFault(err)
	code, status := statusOf(e)
	if code >= http.StatusInternalServerError && code != http.StatusNotImplemented {
		g.log.ErrorContext(r.Context(), "request failed", "request", requestID(r), "kind", e.Kind, "code", e.Code, "op", e.Op, "error", e)
	}
	if code == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="souk"`)
	}
	if e.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(e.RetryAfter.Seconds()))))
	}
	answer(w, code, bodyOf(e, status, requestID(r)))
}

// asFault is fault.As that knows a context's end.
func asFault(err error) *fault.Error {
	if _, ours := errors.AsType[*fault.Error](err); !ours && errors.Is(err, context.DeadlineExceeded) {
		return fault.Wrap(err, fault.Timeout, "deadline", "deadline_exceeded: it took too long; look at the state and ask again")
	}
	return fault.As(err)
}

// answer writes a JSON body. An error can only be that nobody reads any more.
func answer(w http.ResponseWriter, code int, body any) {
	var b bytes.Buffer
	if err := json.NewEncoder(&b).Encode(body); err != nil {
		code = http.StatusInternalServerError
		b.Reset()
		b.WriteString(`{"error":"the answer could not be written as JSON; report this","souk":{"kind":"internal"}}` + "\n")
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(b.Len()))
	w.WriteHeader(code)
	_, _ = w.Write(b.Bytes())
}

func answerOK(w http.ResponseWriter) error {
	answer(w, http.StatusOK, api.OK{OK: true})
	return nil
}
