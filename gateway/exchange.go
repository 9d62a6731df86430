package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/broker"
	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/core/market"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// Bounds of request bodies.
const (
	MaxBody     = 1 << 20 // bytes of a JSON body
	bodyTimeout = 30 * time.Second
)

// readBody reads a body whole, within MaxBody and bodyTimeout.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	// Not every connection has deadlines (a test's recorder has none): then the server's own limits are all there is.
	control := http.NewResponseController(w)
	if err := control.SetReadDeadline(time.Now().Add(bodyTimeout)); err == nil {
		defer func() { _ = control.SetReadDeadline(time.Time{}) }()
	}
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBody))
	if err == nil {
		return raw, nil
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, fault.New(fault.Invalid, fault.CodeTooLarge,
			"the body is larger than %d bytes, the most that is read; send less", MaxBody)
	}
	return nil, fault.Wrap(err, fault.Invalid, machine.CodeBody, "the body could not be read to its end; send it again")
}

// readJSON reads a body into v, strictly. An empty body leaves v as it is when optional, else it is refused.
func readJSON(w http.ResponseWriter, r *http.Request, v any, optional bool) error {
	raw, err := readBody(w, r)
	if err != nil {
		return err
	}
	if len(strings.TrimSpace(string(raw))) == 0 {
		if optional {
			return nil
		}
		return fault.New(fault.Invalid, machine.CodeBody, "the body is empty; a JSON object is wanted")
	}
	return decodeStrict(raw, v)
}

// decodeStrict reads JSON, refusing unknown fields and trailing data; its error is one sentence.
func decodeStrict(raw []byte, v any) error {
	d := json.NewDecoder(strings.NewReader(string(raw)))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return jsonFault(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return fault.New(fault.Invalid, machine.CodeJSON, "there is more behind the JSON object; send one object only")
	}
	return nil
}

func jsonFault(err error) error {
	if f, ok := errors.AsType[*fault.Error](err); ok {
		return f // the error of a type's own UnmarshalJSON
	}
	if e, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fault.New(fault.Invalid, machine.CodeJSON, "the body is not JSON: %v at byte %d", e, e.Offset)
	}
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		field := e.Field
		if field == "" {
			field = "the body"
		}
		return fault.New(fault.Invalid, codeJSONType,
			"%s is a JSON %s where %s is wanted", field, e.Value, kindName(e.Type.Kind().String()))
	}
	if name, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		return fault.New(fault.Invalid, codeJSONField, "there is no field %s; take it out or mend its name", name)
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return fault.New(fault.Invalid, machine.CodeJSON, "the JSON breaks off before its end; send it whole")
	}
	return fault.Wrap(err, fault.Invalid, machine.CodeJSON, "the body cannot be read as JSON")
}

func kindName(kind string) string {
	switch {
	case kind == "struct" || kind == "map":
		return "an object"
	case kind == "slice":
		return "a list"
	case kind == "string":
		return "a text"
	case kind == "bool":
		return "true or false"
	case strings.HasPrefix(kind, "int"):
		return "a whole number"
	case strings.HasPrefix(kind, "uint"):
		return "a whole number from 0"
	case strings.HasPrefix(kind, "float"):
		return "a number"
	}
	return "another type"
}

// queryBool reads a true-or-false parameter; absent is false, and so is a bare "?x".
func queryBool(r *http.Request, name string) (bool, error) {
	s := r.URL.Query().Get(name)
	if s == "" {
		return false, nil
	}
	b, err := strconv.ParseBool(s)
	if err != nil {
		return false, fault.New(fault.Invalid, codeQuery, "%s=%q is neither true nor false", name, clipText(s, 40))
	}
	return b, nil
}

