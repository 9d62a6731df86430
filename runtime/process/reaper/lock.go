package reaper

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// The lock of a directory is a record lock (fcntl): it is the process's own and ends with it. A lock by flock(2) goes
// with the descriptor to every child between fork and exec, and a child that stops there (its cgroup is frozen) would
// keep the directory from the next reaper. Reapers of older souks lock by flock, so that is looked at as well, and is
// held over an upgrade, since the next image may be one of those.

// lockDir makes sure that there is one reaper a directory. The lock ends with the process. After an upgrade the file
// is the one that was handed over.
func lockDir(dir string, old handover, upgraded bool) (f *os.File, err error) {
	if upgraded {
		f = os.NewFile(uintptr(old.Lock), LockFile)
	} else if f, err = os.OpenFile(filepath.Join(dir, LockFile), os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return nil, fmt.Errorf("open the reaper's lock: %w", err)
	}
	err = unix.FcntlFlock(f.Fd(), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK})
	if err == nil {
		err = lockShared(f, true)
	}
	if err == nil {
		err = lockShared(f, false)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("another reaper runs in %s: %w", dir, err), f.Close())
	}
	return f, nil
}

// lockShared takes or gives back the lock that children have too.
func lockShared(f *os.File, on bool) error {
	how := unix.LOCK_UN
	if on {
		how = unix.LOCK_EX | unix.LOCK_NB
	}
	return unix.Flock(int(f.Fd()), how)
}

// Alive reports whether a directory has a reaper. Its socket does not tell: a child that stopped between fork and exec
// may have the descriptor it listens on.
func Alive(dir string) bool {
	f, err := os.Open(filepath.Join(dir, LockFile))
	if err != nil {
		return !errors.Is(err, os.ErrNotExist)
	}
	defer f.Close()
	lock := unix.Flock_t{Type: unix.F_RDLCK}
	if err := unix.FcntlFlock(f.Fd(), unix.F_GETLK, &lock); err != nil || lock.Type != unix.F_UNLCK {
		return true
	}
	return unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB) != nil // of an older souk
}
