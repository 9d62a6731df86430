package cli

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/unixsock"
)

// Which souk of this host is asked, and what is said of the others.
func TestLocalSoukIsChosenAndOthersAreMentioned(t *testing.T) {
	const (
		none = iota // its directory is there, as after its end
		runs        // it listens
		died        // its socket is there, and nobody listens
	)
	for _, c := range []struct {
		name       string
		agent, dev int
		asked      string // the name of its context; "": none
		said       string
	}{
		{"neither", none, none, "", "no souk"},
		{"an agent", runs, none, AgentContext, ""},
		{"a souk dev", none, runs, DevContext, ""},
		{"both", runs, runs, AgentContext, "two souks run on this host, and the agent of "},
		{"a souk dev beside an agent that was killed", died, runs, DevContext, "was killed and does not run, so"},
		{"an agent beside a souk dev that was killed", runs, died, AgentContext, ""},
		{"both were killed", died, died, "", "no souk"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var homes []Home
			for i, name := range []string{AgentContext, DevContext} {
				is, dir := []int{c.agent, c.dev}[i], filepath.Join(t.TempDir(), name)
				homes = append(homes, Home{name, dir, SocketFile})
				if err := os.Mkdir(dir, 0o700); err != nil {
					t.Fatal(err)
				}
				switch is {
				case runs, died:
					ln, err := unixsock.Listen(filepath.Join(dir, SocketFile))
					if err != nil {
						t.Fatal(err)
					}
					defer ln.Close()
					if is == died {
						ln.Close()
					}
				}
			}
			var errs strings.Builder
			e := &Env{Out: io.Discard, Err: &errs}
			h, err := e.choose(homes)
			if h.Name != c.asked || (c.asked == "") != fault.Is(err, fault.Unavailable) {
				t.Errorf("it asks %q, %v; want %q", h.Name, err, c.asked)
			}
			said := errs.String()
			if err != nil {
				said += err.Error()
			}
			if !strings.Contains(said, c.said) || (c.said == "") != (said == "") {
				t.Errorf("it says %q, want %q", said, c.said)
			}
		})
	}
}
