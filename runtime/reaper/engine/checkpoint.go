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

// checkpointFile is the file that runsc writes into a checkpoint's directory.
const checkpointFile = "checkpoint.img"

// Checkpoints returns why this runtime does not support checkpoints, nil if it does.
func (e Engine) Checkpoints() error {
	if e.Sandboxes() {
		return nil
	}
	return fault.New(fault.Precondition, runtime.CodeEngine,
		"a container run by %s has its memory in the host's kernel and cannot go to disk; one run by runsc can "+
			"(--runtime runsc)", filepath.Base(e.Path))
}

// Checkpoint writes a container's memory into a directory, which must not contain a checkpoint yet. The container ends
// when that is done, maybe a moment after Checkpoint has returned; it also ends if the runtime's program is killed
// meanwhile. On any other error the container keeps running.
func (e Engine) Checkpoint(ctx context.Context, id, dir string) error {
	_, err := e.commandOutput(ctx, "checkpoint", "--image-path", dir, id)
	return err
}

// HasCheckpoint reports whether any data of a checkpoint has been written to a directory.
func HasCheckpoint(dir string) bool {
	st, err := os.Lstat(filepath.Join(dir, checkpointFile))
	return err == nil && st.Size() > 0
}

// IsAsked reports whether a checkpoint into a directory has been started: its file exists.
func IsAsked(dir string) bool {
	_, err := os.Lstat(filepath.Join(dir, checkpointFile))
	return err == nil
}

// Restore is Create and Start of a container that resumes from a checkpoint.
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

// restoreError explains why a container was not restored from its checkpoint.
func (e Engine) restoreError(log string, err error) error {
	why := e.loggedError(log, err)
	if exit, is := errors.AsType[*runc.ExitError](err); !is || exit.Status > 128 || exit.Status == 0 {
		return why
	}
	return fault.Wrap(why, fault.Unavailable, CodeRestore, "the checkpoint cannot be used now")
}
