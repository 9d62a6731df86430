// Package fault is souk's one error type: a Kind for machines, a Code for programs that must tell two errors of
// one kind apart, and one sentence for people that says what was wanted, what there was, and what to do.
//
// An error is made where it is first understood, returned once, and logged once, at the edge of a shell.
package fault

import (
	"errors"
	"fmt"
	"time"
)

// Kind is the coarse class of an error: what a caller can do about it.
type Kind string

// The kinds. A caller that knows only these can still act rightly.
const (
	Invalid       Kind = "invalid"       // the request can never succeed as it stands: mend it
	Denied        Kind = "denied"        // who asks may not
	NotFound      Kind = "notfound"      // the thing named does not exist (here, for this caller)
	Conflict      Kind = "conflict"      // somebody else holds it, or it has changed meanwhile
	Precondition  Kind = "precondition"  // the thing is in a state that forbids this
	Exhausted     Kind = "exhausted"     // no room: ask elsewhere, ask for less, or wait
	Timeout       Kind = "timeout"       // it did not happen in the time given
	Unimplemented Kind = "unimplemented" // souk does not do this
	Unavailable   Kind = "unavailable"   // a part that is needed does not answer now: try again
	Internal      Kind = "internal"      // a fault of souk's own
)

// Code tells two errors of one kind apart, for programs: stable, snake_case, narrower than the Kind. Each is a constant
// with a sentence, in the package whose errors have it, or here where several packages' have it (codes.go).
type Code string

// Scope says which kind of place is full, for Exhausted.
type Scope string

// The scopes of exhaustion, nearest first.
const (
	ScopeHost   Scope = "host"   // the machine's own worker is full
	ScopeVolume Scope = "volume" // the worker that holds the volume is full
	ScopeRegion Scope = "region" // no worker of the region fits
	ScopeQuota  Scope = "quota"  // the tenant's own limit
)

// Error is the only error type that crosses a package boundary on purpose.
type Error struct {
	Kind       Kind
	Code       Code          // may be empty
	Op         string        // what was being done, for logs: "worker.grant"; may be empty
	Text       string        // one sentence for people
	Scope      Scope         // for Exhausted
	Resource   string        // for Exhausted: cpu, memory, disk, ports, gpu or a named extra
	RetryAfter time.Duration // 0: no statement
	Detail     any           // what goes with it for programs, to be read by Detail; see there
	Err        error         // the cause, may be nil
}

// Error gives the sentence, with the cause behind it when there is one.
func (e *Error) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("%s: %v", e.Text, e.Err)
	}
	return e.Text
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// New makes an error of a kind with a sentence.
func New(k Kind, code Code, format string, args ...any) *Error {
	return &Error{Kind: k, Code: code, Text: fmt.Sprintf(format, args...)}
}

// Wrap makes an error of a kind around a cause.
func Wrap(err error, k Kind, code Code, format string, args ...any) *Error {
	return &Error{Kind: k, Code: code, Text: fmt.Sprintf(format, args...), Err: err}
}

// KindOf gives the kind of err: Internal for an error that is not ours, "" for nil.
func KindOf(err error) Kind {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	return Internal
}

// CodeOf gives the code of err, or "".
func CodeOf(err error) Code {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return ""
}

// Detail gives what goes with err, where that is a T: a refusal's verdict, say. Like KindOf and CodeOf it asks the
// outermost *Error of err alone, since whoever wraps an error decides anew what goes with it.
//
// Inside a process a detail is the value that was set. Between members one of those types crosses that package wire
// names, and any other is left out; a client of the API has the body of the answer, a client.ErrorAnswer, in its place.
func Detail[T any](err error) (T, bool) {
	e, _ := errors.AsType[*Error](err)
	if e == nil {
		return *new(T), false
	}
	d, is := e.Detail.(T)
	return d, is
}

// Is says whether err is of kind k.
func Is(err error, k Kind) bool { return err != nil && KindOf(err) == k }

// As gives err as an *Error: itself when it is one, else an Internal error around it. nil stays nil.
func As(err error) *Error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return &Error{Kind: Internal, Text: "an unexpected error inside souk", Err: err}
}

// Clip returns the first n bytes of what others sent, for a sentence that names it.
func Clip(s string, n int) string { return s[:min(n, len(s))] }
