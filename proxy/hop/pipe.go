package hop

import (
	"bufio"
	"io"
	"net"
)

// Half is one end of a pipe: a connection, and the bytes that were read ahead from it.
type Half struct {
	net.Conn
	Ahead *bufio.Reader // nil: nothing was read ahead
}

// Pipe copies between two connections until both directions have ended, or one has failed, and closes both. It returns
// how many bytes went to each.
func Pipe(a, b Half) (toA, toB int64) {
	done := make(chan int64, 1)
	go func() { done <- pourHalf(a.Conn, b) }()
	toB = pourHalf(b.Conn, a)
	toA = <-done
	a.Close()
	b.Close()
	return toA, toB
}

// pourHalf copies one direction, and then closes it; on a failure both directions end.
func pourHalf(to net.Conn, from Half) (n int64) {
	var err error
	if from.Ahead != nil && from.Ahead.Buffered() > 0 {
		ahead := int64(from.Ahead.Buffered())
		if n, err = io.CopyN(to, from.Ahead, ahead); err != nil {
			to.Close()
			from.Close()
			return n
		}
	}
	m, err := io.Copy(to, from.Conn) // spliced by the kernel where both are TCP
	if half, ok := to.(interface{ CloseWrite() error }); ok && err == nil {
		err = half.CloseWrite()
	} else if !ok {
		to.Close()
	}
	if err != nil {
		to.Close()
		from.Close()
	}
	return n + m
}
