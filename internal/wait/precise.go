package wait

import (
	"context"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// short is the longest pause that is made precisely: in a longer one a ms hardly matters.
const short = 5 * time.Millisecond

// Precise makes pauses of less than a few ms precisely. Go's timers are up to a ms late in an idle process, since
// epoll_wait(2) counts whole ms. The zero value is ready; it holds a descriptor from its first short pause until Close.
type Precise struct{ timer *os.File }

// For waits for d. It returns the context's cause if ctx has ended; a short pause is not interrupted by that.
func (p *Precise) For(ctx context.Context, d time.Duration) error {
	if d <= 0 || d >= short || !p.pause(d) {
		return For(ctx, max(d, 0))
	}
	return context.Cause(ctx)
}

// pause waits for d, and reports whether the kernel could do it.
func (p *Precise) pause(d time.Duration) bool {
	if p.timer == nil {
		fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
		if err != nil {
			return false
		}
		p.timer = os.NewFile(uintptr(fd), "timer")
	}
	raw, err := p.timer.SyscallConn()
	if err != nil {
		return false
	}
	if wrong := raw.Control(func(fd uintptr) {
		err = unix.TimerfdSettime(int(fd), 0, &unix.ItimerSpec{Value: unix.NsecToTimespec(int64(d))}, nil)
	}); wrong != nil || err != nil {
		return false
	}
	var expired [8]byte
	_, err = p.timer.Read(expired[:])
	return err == nil
}

// Close closes the descriptor.
func (p *Precise) Close() {
	if p.timer != nil {
		p.timer.Close()
	}
}
