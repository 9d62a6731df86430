package process

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"syscall"
	"time"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/sysmon"
	"github.com/soukhq/souk/runtime/reaper"
)

// spawnPatience bounds the time until a new reaper listens.
const spawnPatience = 15 * time.Second

// reachReaper connects to the reaper, and starts one if there is none.
func (l *link) reachReaper(ctx context.Context) (*net.UnixConn, error) {
	c, err := l.dialAlive(ctx)
	if err == nil || fault.Is(err, fault.Denied) {
		return c, err
	}
	// One at a time starts it, also among processes.
	lock, err := os.OpenFile(filepath.Join(l.o.Dir, "open.lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, spawnFault(fault.Wrap(err, fault.Precondition, fault.CodeDir, "the directory %s cannot be written",
			l.o.Dir))
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, codeLock, "the directory %s cannot be locked", l.o.Dir)
	}
	if c, err = l.dialAlive(ctx); err == nil {
		return c, nil
	}
	if err := l.spawnReaper(); err != nil {
		return nil, err
	}
	if c, err = l.dialReaper(ctx); err != nil {
		return nil, undialedError(ctx, err)
	}
	return c, nil
}

// dialAlive connects to the reaper only if it is alive and not just a socket: see reaper.Alive.
func (l *link) dialAlive(ctx context.Context) (*net.UnixConn, error) {
	c, err := l.dialReaper(ctx)
	if err == nil && !reaper.Alive(l.o.Dir) {
		return nil, errors.Join(errDead, c.Close())
	}
	return c, err
}

// spawnReaper starts a reaper in a new session and waits until it listens. The reaper gets only the environment
// variables listed here: souk's own may contain a token.
func (l *link) spawnReaper() error {
	argv := append(append([]string(nil), l.o.ReaperCommand...), l.o.Dir)
	out, err := os.OpenFile(filepath.Join(l.o.Dir, reaper.LogFile), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return spawnFault(fault.Wrap(err, fault.Precondition, fault.CodeDir, "the reaper's log cannot be opened"))
	}
	defer out.Close()
	if st, err := out.Stat(); err == nil && st.Size() > 1<<20 {
		if err := out.Truncate(0); err != nil {
			return spawnFault(fault.Wrap(err, fault.Precondition, fault.CodeDir,
				"the reaper's log cannot be shortened"))
		}
	}
	ready, told, err := os.Pipe()
	if err != nil {
		return fault.Wrap(err, fault.Unavailable, codeReaper, "the reaper cannot be started now")
	}
	defer ready.Close()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = "/"
	cmd.Env = []string{reaper.EnvDir + "=" + l.o.Dir, envReady + "=3", "PATH=" + os.Getenv("PATH")}
	if l.o.ReaperIdle > 0 {
		cmd.Env = append(cmd.Env, envIdle+"="+l.o.ReaperIdle.String())
	}
	if l.o.NoCgroups {
		cmd.Env = append(cmd.Env, envCgroups+"=off")
	}
	for _, k := range []string{"GOCOVERDIR", "GORACE"} { // for Go's test tools
		if v := os.Getenv(k); v != "" {
			cmd.Env = append(cmd.Env, k+"="+v)
		}
	}
	cmd.Stdout, cmd.Stderr = out, out
	cmd.ExtraFiles = []*os.File{told}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	goruntime.LockOSThread()
	if err = sysmon.Exact(); err == nil {
		err = cmd.Start()
	}
	goruntime.UnlockOSThread()
	_ = told.Close()
	if err != nil {
		return spawnFault(fault.Wrap(err, fault.Precondition, codeReaper, "the reaper %s cannot be started", argv[0]))
	}
	pid := cmd.Process.Pid
	_ = cmd.Process.Release() // reapChild waits for it by pid, when it has ended
	if err := ready.SetReadDeadline(time.Now().Add(spawnPatience)); err != nil {
		return fault.Wrap(err, fault.Internal, codeReaper, "the reaper cannot be waited for")
	}
	b, err := io.ReadAll(io.LimitReader(ready, 4096))
	if said := strings.TrimSpace(string(b)); said != "ok" {
		if ended, stop, err := untilEnd(pid); err == nil {
			go func() { defer stop(); l.reapEnding(pid, ended) }()
		}
		return fault.Wrap(err, fault.Unavailable, codeReaper, "the reaper could not start (%s); see %s", said,
			filepath.Join(l.o.Dir, reaper.LogFile))
	}
	return nil
}

// spawnFault returns why no reaper was started: what must be corrected, or, if the host lacks a resource for the
// moment, that it will be retried.
func spawnFault(wrong *fault.Error) error {
	for _, lacks := range []error{syscall.EAGAIN, syscall.ENOMEM, syscall.EMFILE, syscall.ENFILE, syscall.ENOSPC,
		syscall.EDQUOT} {
		if errors.Is(wrong, lacks) {
			return fault.Wrap(wrong.Err, fault.Unavailable, codeReaper,
				"this worker has no room for the process of its reaper now; it is tried again with the next request")
		}
	}
	return wrong
}

// reapPatience bounds the wait for a reaper that has lost its connection: if it was killed, it ends within moments; if
// it keeps running, another process uses it.
const reapPatience = 30 * time.Second

// reapEnding waits for an ending reaper and reaps it, so that no zombie stays. It gives up if the reaper keeps running.
func (l *link) reapEnding(pid int, ended <-chan struct{}) {
	t := time.NewTimer(reapPatience)
	defer t.Stop()
	select {
	case <-ended:
	case <-t.C:
	case <-l.done.Done():
	}
	reapChild(pid)
}

// reapChild reaps an ended process if it is a child of this one.
func reapChild(pid int) {
	var ws syscall.WaitStatus
	_, _ = syscall.Wait4(pid, &ws, syscall.WNOHANG, nil) // ECHILD: another process started it
}

// waitUntilGone waits until a reaper has ended.
func (l *link) waitUntilGone(ctx context.Context, pid int) error {
	t := time.NewTicker(2 * time.Millisecond)
	defer t.Stop()
	for {
		reapChild(pid)
		if err := syscall.Kill(pid, 0); errors.Is(err, syscall.ESRCH) {
			return nil
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return timeout(ctx, "end its reaper")
		}
	}
}
