package gossip

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/soukhq/souk/core/registry"
)

// TestDamagedObjectFileIsRefusedUnchanged: what a crash cut off at the end was promised to nobody; what is damaged or zeros with objects
// behind it is refused, and left as it is.
func TestDamagedObjectFileIsRefusedUnchanged(t *testing.T) {
	dir := t.TempDir()
	d, err := openDisk(dir)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		o := registry.Object{Kind: "app", Key: fmt.Sprint("app-", i), Payload: []byte(strings.Repeat("x", 200)),
			Stamp: registry.Stamp{Wall: int64(i + 1), Writer: "w1"}, Schema: 1}
		if err := d.appendObjects(true, o); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, ObjectsFile)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(b []byte){
		"a bit":            func(b []byte) { b[len(b)/2] ^= 1 },
		"zeros":            func(b []byte) { clear(b[1000:2500]) },
		"zeros at the top": func(b []byte) { clear(b[:1000]) },
	} {
		bad := append([]byte{}, whole...)
		spoil(bad)
		if err := os.WriteFile(path, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		if d, err := openDisk(dir); err == nil {
			t.Errorf("%s: accepted with %d of 20 objects", name, len(d.objects))
			d.close()
		} else if !strings.Contains(err.Error(), "souk agent without "+path) {
			t.Errorf("%s: %v", name, err)
		}
		if left, err := os.ReadFile(path); err != nil || string(left) != string(bad) {
			t.Errorf("%s: the file was changed, %v", name, err)
		}
	}
	if err := os.WriteFile(path, whole[:len(whole)-50], 0o600); err != nil {
		t.Fatal(err)
	}
	d, err = openDisk(dir)
	if err != nil || len(d.objects) != 19 {
		t.Fatalf("cut off there are %+v, %v", d, err)
	}
	d.close()
}
