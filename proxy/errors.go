package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/core/routing"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/proxy/hop"
)

// refusalOf says why a request is refused, and what to do.
func refusalOf(k key, o *routing.Out) error {
	f := &fault.Error{Kind: fault.Unavailable, RetryAfter: o.After, Err: o.Cause}
	cause := ""
	if o.Cause != nil {
		cause = ": " + fault.As(o.Cause).Text
	}
	switch o.Reason {
	case routing.NoMachine:
		f.Kind, f.Code = fault.NotFound, codeNoMachine
		f.Text = "app " + k.app + " has no machine behind this; souk run --http makes one"
		if o.Wanted {
			f.Kind = fault.Unavailable
			f.Text = "app " + k.app + " has no machine behind this yet; souk why " + k.app + " says why"
		}
	case routing.NotThere:
		f.Kind, f.Code, f.Text = fault.NotFound, codeNoSuchInstance,
			"the machine that was asked for is not one of app "+k.app
	case routing.Sleeping:
		f.Code, f.Text = codeAsleep, "the machines of app "+k.app+" are stopped, and may not be started for requests; "+
			"souk start one of them, or set autostart"
	case routing.Unhealthy:
		f.Code, f.Text = codeUnhealthy, "the machines of app "+k.app+" fail their checks; souk status one of them"+cause
	case routing.HeldDown:
		f.Code, f.Text = codeHeldDown, "the machines of app "+k.app+" are held, as they end again and again"+cause
		if o.After > 0 {
			f.Text += "; that is tried again in " + max(o.After.Round(time.Second), time.Second).String()
		}
	case routing.Unreachable:
		f.Code, f.Text = fault.CodeUnreachable, "no machine of app "+k.app+" can be reached now"+cause
	case routing.WakeFailed:
		f.Code, f.Text = codeWakeFailed, "no machine of app "+k.app+" could be woken"+cause
	case routing.Full:
		f.Kind, f.Code, f.Text = fault.Exhausted, codeHeldRequests, "too many requests wait for app "+k.app+" already"
	}
	return f
}

func heldTooLong(ctx context.Context, app string, held time.Duration) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return errClientGone
	}
	return &fault.Error{Kind: fault.Unavailable, Code: fault.CodeHeld, RetryAfter: time.Second,
		Text: "a request for app " + app + " was held for " + held.Round(time.Millisecond).String() +
			", and no machine became free for it"}
}

// errClientGone is the error of a request whose client went away. No answer is sent.
var errClientGone = fault.New(fault.Unavailable, codeClientGone,
	"the client went away before the answer") //nolint:gochecknoglobals // a constant

// ErrorHeader carries an error's code, and marks an answer as the proxy's and not an app's.
const ErrorHeader = "Souk-Error"

// statusOf returns the HTTP status of an error.
func statusOf(f *fault.Error) int {
	if f.Code == codeMisdirected {
		return http.StatusMisdirectedRequest
	}
	switch f.Kind {
	case fault.NotFound:
		return http.StatusNotFound
	case fault.Invalid:
		if f.Code == codeReplayBody {
			return http.StatusRequestEntityTooLarge
		}
		return http.StatusBadRequest
	case fault.Denied:
		return http.StatusForbidden
	case fault.Timeout:
		return http.StatusGatewayTimeout
	case fault.Internal:
		return http.StatusInternalServerError
	}
	if f.Code == codeBadAnswer || f.Code == fault.CodeNoListener {
		return http.StatusBadGateway
	}
	return http.StatusServiceUnavailable
}

// answerError writes an error: as JSON if the client accepts that, else as one line.
func answerError(w http.ResponseWriter, r *http.Request, id string, err error) (code int) {
	f := fault.As(err)
	code = statusOf(f)
	h := w.Header()
	connection := h["Connection"]
	clear(h)
	if connection != nil {
		h["Connection"] = connection
	}
	h.Set(ErrorHeader, string(f.Code))
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	if id != "" {
		h.Set(requestHeader, id)
	}
	if code == http.StatusServiceUnavailable {
		h.Set("Retry-After", strconv.Itoa(max(1, int((f.RetryAfter+time.Second-1)/time.Second))))
	}
	body := []byte(f.Text + "\n")
	h.Set("Content-Type", "text/plain; charset=utf-8")
	if strings.Contains(r.Header.Get("Accept"), "json") {
		h.Set("Content-Type", "application/json")
		text := map[string]string{"error": f.Text, "code": string(f.Code), "request_id": id}
		body, _ = json.Marshal(text) // strings always encode
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(code)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // the client may be gone
	}
	return code
}

// badAnswer is the error for a machine's answer that cannot be passed on.
func badAnswer(err error, machine string) error {
	if errors.Is(err, hop.ErrLargeHead) {
		return fault.Wrap(err, fault.Unavailable, codeBadAnswer,
			"machine %s answers with a head of more than %d bytes, which is all that is read of one", machine,
			hop.MaxHead)
	}
	return fault.Wrap(err, fault.Unavailable, codeBadAnswer,
		"machine %s ended the connection, or its answer is not HTTP; see souk logs %s", machine, machine)
}

// haltedError is the error of a request that endHalted has ended. A repeatable one goes to another machine.
func haltedError(machine string, repeatable bool) error {
	err := error(fault.New(fault.Timeout, lifecycle.CodeHalted,
		"machine %s took the request and does not answer, because its program is stopped by a signal; souk signal "+
			"%s --signal SIGCONT continues it", machine, machine))
	if repeatable {
		err = &correction{routing.NoAnswer, err}
	}
	return err
}
