package space

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/internal/sysmon"
)

// Confine prevents the calling thread, and everything it forks, from gaining privileges by executing programs: setuid
// bits and file capabilities have no effect. With bounded, the processes it forks have no capabilities once they run as
// another user; the thread keeps its own. It cannot be undone, so the thread must be locked, and must end afterwards.
// It also resets the timer slack to the kernel's default for what the thread forks.
func Confine(bounded bool) error {
	if err := sysmon.Exact(); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("rule out new privileges: %w", err)
	}
	if !bounded {
		return nil
	}
	for c := uintptr(0); c <= 63; c++ { // EINVAL: beyond the last capability
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err == unix.EINVAL {
			break
		} else if err != nil {
			return fmt.Errorf("drop capabilities: %w", err)
		}
	}
	return nil
}
