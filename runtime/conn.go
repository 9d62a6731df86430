package runtime

import "io"

// Conn is a connection to a port of a machine. What is read of it ends when the machine has closed its end, or the
// context that it was made with is over.
type Conn interface {
	io.ReadWriteCloser
	// CloseWrite tells the machine that nothing more comes.
	CloseWrite() error
}