// queryInt reads a whole number within [low, high]; absent gives def.
func queryInt(r *http.Request, name string, def, low, high int) (int, error) {
	s := r.URL.Query().Get(name)
	if s == "" {
		return def, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < low || n > high {
		return 0, fault.New(fault.Invalid, codeQuery,
			"%s=%q is not a whole number from %d to %d", name, clipText(s, 40), low,
			high)
	}
	return n, nil
}

// queryTail reads the number of last lines; absent gives nil: all lines.
func queryTail(r *http.Request) (*int, error) {
	if r.URL.Query().Get("tail") == "" {
		return nil, nil
	}
	n, err := queryInt(r, "tail", 0, 0, 1_000_000)
	return &n, err
}

// queryDuration reads "10s", or a bare number of seconds, up to max; absent gives 0.
func queryDuration(r *http.Request, name string, max time.Duration) (time.Duration, error) {
	s := r.URL.Query().Get(name)
	if s == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(s)
	if n, numeric := strconv.Atoi(s); numeric == nil && n <= int(max/time.Second) {
		d, err = time.Duration(n)*time.Second, nil
	}
	if err != nil || d < 0 || d > max {
		return 0, fault.New(fault.Invalid, codeQuery,
			"%s=%q is not a duration from 0 to %v; write it as \"10s\"", name, clipText(s, 40), max)
	}
	return d, nil
}

// statusOf gives the HTTP code of an error and the Machines API's status word.
//
// No error is 502 or 503: clients retry those with every method, and only the caller can know whether repeating a
// request with a lost answer is safe.
func statusOf(e *fault.Error) (int, string) {
	switch e.Code { // the cases in which the Machines API is narrower than a kind
	case fault.CodeUnauthenticated, api.CodeTokenEnded, api.CodeTokenRevoked, api.CodeTokenRemoved:
		return http.StatusUnauthorized, ""
	case fault.CodeAppNameInUse:
		return http.StatusUnprocessableEntity, "name_taken"
	case fault.CodeIdempotencyKey, fault.CodeImageUnknown: // 404 would mean that the app or machine does not exist
		return http.StatusUnprocessableEntity, ""
	case machine.CodeLaunchFailed:
		if e.Kind == fault.NotFound {
			return http.StatusUnprocessableEntity, ""
		}
	case fault.CodeTooLarge:
		return http.StatusRequestEntityTooLarge, ""
	case fault.CodeMethod:
		return http.StatusMethodNotAllowed, ""
	case fault.CodeBusy, fault.CodeTooManyKeys:
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
		return http.StatusConflict, "" // clients show an unknown status word instead of the text
	case fault.ScopeVolume:
		return http.StatusPreconditionFailed, "volume_placement_capacity"
	case fault.ScopeQuota:
		// the Machines API uses 403 for a tenant over its quota, and 429 only for rate limits
		return http.StatusForbidden, ""
	}
	if e.Code == api.CodeNoVolumeCapacity || e.Code == api.CodeVolumeNeverFits {
		return http.StatusConflict, ""
	}
	return http.StatusUnprocessableEntity, "insufficient_capacity"
}

// bodyOf gives the body of an error. An internal error names the request id instead of its cause: the cause may be
// confidential, and is in the log.
func bodyOf(e *fault.Error, status, request string) api.ErrorBody {
	b := api.ErrorBody{Error: e.Error(), Status: status, Souk: api.Reason{
		Kind: e.Kind, Code: e.Code, Scope: e.Scope, Resource: e.Resource, RetryAfter: e.RetryAfter.Seconds(),
		Request: request,
	}}
	if e.Kind == fault.Internal || e.Kind == fault.Unavailable && e.Err != nil {
		b.Error = e.Text + "; the cause is in souk's log under " + request
	}
	b.Souk.Candidates, _ = fault.Detail[[]machine.Candidate](e)
	b.Souk.Clauses, _ = fault.Detail[[]machine.Clause](e)
	b.Souk.Machine, _ = fault.Detail[string](e)
	if d, is := fault.Detail[market.Refusal](e); is {
		b.Souk.Clauses = d.Verdict.Failing
	}
	if d, is := fault.Detail[broker.Unplaced](e); is {
		b.Souk.Pending, b.Souk.Decision, b.Souk.Candidates, b.Souk.Clauses = d.Pending, d.Decision, d.Candidates,
			d.Clauses
	}
	return b
}

// answerError answers an error. Errors are answered and logged only here.
func (f *front) answerError(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil && errors.Is(err, context.Canceled) {
		return // the client is gone
	}
	e := asFault(err)
	code, status := statusOf(e)
	if code >= http.StatusInternalServerError && code != http.StatusNotImplemented {
		f.log.ErrorContext(r.Context(), "request failed", "request", requestID(r), "kind", e.Kind, "code", e.Code, "op",
			e.Op, "error", e)
	}
	if code == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="souk"`)
	}
	if e.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(e.RetryAfter.Seconds()))))
	}
	body := bodyOf(e, status, requestID(r))
	if !strings.HasPrefix(r.URL.Path, "/v1/souk/") { // a path of the Machines API
		body.Error = api.StatusWord(e) + body.Error
	}
	answerJSON(w, code, body)
}

// asFault is fault.As that also converts a context's error.
func asFault(err error) *fault.Error {
	if _, ours := errors.AsType[*fault.Error](err); !ours && errors.Is(err, context.DeadlineExceeded) {
		return fault.Wrap(err, fault.Timeout, fault.CodeDeadline,
			"the request took too long; look at the state, then ask again")
	}
	return fault.As(err)
}

// answerJSON writes a JSON body. A write error means that the client is gone, and is ignored.
func answerJSON(w http.ResponseWriter, code int, body any) {
	var b bytes.Buffer
	if err := json.NewEncoder(&b).Encode(body); err != nil {
		code = http.StatusInternalServerError
		b.Reset()
		b.WriteString(`{"error":"the answer could not be written as JSON; report this","souk":{"kind":"internal"}}` +
			"\n")
	}
	answerText(w, code, b.Bytes())
}

// answerText writes a body that is encoded already.
func answerText(w http.ResponseWriter, code int, body []byte) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(code)
	_, _ = w.Write(body)
}

func answerOK(w http.ResponseWriter) error {
	answerJSON(w, http.StatusOK, api.OK{OK: true})
	return nil
}

// answerDone answers a verb: it is done, or it has begun and Begun says what to wait for.
func answerDone(w http.ResponseWriter, out lifecycle.Outcome) error {
	answerJSON(w, http.StatusOK, api.OK{OK: true, Begun: out.Begun})
	return nil
}
