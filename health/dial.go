package health

import (
	"context"
	"net"

	"github.com/soukhq/souk/machine"
)

// Dial connects to a port of a machine at its own address: that of its container, or this host's loopback where the
// machine is in the host's network. No other address is dialled, whatever the machine says of itself.
func Dial(ctx context.Context, m *machine.Machine, port int) (net.Conn, error) {
	at, err := m.Reach(port)
	if err != nil {
		return nil, err
	}
	return new(net.Dialer).DialContext(ctx, "tcp", at)
}
