package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestHomeFindsAgentOrDevDirectoryAndSaysWhich: a file is found in the directory of an agent or of souk dev; where
// both have it, the output says which one is used.
func TestHomeFindsAgentOrDevDirectoryAndSaysWhich(t *testing.T) {
	state := t.TempDir()
	agent, dev := filepath.Join(state, "agent"), filepath.Join(state, "dev")
	homes := []Home{{AgentContext, agent, SocketFile}, {DevContext, dev, SocketFile}}
	var errs bytes.Buffer
	c := &Env{Err: &errs, Getenv: func(string) string { return "" }}
	look := func(want, said string) {
		t.Helper()
		errs.Reset()
		got, err := c.pick(homes, "decisions", "decision log")
		if err != nil {
			errs.WriteString(err.Error())
		}
		if got != want || !strings.Contains(errs.String(), said) || (said == "") != (errs.Len() == 0) {
			t.Errorf("%q is taken, and said %s", got, errs.String())
		}
	}
	record := func(dir string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Join(dir, "decisions"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	look("", "no souk of this host has a decision log that this user can see, in "+agent+" or "+dev)
	record(dev)
	look(dev, "")
	record(agent)
	look(agent, "--dir "+dev+" takes the one of the dev")
	if got, err := c.HomeWith(dev, "decisions", "decision log"); got != dev || err != nil {
		t.Error(got, err)
	}
	if _, err := c.HomeWith(state, "decisions", "decision log"); err == nil ||
		!strings.HasPrefix(err.Error(), state+" has no decision log") {
		t.Error(err)
	}
}
