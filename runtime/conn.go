package runtime

import "io"

// Conn is a connection to a port of a machine. Reading ends when the machine has closed its end, or when the context of
// the Dial call ends.
type Conn interface {
	io.ReadWriteCloser
	// CloseWrite signals to the machine that no more data comes.
	CloseWrite() error
}
