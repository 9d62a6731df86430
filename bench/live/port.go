package live

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/soukhq/souk/internal/wait"
)

// AwaitPort returns when something accepts at an address, polling as fast as possible.
func AwaitPort(ctx context.Context, addr string) error {
	var d net.Dialer
	var pauses wait.Precise
	defer pauses.Close()
	for ; ; _ = pauses.For(ctx, 100*time.Microsecond) {
		c, err := d.DialContext(ctx, "tcp", addr)
		if err == nil {
			return c.Close()
		}
		if ctx.Err() != nil {
			return errors.Join(ctx.Err(), err)
		}
	}
}

// FreePort returns a port of loopback that is free now.
func FreePort() (int, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer ln.Close()
	return ln.Addr().(*net.TCPAddr).Port, nil
}
