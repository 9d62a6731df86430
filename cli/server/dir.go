package server

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/member"
	"github.com/soukhq/souk/node"
	"github.com/soukhq/souk/store/disk"
)

// lockMember locks a member's directory for this process.
func lockMember(dir string) (*os.File, error) {
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil, fault.New(fault.Precondition, codeNotAMember,
			"%s is no member's directory yet: run \"souk init\" for the first member of a cluster, or \"souk join\" "+
				"for another",
			dir)
	}
	return lockDir(dir)
}

// claimDir locks the directory for this process by lock, after checking that it has room and all its files.
func claimDir(dir string, lock func(dir string) (*os.File, error)) (*os.File, error) {
	if err := ownDir(dir); err != nil {
		return nil, err
	}
	if err := disk.GiveUp(dir); err != nil {
		return nil, err
	}
	f, err := lock(dir)
	if err != nil {
		return nil, err
	}
	if err := node.CheckPieces(dir); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// ownDir refuses a directory that others may write to: they could put a token there, or replace a file by a link. A
// missing directory is fine: the caller makes it.
func ownDir(dir string) error {
	st, err := os.Stat(dir)
	if err != nil {
		return nil //nolint:nilerr // what is to be done with it says more
	}
	if owner := st.Sys().(*syscall.Stat_t).Uid; int(owner) != os.Geteuid() {
		return fault.New(fault.Denied, codeDirOwner,
			"the directory %s is user %d's, who could give this souk a token: use one of your own", dir, owner)
	}
	if st.Mode().Perm()&0o022 != 0 {
		return fault.New(fault.Denied, codeDirMode,
			"others may write to the directory %s, and could give this souk a token: chmod go-w %s, once nothing "+
				"of theirs is in it", dir, dir)
	}
	return nil
}

// ownFile refuses a file that is a link, belongs to another user, or can be read by others.
func ownFile(file string) error {
	st, err := os.Lstat(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	switch {
	case err != nil:
		return fault.Wrap(err, fault.Invalid, fault.CodeToken, "%s cannot be read", file)
	case !st.Mode().IsRegular() || int(st.Sys().(*syscall.Stat_t).Uid) != os.Geteuid():
		return fault.New(fault.Denied, codeTokenFile, "the token file %s is a link, or another user's: remove it, "+
			"and souk makes a new one", file)
	case st.Mode().Perm()&0o077 != 0:
		return fault.New(fault.Denied, codeTokenFile,
			"others can read the token file %s: remove it, and souk makes a new one, or chmod 600 it if nobody has "+
				"read it", file)
	}
	return nil
}

// lockDir locks the directory for this process. The lock ends with the process in any case.
func lockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fault.Wrap(err, fault.Invalid, fault.CodeDir, "the directory %s cannot be written to", dir)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		holder, _ := cli.ReadLine(f.Name()) // only for the error text
		f.Close()
		return nil, fault.New(fault.Conflict, codeDirInUse,
			"a souk (process %s) already runs in %s; end it first, or give this one another --dir and --addr",
			holder, dir)
	}
	err = f.Truncate(0)
	if err == nil {
		_, err = fmt.Fprintln(f, os.Getpid())
	}
	if err != nil {
		f.Close()
		return nil, fault.Wrap(err, fault.Unavailable, fault.CodeDir, "the lock of %s cannot be written", dir)
	}
	return f, nil
}

// tokenOf returns the directory's token, and makes one if there is none.
func tokenOf(dir string) (string, error) {
	file := filepath.Join(dir, "token")
	if err := ownFile(file); err != nil {
		return "", err
	}
	token, err := cli.ReadLine(file)
	switch {
	case err == nil && len(token) >= 16:
		return token, nil
	case err == nil:
		return "", fault.New(fault.Invalid, fault.CodeToken, "%s holds no token; remove it and a new one is made", file)
	case !errors.Is(err, fs.ErrNotExist):
		return "", fault.Wrap(err, fault.Invalid, fault.CodeToken, "%s cannot be read", file)
	}
	token = member.NewSecret()
	return token, keepToken(dir, token)
}

// keepToken writes the directory's token, for local readers.
func keepToken(dir, token string) error {
	return cli.WriteWhole(filepath.Join(dir, "token"), token+"\n", 0o600)
}
