package reach

import (
	"context"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime"
)

// TestConnectionGoesToTheMostSpecificSocket: a connection is taken by the socket at its very address, else by that at all addresses of its kind, else, one
// of IPv4, by that at all of IPv6.
func TestConnectionGoesToTheMostSpecificSocket(t *testing.T) {
	const v4, v6 = "127.0.0.1", "::1"
	for _, c := range []struct {
		at      string
		sockets []string
		want    []string
	}{
		{v4, nil, nil},
		{v4, []string{"127.0.0.1"}, []string{"127.0.0.1"}},
		{v4, []string{"0.0.0.0", "127.0.0.1"}, []string{"127.0.0.1"}},
		{v4, []string{"::", "0.0.0.0"}, []string{"0.0.0.0"}},
		{v4, []string{"::"}, []string{"::"}},
		{v4, []string{"::", "::"}, []string{"::", "::"}}, // several that share it on purpose
		{v4, []string{"::ffff:127.0.0.1", "::"}, []string{"::ffff:127.0.0.1"}},
		{v4, []string{"::ffff:0.0.0.0"}, []string{"::ffff:0.0.0.0"}},
		{v4, []string{"192.0.2.1", "::1"}, nil},
		{v6, []string{"0.0.0.0", "127.0.0.1"}, nil},
		{v6, []string{"0.0.0.0", "::"}, []string{"::"}},
		{v6, []string{"::", "::1"}, []string{"::1"}},
	} {
		var list []runtime.Listening
		for _, s := range c.sockets {
			list = append(list, runtime.Listening{At: netip.MustParseAddr(s)})
		}
		var got []string
		for _, l := range taking(list, netip.MustParseAddr(c.at)) {
			got = append(got, l.At.String())
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("to %s of %v: %v, want %v", c.at, c.sockets, got, c.want)
		}
	}
}

// table tells of sockets, and counts how often it was asked.
type table struct {
	list  []runtime.Listening
	err   error
	asked int
}

func (x *table) Listening(context.Context, string, int) ([]runtime.Listening, error) {
	x.asked++
	return x.list, x.err
}

// TestOnlyTheMachinesOwnSocketCounts: what another program of the host answers is no connection to the machine. That the machine has the socket is
// looked up once for as long as it has it, and what cannot be told, or is shared on purpose, is believed.
func TestOnlyTheMachinesOwnSocketCounts(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	port := ln.Addr().(*net.TCPAddr).Port
	own := t.TempDir() + "/7"
	if err := os.Symlink("socket:[1]", own); err != nil {
		t.Fatal(err)
	}
	m := &machine.Machine{ID: "00000000000001", Config: &machine.Config{Image: machine.HostImage}}
	here := netip.MustParseAddr("127.0.0.1")
	x := &table{list: []runtime.Listening{{At: here}}}
	o := &Own{Connect: new(Dialer).Dial, Sockets: x}
	dial := func(want fault.Code) {
		t.Helper()
		c, err := o.Dial(t.Context(), m, port)
		if fault.CodeOf(err) != want {
			t.Errorf("%v", err)
		}
		if err == nil {
			c.Close()
		}
	}
	dial(CodeOther)
	x.list[0] = runtime.Listening{At: here, Own: own, Link: "socket:[1]"}
	dial("")
	asked := x.asked
	dial("")
	if x.asked != asked {
		t.Error("a socket that is still the machine's was looked up again")
	}
	if err := os.Remove(own); err != nil { // it closes it, and another program takes the port
		t.Fatal(err)
	}
	x.list = []runtime.Listening{{At: here}, {At: netip.IPv6Loopback(), Own: own, Link: "socket:[2]"}}
	dial(CodeOther)
	if at := o.Other(t.Context(), m.ID, port); at.Addr() != here {
		t.Errorf("another program listens at %v", at)
	}
	x.list, x.err = nil, fault.New(fault.Unimplemented, "sandbox", "it cannot be told")
	dial("")
	x.list, x.err = []runtime.Listening{{At: here}}, nil
	m.Config.Network = &machine.Network{SharePorts: true}
	dial("")
	ln.Close()
	if c, err := o.Dial(t.Context(), m, port); err == nil {
		c.Close()
		t.Error("nothing listens")
	}
}
