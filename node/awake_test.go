package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/soukhq/souk/internal/atrest"
)

// TestExternalKeyDisablesMemoryCheckpoints: where secrets may lie on no disk in clear, no machine's memory does. Where
// the key cannot be read it is not known, and nothing is opened.
func TestExternalKeyDisablesMemoryCheckpoints(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	for _, x := range []struct {
		name, keys string
		mode       os.FileMode
		why, fails bool
	}{
		{"no key", "", 0, false, false},
		{"a key", strings.Repeat("k", 64) + "\n", 0o600, true, false},
		{"not any more", "none\n" + strings.Repeat("k", 64) + "\n", 0o600, false, false},
		{"a key that others may read", strings.Repeat("k", 64) + "\n", 0o644, false, true},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Setenv(atrest.EnvFile, "")
			if x.keys != "" {
				t.Setenv(atrest.EnvFile, file)
				if err := os.WriteFile(file, []byte(x.keys), x.mode); err != nil {
					t.Fatal(err)
				}
				if err := os.Chmod(file, x.mode); err != nil {
					t.Fatal(err)
				}
			}
			why, err := whyNoHibernate()
			if (why != nil) != x.why || (err != nil) != x.fails {
				t.Errorf("%v, %v", why, err)
			}
		})
	}
}
