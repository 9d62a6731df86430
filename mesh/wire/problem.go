package wire

import (
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/market"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// problem is the JSON form of a *fault.Error. At most one of the last six fields is set: the error's Detail. A Detail
// of any other type is dropped.
type problem struct {
	Kind       fault.Kind    `json:"kind"`
	Code       fault.Code    `json:"code,omitempty"`
	Op         string        `json:"op,omitempty"`
	Text       string        `json:"text"`
	Scope      fault.Scope   `json:"scope,omitempty"`
	Resource   string        `json:"resource,omitempty"`
	RetryAfter time.Duration `json:"retry_after,omitempty"` // nanoseconds
	Cause      string        `json:"cause,omitempty"`

	Refusal    *market.Refusal     `json:"refusal,omitempty"`
	Record     *cluster.Record     `json:"record,omitempty"`
	Term       *cluster.Term       `json:"term,omitempty"`
	Candidates []machine.Candidate `json:"candidates,omitempty"`
	Clauses    []machine.Clause    `json:"clauses,omitempty"`
	Note       string              `json:"note,omitempty"`
}

// maxSentence bounds each text of a transferred error, in bytes.
const maxSentence = 8 << 10

func problemOf(err error) problem {
	e := fault.As(err)
	p := problem{Kind: e.Kind, Code: e.Code, Op: e.Op, Text: clipText(e.Text, maxSentence), Scope: e.Scope,
		Resource: e.Resource, RetryAfter: e.RetryAfter}
	if e.Err != nil {
		p.Cause = clipText(e.Err.Error(), maxSentence)
	}
	p.Refusal, p.Record, p.Term = detail[market.Refusal](e), detail[cluster.Record](e), detail[cluster.Term](e)
	p.Candidates, _ = fault.Detail[[]machine.Candidate](e)
	p.Clauses, _ = fault.Detail[[]machine.Clause](e)
	p.Note, _ = fault.Detail[string](e)
	return p
}

// detail returns an error's Detail if it is a T, else nil.
func detail[T any](e *fault.Error) *T {
	if d, is := fault.Detail[T](e); is {
		return &d
	}
	return nil
}

// asError returns the original error. An unknown kind becomes Internal.
func (p problem) asError() *fault.Error {
	e := &fault.Error{Kind: p.Kind, Code: p.Code, Op: p.Op, Text: p.Text, Scope: p.Scope, Resource: p.Resource,
		RetryAfter: p.RetryAfter}
	if _, known := statusOf(p.Kind); !known {
		e.Kind = fault.Internal
	}
	if p.Cause != "" {
		e.Err = errors.New(p.Cause)
	}
	switch {
	case p.Refusal != nil:
		e.Detail = *p.Refusal
	case p.Record != nil:
		e.Detail = *p.Record
	case p.Term != nil:
		e.Detail = *p.Term
	case p.Candidates != nil:
		e.Detail = p.Candidates
	case p.Clauses != nil:
		e.Detail = p.Clauses
	case p.Note != "":
		e.Detail = p.Note
	}
	return e
}

// statusOf returns the HTTP status of a kind. It is for people debugging; members read the problem.
func statusOf(k fault.Kind) (status int, known bool) {
	switch k {
	case fault.Invalid:
		return http.StatusBadRequest, true
	case fault.Denied:
		return http.StatusForbidden, true
	case fault.NotFound:
		return http.StatusNotFound, true
	case fault.Conflict:
		return http.StatusConflict, true
	case fault.Precondition:
		return http.StatusPreconditionFailed, true
	case fault.Exhausted:
		return http.StatusTooManyRequests, true
	case fault.Timeout:
		return http.StatusGatewayTimeout, true
	case fault.Unimplemented:
		return http.StatusNotImplemented, true
	case fault.Unavailable:
		return http.StatusServiceUnavailable, true
	case fault.Internal:
		return http.StatusInternalServerError, true
	}
	return http.StatusInternalServerError, false
}

func marshal(v any) ([]byte, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, fault.Wrap(err, fault.Internal, machine.CodeJSON, "a message could not be written as JSON")
	}
	return raw, nil
}

func clipText(s string, n int) string {
	if len(s) > n {
		return s[:n] + "..."
	}
	return s
}
