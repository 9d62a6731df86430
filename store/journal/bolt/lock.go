package bolt

import (
	"errors"
	"os"
	"syscall"
	"time"

	"github.com/soukhq/souk/fault"
)

// lockFile locks the file for this process. The lock ends with the process, in any case.
func lockFile(f *os.File, path string, patience time.Duration) error {
	const pause = 20 * time.Millisecond // the kernel offers no wait with a deadline
	for end := time.Now().Add(patience); ; time.Sleep(pause) {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR):
			return openError(err, path)
		case time.Now().After(end):
			return fault.New(fault.Conflict, codeJournalLocked,
				"another souk uses this directory: it has the journal %s open; stop that one, or give this one a "+
					"directory of its own", path)
		}
	}
}
