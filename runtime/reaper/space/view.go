// Package space gives machines their view of the host's files: where their own directory is, and which volumes and
// files appear at which paths.
//
// # The view of a worker
//
// The machines' directories are inside souk's private state, which other users cannot enter. So the reaper makes one
// mount namespace, in which they appear at Machines, and executes its machines there: they see the host's files as they
// are, including later mounts, and their own directory below a path that they can enter. It adds no cost to a start,
// and the kernel removes it with the last process in it.
//
// # The space of one machine
//
// A machine with volumes or files has its own namespace, made from the view by the thread that will fork it. If a path
// exists on the host, the volume or file is mounted over it. If not, the directory that lacks it is replaced by a
// tmpfs, with all of its entries mounted again and the new mount point added. Nothing is written to the host's disk.
package space

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/internal/osthread"
)

// Paths in the view. On the host these are empty directories.
const (
	Dir      = "/run/souk"
	Machines = Dir + "/machines" // contains the machines' directories
	stage    = Dir + "/stage"    // where a machine's namespace is assembled
)

// View is the mount namespace of a worker's machines.
type View struct {
	file *os.File // the namespace
}

// Open makes the view for the directory of machines, which gets mode 0711: it may be entered, not listed.
func Open(machines string) (*View, error) {
	for _, d := range []string{Dir, Machines, stage} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return nil, fmt.Errorf("make %s: %w", d, err)
		}
	}
	if err := os.Chmod(machines, 0o711); err != nil {
		return nil, fmt.Errorf("let machines pass: %w", err)
	}
	type result struct {
		view *View
		err  error
	}
	done := make(chan result)
	osthread.Go(func() { // a thread of its own, which ends, because it is in the view
		v, err := open(machines)
		done <- result{v, err}
	})
	got := <-done
	return got.view, got.err
}

func open(machines string) (*View, error) {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return nil, fmt.Errorf("make a mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return nil, fmt.Errorf("have a mount namespace follow the host: %w", err)
	}
	if err := unix.Mount(machines, Machines, "", unix.MS_BIND, ""); err != nil {
		return nil, fmt.Errorf("show the machines' directories: %w", err)
	}
	f, err := os.Open("/proc/thread-self/ns/mnt")
	if err != nil {
		return nil, fmt.Errorf("hold a mount namespace: %w", err)
	}
	return &View{f}, nil
}

// Enter moves the calling thread to the view, permanently: it must be locked, and must end afterwards. v may be nil: no
// view.
func (v *View) Enter() error {
	if v == nil {
		return nil
	}
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("take a thread apart: %w", err)
	}
	return v.Return()
}

// Return moves a thread back to the view, after it has been in another namespace.
func (v *View) Return() error {
	if err := unix.Setns(int(v.file.Fd()), unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("enter the machines' view: %w", err)
	}
	return nil
}

// Of opens the mount namespace of a process.
func Of(pid int) (*os.File, error) { return os.Open(fmt.Sprintf("/proc/%d/ns/mnt", pid)) }

// Join moves the calling thread from the view to another namespace. If v is nil the host supports no view, so there is
// only one namespace, and Join does nothing.
func (v *View) Join(f *os.File) error {
	if v == nil {
		return nil
	}
	return unix.Setns(int(f.Fd()), unix.CLONE_NEWNS)
}

// Close closes the view. Machines in it stay there. v may be nil.
func (v *View) Close() error {
	if v == nil {
		return nil
	}
	return v.file.Close()
}

// Root is a machine's directory in the view.
func Root(id string) string { return filepath.Join(Machines, id) }

// none reports whether an error means that a path does not exist.
func none(err error) bool { return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) }
