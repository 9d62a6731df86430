package cli

import (
	"errors"
	"syscall"
	"testing"

	"github.com/soukhq/souk/fault"
)

func TestExitCodeFollowsTheErrorKind(t *testing.T) {
	tests := []struct {
		err  error
		want int
	}{
		{nil, 0},
		{errors.New("x"), 1},
		{fault.New(fault.Internal, "", "x"), 1},
		{Usagef("x"), 2},
		{fault.New(fault.Conflict, "", "x"), 65},
		{fault.New(fault.Precondition, "", "x"), 65},
		{fault.New(fault.NotFound, "", "x"), 66},
		{fault.New(fault.Unavailable, "", "x"), 69},
		{fault.New(fault.Exhausted, "no_capacity", "x"), 75},
		{fault.New(fault.Exhausted, "never_fits", "x"), 78},
		{fault.New(fault.Exhausted, "volume_never_fits", "x"), 78},
		{fault.New(fault.Exhausted, "never_fits", "x"), 78},
		{fault.New(fault.Denied, "", "x"), 77},
		{fault.New(fault.Invalid, "", "x"), 78},
		{fault.New(fault.Unimplemented, "", "x"), 78},
		{fault.New(fault.Timeout, "", "x"), 124},
		{Interrupted{syscall.SIGINT}, 130},
		{NotRun{fault.New(fault.Precondition, "program", "x")}, 127},
		{NotRun{fault.New(fault.Precondition, "not_executable", "x")}, 126},
		{NotRun{fault.New(fault.Precondition, "paused", "x")}, 65},
		{fault.New(fault.Precondition, "program", "x"), 65},
		{TaskCode(3), 3},
		{TaskCode(256), 0},
		{Several{Errs: []error{fault.New(fault.NotFound, "", "x"), fault.New(fault.Conflict, "", "x")}}, 66},
	}
	for _, tt := range tests {
		if got := ExitCode(tt.err); got != tt.want {
			t.Errorf("exit code of %v is %d, want %d", tt.err, got, tt.want)
		}
	}
}
