package faults

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"os"
	"syscall"

	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/test/netns"
)

// Member is a member for tests that break a cluster in ways of their own.
type Member = member

// Build makes a cluster of members that know each other, and End ends all that it is.
func Build(ctx context.Context, o *Options, hosts netns.Hosts) ([]*Member, error) {
	return build(ctx, o, hosts)
}

// End ends everything on the hosts of members.
func End(ms []*Member) { end(ms) }

// Worker returns the id of the member's worker.
func (m *member) Worker() cluster.WorkerID { return cluster.WorkerID(m.id) }

// Client returns a client of the member's API.
func (m *member) Client() *client.Client { return m.cl }

// PowerOff kills everything on the member's host with SIGKILL.
func (m *member) PowerOff() { m.powerOff() }

// Signal sends a signal to the host's souk processes of a kind.
func (m *member) Signal(kind string, sig syscall.Signal) { m.signal(kind, sig) }

// Ready returns how often an agent on the host has said that it is ready.
func (m *member) Ready() int {
	raw, err := os.ReadFile(m.log.Name())
	if err != nil {
		return 0
	}
	return bytes.Count(raw, []byte(" is ready after "))
}

// Listen listens on the member's host.
func (m *member) Listen(addr string) (ln net.Listener, err error) {
	err = m.host.Do(func() error {
		ln, err = net.Listen("tcp", addr)
		return err
	})
	return ln, err
}

// Dial connects from the member's host.
func (m *member) Dial(ctx context.Context, addr string) (net.Conn, error) {
	return m.host.Dial(ctx, "tcp", addr)
}

// Proxy returns a client of HTTP that asks the member's proxy, over a connection for each request.
func (m *member) Proxy() *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return m.host.Dial(ctx, network, "127.0.0.1:4284")
		}}}
}

// PackImage writes an archive of an image that has programs, by their paths.
func PackImage(file, name string, programs map[string][]byte) error {
	return packImage(file, name, programs)
}

// Souk runs souk on the member's host.
func (m *member) Souk(ctx context.Context, argv ...string) (string, error) {
	return m.souk(ctx, argv...)
}

// Start starts the agent of a host.
func (m *member) Start() error { return m.start() }
