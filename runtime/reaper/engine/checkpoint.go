package engine

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	goruntime "runtime"

	runc "github.com/containerd/go-runc"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime"
)

// checkpointFile is what runsc writes into the directory of a checkpoint.
const checkpointFile = "checkpoint.img"

// Checkpoints returns why containers have no checkpoints by this runtime; nil when they have.
func (e Engine) Checkpoints() error {
	if e.Sandboxes() {
		return nil
	}
	return fault.New(fault.Precondition, runtime.CodeEngine,
		"%s has the kernel keep a container's memory; one by runsc can go "+
			"to disk (--runtime runsc)", filepath.Base(e.Path))
}

// Checkpoint has a container's memory written into a directory, which must have no checkpoint yet. The container ends
// when that is done, perhaps only a moment after this has returned; where the runtime's program is killed meanwhile it
// ends all the same. On any other error it goes on.
func (e Engine) Checkpoint(ctx context.Context, id, dir string) error {
	_, err := e.commandOutput(ctx, "checkpoint", "--image-path", dir, id)
	return err
}

// HasCheckpoint reports whether anything has been written of the checkpoint in a directory.
func HasCheckpoint(dir string) bool {
	st, err := os.Lstat(filepath.Join(dir, checkpointFile))
	return err == nil && st.Size() > 0
}

// IsAsked reports whether a checkpoint into a directory has been asked for, or is about to be.
func IsAsked(dir string) bool {
	_, err := os.Lstat(filepath.Join(dir, checkpointFile))
	return err == nil
}

// Restore is Create and Start of a container that goes on from a checkpoint.
func (e Engine) Restore(ctx context.Context, id, bundle, dir string, files Files, into *os.File) (pid int, err error) {
	file, log := filepath.Join(bundle, "pid"), filepath.Join(bundle, "log")
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	own, done, err := files.ownFiles()
	if err != nil {
		return 0, err
	}
	defer done()
	o := &runc.RestoreOpts{IO: grouped{&own, into}, Detach: true, PidFile: file}
	o.ImagePath = dir
	if _, err := e.runcClient(log).Restore(ctx, id, bundle, o); err != nil {
		return 0, e.restoreError(log, err)
	}
	return readPID(file)
}

// CodeRestore says that the OCI runtime refuses the checkpoint.
const CodeRestore fault.Code = "engine_restore"

// restoreError says why a container did not go on from its checkpoint.
func (e Engine) restoreError(log string, err error) error {
	why := e.loggedError(log, err)
	if exit, is := errors.AsType[*runc.ExitError](err); !is || exit.Status > 128 || exit.Status == 0 {
		return why
	}
	return fault.Wrap(why, fault.Unavailable, CodeRestore, "the checkpoint cannot be used now")
}
