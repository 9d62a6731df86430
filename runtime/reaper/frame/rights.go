package frame

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
)

// MaxFiles is how many descriptors one message can carry.
const MaxFiles = 3

// Sender writes to a socket, and sends descriptors with the first write.
type Sender struct {
	Conn  *net.UnixConn
	Files []*os.File
}

// Write sends p, and the descriptors with the first call.
func (s *Sender) Write(p []byte) (int, error) {
	if len(s.Files) == 0 {
		return s.Conn.Write(p)
	}
	fds := make([]int, 0, len(s.Files))
	for _, f := range s.Files {
		raw, err := f.SyscallConn()
		if err == nil {
			err = raw.Control(func(fd uintptr) { fds = append(fds, int(fd)) })
		}
		if err != nil {
			return 0, err
		}
	}
	n, _, err := s.Conn.WriteMsgUnix(p, syscall.UnixRights(fds...), nil)
	s.Files = nil
	if err == nil && n < len(p) {
		var m int
		m, err = s.Conn.Write(p[n:])
		n += m
	}
	if err != nil && errors.Is(err, net.ErrClosed) {
		err = io.ErrClosedPipe
	}
	return n, err
}

// Receiver reads from a socket and keeps the received descriptors, at most MaxFiles.
type Receiver struct {
	Conn *net.UnixConn
	FDs  []int // code that takes them sets it to nil
}

// Read reads data, and keeps descriptors received with it.
func (r *Receiver) Read(p []byte) (int, error) {
	var oob [64]byte
	n, on, _, _, err := r.Conn.ReadMsgUnix(p, oob[:])
	n = max(n, 0) // -1 on an error
	if n == 0 && err == nil && len(p) > 0 {
		err = io.EOF
	}
	if on > 0 {
		msgs, perr := syscall.ParseSocketControlMessage(oob[:on])
		if perr != nil {
			return n, fmt.Errorf("read descriptors: %w", perr)
		}
		for _, m := range msgs {
			got, perr := syscall.ParseUnixRights(&m)
			if perr != nil {
				continue
			}
			r.FDs = append(r.FDs, got...)
		}
		if len(r.FDs) > MaxFiles {
			r.Close()
			return n, errors.New("too many descriptors")
		}
	}
	return n, err
}

// Close closes the descriptors that were not taken.
func (r *Receiver) Close() {
	for _, fd := range r.FDs {
		_ = syscall.Close(fd)
	}
	r.FDs = nil
}
