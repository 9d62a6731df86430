// Package tracetest finds, for tests, the traces that are not part of the project.
package tracetest

import (
	"os"
	"path/filepath"
	"testing"
)

// Path returns a file or folder of the traces, which are in $SOUK_TRACES or in shared/traces beside the checkout. The
// test is skipped if it is not there.
func Path(t testing.TB, name ...string) string {
	t.Helper()
	dir := os.Getenv("SOUK_TRACES")
	if dir == "" {
		dir = filepath.Join(checkoutRoot(t), "..", "shared", "traces")
	}
	path := filepath.Join(append([]string{dir}, name...)...)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("the trace %s is not here: set SOUK_TRACES to the folder of the traces", filepath.Join(name...))
	}
	return path
}

// checkoutRoot returns the folder of the checkout: the nearest above the test that has a go.mod.
func checkoutRoot(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for at := dir; ; at = filepath.Dir(at) {
		if _, err := os.Stat(filepath.Join(at, "go.mod")); err == nil {
			return at
		}
		if at == filepath.Dir(at) {
			t.Fatalf("no go.mod lies above %s", dir)
		}
	}
}
