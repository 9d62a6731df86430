package worker

import (
	"context"
	"errors"
	"net"
	"syscall"
	"time"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime"
)

const dialTime = 5 * time.Second // to a port of a machine of this host

// Dial connects to a port of a machine that runs, whether or not a service has it. A caller that may do that may also
// run commands in the machine, which could connect to the port as well. The connection ends with ctx.
func (w *Worker) Dial(ctx context.Context, app, id string, port int) (runtime.Conn, error) {
	m, err := w.runningMachine(ctx, app, id)
	if err != nil {
		return nil, err
	}
	if _, err := m.Reach(port); err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	c, err := w.dialer.Try(limited, m, port)
	if errors.Is(err, syscall.ECONNREFUSED) {
		if why := w.dialer.Explain(m, port, err); why != "" {
			return nil, fault.Wrap(err, fault.Unavailable, runtime.CodeListensElsewhere,
				"port %d of machine %s cannot be reached: %s", port, id, why)
		}
		return nil, fault.Wrap(err, fault.Unavailable, fault.CodeNoListener,
			"machine %s runs, and nothing listens at its port %d; see souk logs %s", id, port, id)
	}
	if err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, fault.CodeUnreachable,
			"port %d of machine %s cannot be reached from "+
				"its worker", port, id)
	}
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		c.Close()
		return nil, fault.New(fault.Internal, fault.CodeUnreachable, "port %d of machine %s is no TCP port", port, id)
	}
	return &dialled{TCPConn: tcp, stop: context.AfterFunc(ctx, func() { tcp.Close() })}, nil
}

// dialled is a connection that ends with its context.
type dialled struct {
	*net.TCPConn
	stop func() bool
}

// Close closes it.
func (d *dialled) Close() error {
	d.stop()
	return d.TCPConn.Close()
}
