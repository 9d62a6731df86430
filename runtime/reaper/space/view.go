// Package space gives machines their view of the host's files: where their own directory is, and what volumes and
// files are shown to them at which paths.
//
// # The view of a worker
//
// The machines' directories lie in souk's private state, through which no other user may pass. So the reaper makes
// one mount namespace, in which they are at Machines, and its machines are executed there: they have the host's
// files as they are, mounts that come and go included, and their own directory below a path that they may pass. It
// costs a start nothing, and the kernel forgets it with the last process in it.
//
// # The space of one machine
//
// A machine with volumes or files has a namespace of its own, made from the view by the thread that will fork it. A
// path that is there on the host has the volume or file mounted over it. One that is not needs a place: the directory
// that lacks it is shown anew, from memory, with all that it holds mounted back and the place beside. Nothing is
// written to the host's disk.
package space

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/internal/osthread"
)

// Where things are in the view. On the host these are empty directories.
const (
	Dir      = "/run/souk"
	Machines = Dir + "/machines" // a machine's directory is below
	stage    = Dir + "/stage"    // where a space is put together
)

// View is the namespace of a worker's machines.
type View struct {
	file *os.File // the namespace
}

// Open makes the view of the directory of machines, which may be passed through and not listed.
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
	osthread.Go(func() { // which ends, for it is in the view
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

// Enter puts the calling thread into the view, for good: it must be locked, and end at last. nil: there is no view.
func (v *View) Enter() error {
	if v == nil {
		return nil
	}
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("take a thread apart: %w", err)
	}
	return v.Return()
}

// Return puts a thread that was in the view, and has been elsewhere, into it again.
func (v *View) Return() error {
	if err := unix.Setns(int(v.file.Fd()), unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("enter the machines' view: %w", err)
	}
	return nil
}

// Of opens the namespace that a process is in.
func Of(pid int) (*os.File, error) { return os.Open(fmt.Sprintf("/proc/%d/ns/mnt", pid)) }

// Join puts the calling thread, which was in the view, into another namespace. A host on which no view can be made has
// only one, so that nothing is to be done there.
func (v *View) Join(f *os.File) error {
	if v == nil {
		return nil
	}
	return unix.Setns(int(f.Fd()), unix.CLONE_NEWNS)
}

// Close lets go of the view. Machines that are in it stay there. nil has nothing to let go of.
func (v *View) Close() error {
	if v == nil {
		return nil
	}
	return v.file.Close()
}

// Root is a machine's directory in the view.
func Root(id string) string { return filepath.Join(Machines, id) }

// none reports whether an error says that something is not there.
func none(err error) bool { return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) }
