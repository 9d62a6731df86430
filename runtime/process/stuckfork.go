package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/soukhq/souk/internal/unixsock"
	"github.com/soukhq/souk/runtime/reaper/frame"
	"github.com/soukhq/souk/runtime/reaper/proc"
)

// While a child of the reaper has not executed its program, the thread that forked it stands still in the kernel, and
// the Go runtime does not know of it (vfork). The reaper ends such a child itself after ten seconds. It cannot if a
// garbage collection begins meanwhile: that waits for the thread, and everything else for the collection. So souk ends
// the child where the reaper does not answer.
const (
	askEvery      = 5 * time.Second
	silencePeriod = 12 * time.Second // more than the reaper gives a child
)

// watchForks asks the reaper from time to time whether it works, until the connection ends.
func (l *link) watchForks(s *session) {
	t := time.NewTicker(askEvery)
	defer t.Stop()
	for {
		select {
		case <-s.dead:
			return
		case <-t.C:
		}
		ctx, cancel := context.WithTimeout(l.done, silencePeriod)
		_, err := s.askOnce(ctx, frame.Request{Op: frame.OpPing}, nil)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) {
			l.endStuckForks(s.conn)
		}
	}
}

// endStuckForks ends the children of a silent reaper that have not executed their programs for long. The reaper then
// takes their starts for failed.
func (l *link) endStuckForks(conn *net.UnixConn) {
	reaper, err := unixsock.PeerPID(conn)
	if err != nil {
		return
	}
	for _, pid := range stuckForks(reaper) {
		l.o.Log.Error("the reaper does not answer, and a child of it does not get to its program: it is ended", "pid",
			pid, "reaper", reaper)
		_ = syscall.Kill(pid, syscall.SIGKILL) // ESRCH: it has ended meanwhile
	}
}

// stuckForks lists the children of a process that have run its own program, with its arguments, for silencePeriod: they
// have its memory still.
func stuckForks(parent int) (pids []int) {
	exe, args, err := programOf(parent)
	if err != nil {
		return nil
	}
	before := proc.Tick() - uint64(silencePeriod/(time.Second/proc.TicksPerSecond))
	kids, _ := proc.Children(parent)
	for _, pid := range kids {
		st, err := proc.Read(pid)
		if err != nil || st.Start > before {
			continue
		}
		if x, a, err := programOf(pid); err == nil && os.SameFile(x, exe) && bytes.Equal(a, args) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// programOf returns the file that a process executes, and its arguments.
func programOf(pid int) (exe os.FileInfo, args []byte, err error) {
	if exe, err = os.Stat(fmt.Sprintf("/proc/%d/exe", pid)); err != nil {
		return nil, nil, err
	}
	args, err = os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return exe, args, err
}
