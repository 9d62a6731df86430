package space

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/internal/sysmon"
)

// Confine takes from the calling thread, and from what it forks, that programs may give more than they were started
// with: no setuid bit and no file's capabilities count any more. With bounded, none that it forks can have any
// capability once it has a user of its own; the thread keeps its own. It cannot be undone: the thread must be locked,
// and end at last. The timers of what it forks are as exact as the kernel's are, whatever this process has chosen.
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
	for c := uintptr(0); c <= 63; c++ { // the kernel says EINVAL behind the last that it has
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err == unix.EINVAL {
			break
		} else if err != nil {
			return fmt.Errorf("drop capabilities: %w", err)
		}
	}
	return nil
}
