package cli

import (
	"errors"
	"fmt"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime"
)

// The exit codes. docs/reference/exit-codes.md says the same, and a test holds it to this list.
const (
	ExitOK          = 0
	ExitError       = 1   // anything that has no code of its own
	ExitUsage       = 2   // the command line is wrong
	exitConflict    = 65  // it is in a state that forbids this, or somebody else holds it
	exitNotFound    = 66  // the thing named does not exist
	exitUnavailable = 69  // no souk answers, or a part of it does not
	exitFull        = 75  // no room now: try later, or ask for less
	exitDenied      = 77  // the token is missing or wrong
	exitInvalid     = 78  // the spec is wrong, or can never fit: mend it
	exitTimeout     = 124 // it did not happen in the time given
	exitNotExecuted = 126 // of exec, as a shell has it: the command cannot be executed
	exitNoCommand   = 127 // of exec, as a shell has it: there is no such command
	exitInterrupted = 130 // ^C
)

// exitDoc is one line of the table of exit codes.
type exitDoc struct {
	Code int
	Name string
	Text string
}

// ExitDocs returns the table of exit codes, as it is documented.
func ExitDocs() []exitDoc {
	return []exitDoc{
		{ExitOK, "ok", "It was done."},
		{ExitError, "error", "It failed, and no other code below fits."},
		{ExitUsage, "usage", "The command line is wrong: an unknown command or flag, a missing or malformed argument."},
		{
			exitConflict,
			"conflict",
			"The machine is in a state that forbids this, its lease is held, its name is taken, or it changed " +
				"meanwhile.",
		},
		{exitNotFound, "not found", "No machine, app, volume or file of that name."},
		{exitUnavailable, "unavailable",
			"No souk answers at the address, or a part that is needed does not answer now."},
		{exitFull, "no capacity now", "Every worker said no for now. The same request may succeed later, or for less."},
		{exitDenied, "denied", "The token is missing or wrong."},
		{
			exitInvalid,
			"invalid",
			"The request can never succeed as it stands: a malformed spec, or one that no worker could ever hold.",
		},
		{exitTimeout, "timeout", "It did not happen in the time given."},
		{exitNotExecuted, "not executable",
			"souk exec: the command or --workdir is there, and cannot be executed or entered."},
		{exitNoCommand, "no such command", "souk exec: the machine has no command of that name, or no --workdir."},
		{exitInterrupted, "interrupted", "Interrupted by ^C or SIGTERM (but souk dev, which ends with 0)."},
	}
}

// TaskCode is the exit code of a task, which wait, exec and run --attach pass on as their own.
type TaskCode int

func (t TaskCode) Error() string { return fmt.Sprintf("the task ended with %d", int(t)) }

// NotRun is the error of an exec whose command was not executed. Its exit code is a shell's.
type NotRun struct{ Err error }

func (n NotRun) Error() string { return n.Err.Error() }

// Unwrap returns the fault.
func (n NotRun) Unwrap() error { return n.Err }

// code is the exit code; 0: it failed for another reason.
func (n NotRun) code() int {
	switch fault.CodeOf(n.Err) {
	case runtime.CodeNoProgram, runtime.CodeNoDirectory:
		return exitNoCommand
	case runtime.CodeNotExecutable:
		return exitNotExecuted
	}
	return 0
}

// usageError is a command line that cannot be understood.
type usageError struct{ text string }

func (u usageError) Error() string { return u.text }

// Usagef makes the error of a command line that cannot be understood.
func Usagef(format string, args ...any) error { return usageError{fmt.Sprintf(format, args...)} }

// Several holds the errors of a command on many machines; each was printed already.
type Several struct{ Errs []error }

func (s Several) Error() string { return fmt.Sprintf("%d of them failed", len(s.Errs)) }

// ExitCode returns the program's exit code for an error.
func ExitCode(err error) int {
	if err == nil {
		return ExitOK
	}
	if t, ok := errors.AsType[TaskCode](err); ok {
		return int(t) & 0xff
	}
	if n, ok := errors.AsType[NotRun](err); ok && n.code() != 0 {
		return n.code()
	}
	if _, ok := errors.AsType[usageError](err); ok {
		return ExitUsage
	}
	if _, ok := errors.AsType[Interrupted](err); ok {
		return exitInterrupted
	}
	if s, ok := errors.AsType[Several](err); ok {
		worst := ExitOK
		for _, e := range s.Errs {
			worst = max(worst, ExitCode(e))
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
		if f.Code == fault.CodeNeverFits || f.Code == api.CodeVolumeNeverFits {
			return exitInvalid
		}
		return exitFull
	case fault.Timeout:
		return exitTimeout
	case fault.Unavailable:
		return exitUnavailable
	}
	return ExitError
}
