package cli

import (
	"strings"
	"testing"

	"github.com/soukhq/souk/machine"
)

// TestConfigControlCharactersAreEscapedInLists: a machine's config cannot move the cursor of a terminal that lists
// machines.
func TestConfigControlCharactersAreEscapedInLists(t *testing.T) {
	m := &machine.Machine{Config: &machine.Config{Init: machine.Init{Exec: []string{"x\x1b[2J", "a\nb\u009b"}}}}
	if got := Command(m.Config); strings.ContainsAny(got, "\x1b\n\u009b") {
		t.Errorf("got %q", got)
	}
}
