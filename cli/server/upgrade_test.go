package server

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/soukhq/souk/internal/handover"
)

// TestUpgradeAcceptsOnlyASoukBinary: a program that says that it is a souk, and no other; the reason of each says what it did.
func TestUpgradeAcceptsOnlyASoukBinary(t *testing.T) {
	doors, err := handover.Inherit()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, c := range map[string]struct{ text, want string }{
		"souk":    {`echo '{"version":"v1.2.3","go":"go1.26","server":null}'`, ""},
		"fails":   {"echo broken >&2; exit 3", "broken"},
		"true":    {"exit 0", "is no souk"},
		"other":   {"echo 'nginx version: 1.26'", "is no souk"},
		"hangs":   {"sleep 20 & sleep 20", "did not say its version within 300ms"},
		"missing": {"", "no such file"},
	} {
		exe := filepath.Join(dir, name)
		if c.text != "" {
			if err := os.WriteFile(exe, []byte("#!/bin/sh\n"+c.text+"\n"), 0o755); err != nil { //nolint:gosec // a program
				t.Fatal(err)
			}
		}
		s := &succession{doors: doors, exe: exe, life: t.Context(), log: slog.New(slog.DiscardHandler)}
		within := 20 * time.Second
		if name == "hangs" {
			within = 300 * time.Millisecond
		}
		began := time.Now()
		version, err := s.prepare(context.Background(), within)
		switch {
		case c.want == "" && (err != nil || version != "v1.2.3" || !s.due.Load()):
			t.Errorf("%s: %q, %v", name, version, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || s.due.Load()):
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if took := time.Since(began); took > 15*time.Second {
			t.Errorf("%s: it took %v", name, took)
		}
	}
}
