package client

import (
	"strings"
	"testing"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// Bytes that are no UTF-8 are refused wherever they are, and the place is named; all else is sent as it is.
func TestEncodeRefusesInvalidUTF8AndNamesTheField(t *testing.T) {
	const bad = "caf\xe9"
	launch := func(change func(*machine.Config)) *machine.Launch {
		l := &machine.Launch{Config: new(machine.Config)}
		change(l.Config)
		return l
	}
	for at, v := range map[string]any{
		"config.env.A":       launch(func(c *machine.Config) { c.Env = map[string]string{"B": "x", "A": bad} }),
		`config.env["caf`:    launch(func(c *machine.Config) { c.Env = map[string]string{bad: "x"} }),
		"config.init.cmd[1]": launch(func(c *machine.Config) { c.Init.Cmd = []string{"echo", bad} }),
		"config.metadata.k":  launch(func(c *machine.Config) { c.Metadata = map[string]string{"k": bad} }),
		"command[0]":         api.ExecCommand{Command: []string{bad}},
		"[0].x":              []any{map[string]any{"x": bad}},
	} {
		_, err := encodeJSON(v)
		if !fault.Is(err, fault.Invalid) || !strings.HasPrefix(err.Error(), at) {
			t.Errorf("%s: %v", at, err)
		}
		if err != nil && !strings.Contains(err.Error(), "0xe9 as byte 4") {
			t.Errorf("%s does not say which byte: %v", at, err)
		}
	}
	for want, v := range map[string]any{
		`{"a":"�"}`: map[string]string{"a": "\uFFFD"},
		`"/+4="`:    []byte{0xff, 0xee},
	} {
		if got, err := encodeJSON(v); err != nil || string(got) != want {
			t.Errorf("%v is sent as %s (%v), not %s", v, got, err, want)
		}
	}
}
