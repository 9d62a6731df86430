// Package frame is the protocol between a worker and its reaper over their unix socket.
//
// A frame is a length, a request id, a kind, a JSON head and a raw body. Many requests may be in progress on one
// connection; an answer carries the id of its request. Machines' output is not sent as frames: log files and the pipes
// of an exec are read directly.
package frame

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
)

// Version is the version of the protocol that this build speaks; Oldest is the oldest one it still understands.
const (
	Version = 1
	Oldest  = 1
)

// Limits of one frame. A head is JSON without file contents; a body is the contents of all files of one start.
const (
	MaxHead = 4 << 20
	MaxBody = 32 << 20
)

// Kind is the kind of a frame.
type Kind byte

// The kinds.
const (
	KindRequest Kind = 'Q' // head: Request
	KindReply   Kind = 'A' // head: Reply, same id
	KindExit    Kind = 'X' // head: runtime.Exit; unsolicited, id 0
	KindGrown   Kind = 'G' // a watched machine's log has grown, same id as the watch
	KindOutput  Kind = 'O' // body: a machine's terminal output; same id as the attach
)

// Frame is one message.
type Frame struct {
	ID   uint32
	Kind Kind
	Head []byte
	Body []byte
}

const prefix = 4 + 4 + 4 + 1

// Write sends a frame with one call of w.Write.
func Write(w io.Writer, id uint32, kind Kind, head any, body ...[]byte) error {
	var h []byte
	if head != nil {
		var err error
		if h, err = json.Marshal(head); err != nil {
			return fmt.Errorf("encode a frame: %w", err)
		}
	}
	size := 0
	for _, b := range body {
		size += len(b)
	}
	if len(h) > MaxHead || size > MaxBody {
		return fmt.Errorf("a frame of %d + %d bytes is larger than %d + %d", len(h), size, MaxHead, MaxBody)
	}
	buf := make([]byte, prefix, prefix+len(h)+size)
	binary.LittleEndian.PutUint32(buf[0:], uint32(len(h)))
	binary.LittleEndian.PutUint32(buf[4:], uint32(size))
	binary.LittleEndian.PutUint32(buf[8:], id)
	buf[12] = byte(kind)
	buf = append(buf, h...)
	for _, b := range body {
		buf = append(buf, b...)
	}
	_, err := w.Write(buf)
	return err
}

// Read reads the next frame. io.EOF means that the other side has closed the connection between two frames.
func Read(r io.Reader) (Frame, error) {
	var p [prefix]byte
	if _, err := io.ReadFull(r, p[:]); err != nil {
		return Frame{}, err
	}
	head, body := binary.LittleEndian.Uint32(p[0:]), binary.LittleEndian.Uint32(p[4:])
	if head > MaxHead || body > MaxBody {
		return Frame{}, fmt.Errorf("a frame announces %d + %d bytes, more than %d + %d", head, body, MaxHead, MaxBody)
	}
	buf := make([]byte, int(head)+int(body))
	if _, err := io.ReadFull(r, buf); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return Frame{}, err
	}
	f := Frame{ID: binary.LittleEndian.Uint32(p[8:]), Kind: Kind(p[12]), Head: buf[:head:head], Body: buf[head:]}
	return f, nil
}
