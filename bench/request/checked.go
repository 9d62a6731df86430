package request

import (
	"context"
	"net"

	"github.com/soukhq/souk/machine"
)

// measureChecked wakes stopped machines whose check must pass before they get a request. The floor runs the same check
// once.
func (r *rig) measureChecked(ctx context.Context, o WakeOptions) (rows []WakeRow, err error) {
	connect := func(ctx context.Context, addr string) error {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
		if err != nil {
			return err
		}
		return c.Close()
	}
	ask := func(ctx context.Context, addr string) error {
		_, _, err := askOnce(ctx, addr, addr)
		return err
	}
	for _, k := range []struct {
		name    string
		typ     string
		service bool
		check   func(ctx context.Context, addr string) error
	}{
		{"checked_tcp_service", "tcp", true, connect}, {"checked_http_service", "http", true, ask},
		{"checked_tcp", "tcp", false, connect}, {"checked_http", "http", false, ask},
	} {
		row, err := r.measureWakes(ctx, o.N, k.name, func(c *machine.Config) {
			ch := machine.ServiceCheck{Type: &k.typ}
			if k.service {
				c.Services[0].Checks = []machine.ServiceCheck{ch}
				return
			}
			readiness := machine.KindReadiness
			c.Checks = map[string]machine.CheckConfig{"up": {ServiceCheck: ch, Kind: &readiness}}
		}, k.check)
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	return rows, nil
}
