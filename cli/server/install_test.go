package server

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/soukhq/souk/cli"
)

func souk(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out strings.Builder
	c := &cli.Env{Out: &out, Err: io.Discard, Getenv: func(string) string { return "" }}
	cmd := Agent(c)
	cmd.SetArgs(args)
	cmd.SetOut(io.Discard)
	cmd.SetErr(io.Discard)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err := cmd.ExecuteContext(context.Background())
	return out.String(), err
}

// systemd itself takes the unit as it is written, with the path of the program that wrote it.
func TestSystemdAcceptsTheGeneratedUnit(t *testing.T) {
	dir := t.TempDir()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	here := filepath.Join(dir, "souk") // this test may lie where "go run" puts programs, too
	if err := os.Symlink(exe, here); err != nil {
		t.Fatal(err)
	}
	if _, err := souk(t, "install", "--unit-dir", dir, "--exec", here); err != nil {
		t.Fatal(err)
	}
	unit, err := os.ReadFile(filepath.Join(dir, unitName))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(unit), "\nExecStart="+here+" agent --config /etc/souk/agent.toml\n") {
		t.Errorf("the unit starts something else:\n%s", unit)
	}
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("lacking: systemd-analyze (Debian: apt-get install systemd)")
	}
	out, err := exec.Command(analyze, "verify", filepath.Join(dir, unitName)).CombinedOutput()
	if err != nil || strings.Contains(string(out), unitName) {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
}
