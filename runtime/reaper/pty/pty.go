// Package pty makes pseudo-terminals. A terminal is a pair: data written to its far end, which a program has, is read
// from its near end, and vice versa. When the last copy of the near end is closed, the program gets SIGHUP.
package pty

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/machine"
)

// Open makes a terminal on this host. It does not become this process's controlling terminal.
func Open(size machine.WindowSize) (near, far *os.File, err error) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make a terminal: %w", err)
	}
	near = Near(fd)
	if err := Resize(near, size); err != nil {
		return nil, nil, errors.Join(err, near.Close())
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		far, err = os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("open a terminal: %w", err), near.Close())
	}
	return near, far, nil
}

// Near makes a file from the descriptor of a near end. Closing it ends its reads.
func Near(fd int) *os.File {
	_ = unix.SetNonblock(fd, true) // otherwise a read would block until there is data
	return os.NewFile(uintptr(fd), "terminal")
}

// Resize sets the size of a terminal's window; if it changes, the terminal's programs get SIGWINCH. A zero size is
// ignored.
func Resize(near *os.File, size machine.WindowSize) error {
	if size.Rows == 0 || size.Cols == 0 {
		return nil
	}
	return control(near, func(fd int) error {
		return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: size.Rows, Col: size.Cols})
	})
}

// Size returns the size of the window, from either end.
func Size(f *os.File) (size machine.WindowSize, err error) {
	err = control(f, func(fd int) error {
		w, err := unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ)
		if err == nil {
			size = machine.WindowSize{Rows: w.Row, Cols: w.Col}
		}
		return err
	})
	return size, err
}

// Output reads the programs' output. It ends with io.EOF when no program has the terminal open any more.
type Output struct{ Near *os.File }

// Read reads from the near end.
func (o Output) Read(p []byte) (int, error) {
	n, err := o.Near.Read(p)
	if errors.Is(err, unix.EIO) {
		err = io.EOF
	}
	return n, err
}

func control(f *os.File, do func(fd int) error) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var err2 error
	err = raw.Control(func(fd uintptr) { err2 = do(int(fd)) })
	return errors.Join(err, err2)
}
