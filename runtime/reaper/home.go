package reaper

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime/reaper/proc"
)

// home is where a reaper lives: its directory, and the cgroups of that. A directory that was renamed is still the same
// (its Node), and what runs is in the cgroups that are named after where it was. One that was copied is another, and
// what the copy says to run is not its own.
type home struct {
	dir  string
	node string // the directory's device and inode; "" when they cannot be seen
	tree string // the name of its cgroups
}

// findHome reads what the reaper before this one wrote down.
func findHome(dir string) home {
	h := home{dir: dir, node: nodeOf(dir), tree: TreeName(dir)}
	f, err := os.Open(filepath.Join(dir, LivesFile))
	if err != nil {
		return h // it is the first
	}
	defer f.Close()
	raw, err := bufio.NewReader(f).ReadBytes('\n')
	if was, ok := decodeLine(raw); err == nil && ok && h.isSameBoot(was) && was.Tree != "" {
		h.tree = was.Tree
	}
	return h
}

func nodeOf(dir string) string {
	st, err := os.Stat(dir)
	if err != nil {
		return ""
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	return fmt.Sprintf("%d:%d", sys.Dev, sys.Ino)
}

// wasReplaced reports whether the directory was removed and made anew: then it has another reaper, whose cgroups have
// the same name.
func (h home) wasReplaced() bool {
	now := nodeOf(h.dir)
	return now != "" && now != h.node
}

// isSameBoot reports whether a file of lives was written in this directory since the host is up.
func (h home) isSameBoot(was line) bool {
	return was.Kind == lineBoot && was.ID == proc.BootID() && !h.isCopy(was)
}

func (h home) isCopy(was line) bool { return was.Node != "" && h.node != "" && was.Node != h.node }

// refuseCopy refuses a copy of a directory whose machines run: they would run twice.
func (h home) refuseCopy(was line, all map[string]*known) error {
	if !h.isCopy(was) || was.ID != proc.BootID() {
		return nil
	}
	for id, k := range all {
		if k.life != nil && proc.Running(k.life.PID, k.life.Ticks) {
			if was.Dir == h.dir {
				return fault.New(fault.Precondition, codeCopied,
					"the directory %s was put back from a copy, and its machine %s still runs and would run twice; "+
						"end what runs (kill %d) or boot the host before the copy is used", h.dir, id, k.life.PID)
			}
			return fault.New(fault.Precondition, codeCopied,
				"the directory %s is a copy of %s, whose machine %s still runs as process %d and would run twice; "+
					"stop the machines there before the copy is used, or go on with the original", h.dir, was.Dir, id,
				k.life.PID)
		}
	}
	return nil
}

func (h home) bootLine() line {
	return line{Kind: lineBoot, ID: proc.BootID(), Tree: h.tree, Dir: h.dir, Node: h.node}
}

// topdir is FS_TOPDIR_FL of linux/fs.h, chattr(1)'s T: the directories below are not related to one another.
const topdir = 0x00020000

// makeApart makes a directory of the reaper's own for things that come and go by the thousand, unless it is there.
// Where the file system takes the hint (ext4 does) it lies in a part of the disk of its own: for each new directory
// ext4 looks through its parent's part, past all inodes that were deleted there within the last minutes, whoever had
// them (where it has no journal; 0.3 ms behind 10,000 others). The name it is made under is drawn, because the part is
// chosen by it.
func makeApart(dir string) error {
	parent, prefix := filepath.Dir(dir), filepath.Base(dir)+".new-"
	es, err := os.ReadDir(parent)
	if err != nil {
		return err
	}
	for _, e := range es { // of a reaper that was killed below; nothing was ever put there
		if strings.HasPrefix(e.Name(), prefix) {
			if err := os.Remove(filepath.Join(parent, e.Name())); err != nil {
				return err
			}
		}
	}
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	hintUnrelated(parent)
	made, err := os.MkdirTemp(parent, prefix) // for this user only
	if err != nil {
		return err
	}
	return os.Rename(made, dir)
}

// hintUnrelated hints that the directories below dir are not related. It is no error where nobody listens.
func hintUnrelated(dir string) {
	f, err := os.Open(dir)
	if err != nil {
		return
	}
	defer f.Close()
	fd := int(f.Fd())
	if flags, err := unix.IoctlGetUint32(fd, unix.FS_IOC_GETFLAGS); err == nil {
		_ = unix.IoctlSetPointerInt(fd, unix.FS_IOC_SETFLAGS, int(flags|topdir))
	}
}

// The lock of a directory is a record lock (fcntl): it is the process's own and ends with it. A lock by flock(2) goes
// with the descriptor to every child between fork and exec, and a child that stops there (its cgroup is frozen) would
// keep the directory from the next reaper.

// lockDir makes sure that there is one reaper a directory. The lock ends with the process. After an upgrade the file
// is the one that was handed over.
func lockDir(dir string, old handover, upgraded bool) (f *os.File, err error) {
	if upgraded {
		f = os.NewFile(uintptr(old.Lock), LockFile)
	} else if f, err = os.OpenFile(filepath.Join(dir, LockFile), os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return nil, fmt.Errorf("open the reaper's lock: %w", err)
	}
	if err := unix.FcntlFlock(f.Fd(), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK}); err != nil {
		return nil, errors.Join(fmt.Errorf("another reaper runs in %s: %w", dir, err), f.Close())
	}
	return f, nil
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
	return unix.FcntlFlock(f.Fd(), unix.F_GETLK, &lock) != nil || lock.Type != unix.F_UNLCK
}
