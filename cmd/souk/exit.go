package main

import (
	"errors"
	"fmt"

	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/decision"
	"github.com/soukhq/souk/fault"
)

// The exit codes. docs/reference/exit-codes.md says the same, and a test holds it to this list.
const (
	exitOK          = 0
	exitError       = 1   // anything that has no code of its own
	exitUsage       = 2   // the command line is wrong
	exitConflict    = 65  // it is in a state that forbids this, or somebody else holds it
	exitNotFound    = 66  // the thing named does not exist
	exitUnavailable = 69  // no souk answers, or a part of it does not
	exitFull        = 75  // no room now: try later, or ask for less
	exitDenied      = 77  // the token is missing or wrong
	exitInvalid     = 78  // the spec is wrong, or can never fit: mend it
	exitTimeout     = 124 // it did not happen in the time given
	exitInterrupted = 130 // ^C
)

// exitDoc is one line of the table of exit codes.
type exitDoc struct {
	code int
	name string
	text string
}

func exitDocs() []exitDoc {
	return []exitDoc{
		{exitOK, "ok", "It was done."},
		{exitError, "error", "It failed, and no other code below fits."},
		{exitUsage, "usage", "The command line is wrong: an unknown command or flag, a missing or malformed argument."},
		{exitConflict, "conflict", "The machine is in a state that forbids this, its lease is held, its name is taken, or it changed meanwhile."},
		{exitNotFound, "not found", "No machine, app, volume or file of that name."},
		{exitUnavailable, "unavailable", "No souk answers at the address, or a part that is needed does not answer now."},
		{exitFull, "no capacity now", "Every worker said no for now. The same request may succeed later, or for less."},
		{exitDenied, "denied", "The token is missing or wrong."},
		{exitInvalid, "invalid", "The request can never succeed as it stands: a malformed spec, or one that no worker could ever hold."},
		{exitTimeout, "timeout", "It did not happen in the time given."},
		{exitInterrupted, "interrupted", "Interrupted by ^C or SIGTERM (but souk dev, which ends with 0)."},
	}
}

// taskCode is the exit code of a task, which wait, exec and run --attach pass on as their own.
type taskCode int

func (t taskCode) Error() string { return fmt.Sprintf("the task ended with %d", int(t)) }

// usageError is a command line that cannot be understood.
type usageError struct{ text string }

func (u usageError) Error() string { return u.text }

func usagef(format string, args ...any) error { return usageError{fmt.Sprintf(format, args...)} }

// several is the errors of a command that was given many machines; each has been printed already.
type several struct{ errs []error }

func (s several) Error() string { return fmt.Sprintf("%d of them failed", len(s.errs)) }

// exitCode gives the program's exit code for an error.
func exitCode(err error) int {
	if err == nil {
		return exitOK
	}
	if t, ok := errors.AsType[taskCode](err); ok {
		return int(t) & 0xff
	}
	if _, ok := errors.AsType[usageError](err); ok {
		return exitUsage
	}
	if _, ok := errors.AsType[interrupted](err); ok {
		return exitInterrupted
	}
	if s, ok := errors.AsType[several](err); ok {
		worst := exitOK
		for _, e := range s.errs {
			worst = max(worst, exitCode(e))
		}
		return worst
	}
	return exitOfFault(fault.As(err))
}

func exitOfFault(f *fault.Error) int {
	switch f.Kind {
	case fault.Invalid, fault.Unimplemented:
		return exitInvalid
	case fault.Denied:
		return exitDenied
	case fault.NotFound:
		return exitNotFound
	case fault.Conflict, fault.Precondition:
		return exitConflict
	case fault.Exhausted:
		if f.Code == "never_fits" {
			return exitInvalid
		}
		return exitFull
	case fault.Timeout:
		return exitTimeout
	case fault.Unavailable:
		return exitUnavailable
	}
	return exitError
}

// printError says once what went wrong.
func (c *cli) printError(err error) {
	if c.json {
		f := fault.As(err)
		line := errorLine{Error: err.Error(), Kind: f.Kind, Code: f.Code, Exit: exitCode(err)}
		if a, ok := f.Detail.(client.ErrorAnswer); ok {
			d := a.Detail()
			line.Pending, line.Decision = d.Pending, d.Decision
		}
		if _, ok := errors.AsType[usageError](err); ok {
			line.Kind, line.Code = fault.Invalid, "usage"
		}
		c.jsonLine(c.err, line)
		return
	}
	more := ""
	if a, ok := fault.As(err).Detail.(client.ErrorAnswer); ok && a.Detail().Decision != "" {
		more = fmt.Sprintf(" (%s; souk explain %s)", a.Detail().Pending, a.Detail().Decision)
	}
	fmt.Fprintf(c.err, "souk: %v%s\n", err, more)
}

// errorLine is an error in --json, on stderr.
type errorLine struct {
	Error string     `json:"error"`
	Kind  fault.Kind `json:"kind"`
	Code  string     `json:"code,omitempty"`
	Exit  int        `json:"exit"`

	Pending  decision.Pending `json:"pending,omitempty"`  // why nothing was placed, typed
	Decision string           `json:"decision,omitempty"` // its id, for souk explain
}
