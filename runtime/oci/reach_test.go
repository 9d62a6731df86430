package oci_test

import (
	"errors"
	"io"
	"strings"
	"syscall"
	"testing"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime/oci"
	"github.com/soukhq/souk/runtime/reach"
)

// TestServerIsReachedWhereverItListens: a server in a container is reached from its host on whichever kind of address it listens,
// and by its published port. Of one that listens on the container's loopback alone that is said.
func TestServerIsReachedWhereverItListens(t *testing.T) {
	t.Parallel()
	h := hosted(t, oci.DefaultEngine)
	r := reopen(t, h.o)
	for id, c := range map[string]struct{ listen, why string }{
		"four": {"0.0.0.0:8080", ""},
		"any":  {"[::]:8080", ""},
		"lo4":  {"127.0.0.1:8080", "the program listens on 127.0.0.1 only; make it listen on 0.0.0.0 or [::]"},
		"lo6":  {"[::1]:8080", "the program listens on ::1 only; make it listen on 0.0.0.0 or [::]"},
	} {
		s := serving("a", id)
		s.Argv = []string{"httpd", "-f", "-p", c.listen, "-h", "/www"}
		if c.why == "" {
			s.Network.Publish = []machine.Publish{{HostPort: map[string]int{"four": 81, "any": 82}[id], Port: 8080}}
		}
		if _, err := r.Start(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		app := cluster.AppNetwork(testNetwork, "a")
		m := &machine.Machine{ID: id, App: "a", PrivateIP: cluster.MachineAddress(app, id).String(),
			Config: &machine.Config{Image: "x"}}
		var d reach.Dialer
		got, err := "", error(nil)
		waittest.See(t, id, func() string {
			h.in(func() { got, err = page(t, &d, m) })
			return got + "|" + text(err)
		}, func(string) bool { return err == nil || c.why != "" && fault.CodeOf(err) != "" })
		if c.why == "" && !strings.HasSuffix(got, "I am "+id) ||
			c.why != "" && (!errors.Is(err, syscall.ECONNREFUSED) || !strings.Contains(err.Error(), c.why)) {
			t.Errorf("%s, which listens on %s: %q, %v", id, c.listen, got, err)
		}
	}
	for to, want := range map[string]string{"127.0.0.1:81": "four", "127.0.0.1:82": "any"} {
		if got, err := h.get(to); !strings.HasSuffix(got, "I am "+want) {
			t.Errorf("the published port %s: %q, %v", to, got, err)
		}
	}
}

func page(t *testing.T, d *reach.Dialer, m *machine.Machine) (string, error) {
	c, err := d.Dial(t.Context(), m, 8080)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if _, err := io.WriteString(c, "GET / HTTP/1.0\r\n\r\n"); err != nil {
		return "", err
	}
	b, err := io.ReadAll(c)
	return string(b), err
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
