package process

import (
	"context"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/reaper/frame"
)

// FindDir reports whether a program could start in a directory; see runtime.DirFinder. The reaper looks for it, where
// its programs see it.
func (r *Runtime) FindDir(ctx context.Context, as *runtime.As, dir string) error {
	if err := as.Check("", false); err != nil {
		return err
	}
	if err := r.checkStdio(ctx, runtime.Spec{Dir: dir}, nil); err != nil {
		return err
	}
	_, err := r.link.callReaper(ctx, frame.Request{Op: frame.OpFindDir, Dir: dir, Start: &frame.Start{As: as}}, false)
	return err
}

// checkStdio refuses a directory and files that the reaper would not start the program with.
func (r *Runtime) checkStdio(ctx context.Context, s runtime.Spec, in *frame.Container) error {
	if err := s.Stdio.Check(s.Dir, in != nil, s.TTY || s.Attach); err != nil {
		return err
	}
	if s.Dir == "" && s.Stdio.IsZero() && len(s.Shown) == 0 {
		return nil
	}
	session, err := r.link.liveSession(ctx)
	if err != nil {
		return err
	}
	// Compatible until 0.3.0: an older reaper does not know Start.Dir, Start.Stdio and Start.Shown, and would run the
	// program in another directory, without what it was to find there, and keep what it writes.
	if !session.welcome.Stdio {
		return fault.New(fault.Precondition, runtime.CodeProtocol, "the reaper of this worker is of a build (%s) that "+
			"starts no program in a directory or with files of the user's choice: end the commands that run in its "+
			"machines, and restart souk there, which replaces the reaper", session.welcome.Build)
	}
	return nil
}
