package process_test

import (
	"os"
	"syscall"
	"testing"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime/process"
)

// TestNoRoomForAReaper: a worker that may have no more processes now has nothing to be put right on it, so who asks is
// to ask again.
func TestNoRoomForAReaper(t *testing.T) {
	for errno, want := range map[syscall.Errno]fault.Kind{
		syscall.EAGAIN: fault.Unavailable,
		syscall.ENOMEM: fault.Unavailable,
		syscall.EMFILE: fault.Unavailable,
		syscall.ENFILE: fault.Unavailable,
		syscall.ENOENT: fault.Precondition,
		syscall.EACCES: fault.Precondition,
	} {
		err := process.StartFault(&os.PathError{Op: "fork/exec", Path: "/souk", Err: errno}, "/souk")
		if !fault.Is(err, want) {
			t.Errorf("%v: %v; want it to be %v", errno, err, want)
		}
	}
}
