package wait

import (
	"context"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// short is the longest pause that is made precisely: of a longer one a ms is a small part.
const short = 5 * time.Millisecond

// Precise waits for pauses of less than a few ms without the ms by which Go's timers are late where a process has nothing else
// to do: it sleeps in epoll_wait(2), which counts whole ms. The zero one is ready; it has a descriptor from its first short pause
// until Close.
type Precise struct{ timer *os.File }

// For waits for d. It returns the context's cause when that has ended; a short pause is not cut off by that.
func (p *Precise) For(ctx context.Context, d time.Duration) error {
	if d <= 0 || d >= short || !p.pause(d) {
		return For(ctx, max(d, 0))
	}
	return context.Cause(ctx)
}

// pause waits for d, unless the kernel lacks the means.
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

// Close gives the descriptor back.
func (p *Precise) Close() {
	if p.timer != nil {
		p.timer.Close()
	}
}
