// Package devicestest makes harmless devices of this host available to souk, for tests.
package devicestest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/soukhq/souk/runtime/devices"
)

// Gadget returns the id of a device of Gadgets by its name.
func Gadget(name string) string { return "example.com/gadget=" + name }

// Paths returns the devices of Gadgets by their names. Most hosts have them, and opening them does nothing.
func Paths() map[string]string {
	return map[string]string{"fuse": "/dev/fuse", "loop": "/dev/loop-control", "full": "/dev/full"}
}

// Gadgets describes each of Paths as a device of the same name, with a variable GADGET_NAME and a file. It skips the
// test if one of the paths does not exist.
func Gadgets(t testing.TB) *devices.Set {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	var list []string
	for name, path := range Paths() {
		if _, err := os.Stat(path); err != nil {
			t.Skipf("this host has no %s", path)
		}
		list = append(list, fmt.Sprintf(`{"name":%q,"containerEdits":{"deviceNodes":[{"path":"/dev/gadget-%s","hostPath":%q}],
			"env":["GADGET_%s=yes"],"mounts":[{"hostPath":%q,"containerPath":"/opt/gadget/%s"}]}}`, name, name, path,
			strings.ToUpper(name), file, name))
	}
	err := os.WriteFile(file, []byte("a library\n"), 0o644)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "gadgets.json"), []byte(
			`{"cdiVersion":"0.6.0","kind":"example.com/gadget","devices":[`+strings.Join(list, ",")+`]}`), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	s := devices.Open(t.Context(), devices.Options{Host: devices.This([]string{dir})})
	for name := range Paths() {
		if _, err := s.Give([]string{Gadget(name)}); err != nil {
			t.Fatal(err, s.Examine())
		}
	}
	return s
}
