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

// home is a reaper's directory and its cgroups. A renamed directory stays the same home (by node), and its processes
// stay in cgroups named after its earlier path. A copied directory is another home, and the processes recorded in the
// copy are not its own.
type home struct {
	dir  string
	node string // the directory's device and inode; "" if unknown
	tree string // the name of its tree of cgroups
}

// findHome reads what the previous reaper recorded.
func findHome(dir string) home {
	h := home{dir: dir, node: nodeOf(dir), tree: TreeName(dir)}
	f, err := os.Open(filepath.Join(dir, LivesFile))
	if err != nil {
		return h // no reaper was here before
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

// wasReplaced reports whether the directory was removed and made again: then another reaper may use the cgroups of this
// name.
func (h home) wasReplaced() bool {
	now := nodeOf(h.dir)
	return now != "" && now != h.node
}

// isSameBoot reports whether a lives file was written in this directory since the host booted.
func (h home) isSameBoot(was line) bool {
	return was.Kind == lineBoot && was.ID == proc.BootID() && !h.isCopy(was)
}

func (h home) isCopy(was line) bool { return was.Node != "" && h.node != "" && was.Node != h.node }

// refuseCopy refuses a copy of a directory whose machines still run: they would run twice.
func (h home) refuseCopy(was line, all map[string]*known) error {
	if !h.isCopy(was) || was.ID != proc.BootID() {
		return nil
	}
	for id, k := range all {
		if k.life != nil && proc.Running(k.life.PID, k.life.Ticks) {
			if was.Dir == h.dir {
				return fault.New(fault.Precondition, codeCopied,
					"the directory %s was put back from a copy while its machine %s still runs, which would run "+
						"twice; end the running one (kill %d) or reboot the host before you use the copy",
					h.dir, id, k.life.PID)
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

// topdir is FS_TOPDIR_FL of linux/fs.h, chattr's T: it marks the subdirectories as unrelated to each other.
const topdir = 0x00020000

// makeApart makes a directory for the reaper's many short-lived subdirectories, unless it exists. If the file system
// supports the hint (ext4 does), the directory is placed in a separate block group: for each new directory ext4
// searches the parent's group, past all inodes deleted there in the last minutes (without a journal; 0.3 ms after
// 10,000 deletions). It is made under a random name, because the group is chosen by the name.
func makeApart(dir string) error {
	parent, prefix := filepath.Dir(dir), filepath.Base(dir)+".new-"
	es, err := os.ReadDir(parent)
	if err != nil {
		return err
	}
	for _, e := range es { // left by a reaper that was killed below; always empty
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
	made, err := os.MkdirTemp(parent, prefix) // MkdirTemp uses mode 0700
	if err != nil {
		return err
	}
	return os.Rename(made, dir)
}

// hintUnrelated marks the directories below dir as unrelated. It ignores errors: it is only a hint.
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

// The lock of a directory is a record lock (fcntl): it belongs to the process and ends with it. A flock(2) lock is
// shared by the descriptor with every child between fork and exec, and a child that hangs there (its cgroup is frozen)
// would keep the directory locked for the next reaper.

// lockDir makes sure that a directory has only one reaper. The lock ends with the process. After an upgrade the file is
// the one that was handed over.
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

// Alive reports whether a directory has a living reaper. Its socket does not prove that: a child that hangs between
// fork and exec may hold the listening descriptor.
func Alive(dir string) bool {
	f, err := os.Open(filepath.Join(dir, LockFile))
	if err != nil {
		return !errors.Is(err, os.ErrNotExist)
	}
	defer f.Close()
	lock := unix.Flock_t{Type: unix.F_RDLCK}
	return unix.FcntlFlock(f.Fd(), unix.F_GETLK, &lock) != nil || lock.Type != unix.F_UNLCK
}
