package machine_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/soukhq/souk/machine"
)

// TestUnmountedImageVolumesAreReported: an image's data is kept where a volume is mounted at its directory, or above.
func TestUnmountedImageVolumesAreReported(t *testing.T) {
	const end = ", and no volume is attached there: it is lost when the machine stops; see souk volumes create, and " +
		"--volume NAME:"
	for _, c := range []struct{ declared, mounted, want string }{
		{"", "", ""},
		{"", "/data", ""},
		{"/var/lib/db", "/var/lib/db", ""},
		{"/var/lib/db", "/var/lib/db/", ""},
		{"/var/lib/db", "/var/lib", ""},
		{"/var/lib/db", "/var/lib/d", "/var/lib/db" + end + "/var/lib/db"},
		{"/var/lib/db", "/var/lib/db/data", "/var/lib/db" + end + "/var/lib/db"}, // what is beside that is not kept
		{"/a /b", "", "/a and /b" + end + "/a"},
		{"/a /b", "/a", "/b" + end + "/b"},
		{"/a /b /c /d /e /f", "/b", "/a, /c, /d, /e and 1 more" + end + "/a"},
		{"/a /b /c /d /e /f", "", "/a, /b, /c, /d and 2 more" + end + "/a"},
		{"/a\x1b[2J", "", `"/a\x1b[2J"` + end + `"/a\x1b[2J"`},
	} {
		cfg := new(machine.Config)
		if c.mounted != "" {
			cfg.Mounts = []machine.Mount{{Volume: "v", Path: c.mounted}}
		}
		want := c.want
		if want != "" {
			want = "the image keeps its data in " + want
		}
		if got := strings.Join(machine.VolumesLacking(cfg, strings.Fields(c.declared)), "; "); got != want {
			t.Errorf("%q with %q mounted:\n%s\nnot\n%s", c.declared, c.mounted, got, want)
		}
	}
}

// TestWarningsOfTheCurrentVersionAreListed: what a machine's version was warned of, in order, and nothing of the version before.
func TestWarningsOfTheCurrentVersionAreListed(t *testing.T) {
	event := func(typ, text string) machine.Event { return machine.Event{Type: typ, Message: text} }
	m := &machine.Machine{Events: []machine.Event{
		event("start", ""), event(machine.EventWarning, "second"), event(machine.EventRetry, "it is tried again"),
		event(machine.EventWarning, "first"), event("launch", ""), event("update", ""),
		event(machine.EventWarning, "of before"), event("launch", ""),
	}}
	if got := m.Warned(); !slices.Equal(got, []string{"first", "second"}) {
		t.Error(got)
	}
	if got := new(machine.Machine).Warned(); got != nil {
		t.Error(got)
	}
}

// TestPortWarningsNameHostNetworkConflicts: what has a port of its host for itself is one machine a host, whatever requests may have made.
func TestPortWarningsNameHostNetworkConflicts(t *testing.T) {
	config := func(image string, most int, n *machine.Network) *machine.Config {
		c := &machine.Config{Image: image, Network: n, Services: []machine.Service{{InternalPort: 8080}}}
		if most > 0 {
			c.Services[0].CreateUpTo = &most
		}
		return c
	}
	for name, c := range map[string]struct {
		config *machine.Config
		warned bool
	}{
		"a program of the host":      {config(machine.HostImage, 4, nil), true},
		"one that may be made once":  {config(machine.HostImage, 1, nil), false},
		"one that is made by nobody": {config(machine.HostImage, 0, nil), false},
		"one that shares its port":   {config(machine.HostImage, 4, &machine.Network{SharePorts: true}), false},
		"a container":                {config("web:1", 4, nil), false},
		"a container in the host's":  {config("web:1", 4, &machine.Network{Mode: machine.NetworkHost}), true},
		"a container that publishes": {config("web:1", 4, &machine.Network{Publish: []machine.Publish{{HostPort: 80,
			Port: 8080}}}), true},
		"no config, as of a machine lost": {nil, false},
	} {
		got := machine.PortWarnings(c.config)
		if (len(got) == 1) != c.warned {
			t.Errorf("%s: %q", name, got)
		}
		if c.warned && !strings.Contains(got[0], "create_up_to is 4, and each host has room for one of these") {
			t.Errorf("%s: %q", name, got)
		}
	}
}
