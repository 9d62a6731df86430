package gossip

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/registry"
	"github.com/soukhq/souk/internal/wait/waittest"
)

// signed has a member sign what it says, and believe what is signed. The signature stands for one.
func signed(o Options) Options {
	sig := func(by cluster.WorkerID, raw []byte) []byte {
		return fmt.Appendf(nil, "%08x by %s", crc32.ChecksumIEEE(raw), by)
	}
	o.Sign = func(raw []byte) []byte { return sig(o.Self, raw) }
	o.Verify = func(by cluster.WorkerID, raw, is []byte) error {
		if bytes.HasPrefix(raw, []byte(registry.ObjectPrefix)) && bytes.HasSuffix(is, []byte(" by "+string(by))) ||
			bytes.Equal(is, sig(by, raw)) {
			return nil
		}
		return fmt.Errorf("%s did not sign this", by)
	}
	return o
}

// TestForgedStateOnDiskIsDropped: a member whose disk holds the greatest incarnation or unsigned objects starts, is
// believed, and drops the objects, without a manual repair (security H1, M2).
func TestForgedStateOnDiskIsDropped(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, MembersFile), []byte(`{"incarnation":1099511627776}`),
		0o600); err != nil {
		t.Fatal(err)
	}
	d, err := openDisk(dir)
	if err != nil {
		t.Fatal(err)
	}
	junk := registry.Object{Kind: "junk", Key: "k", Stamp: registry.Stamp{Wall: 1, Writer: "ghost"},
		Payload: []byte("x")}
	if err := d.appendObjects(true, junk); err != nil {
		t.Fatal(err)
	}
	if err := d.close(); err != nil {
		t.Fatal(err)
	}
	a := start(t, signed(Options{Self: "a"}))
	b := start(t, signed(Options{Self: "b", Dir: dir}), a)
	b.machine("m1", "started")
	waittest.Until(t, "a hears of b", func() bool { _, ok := a.Where("m1"); return ok && sameRoot(a, b)() })
	if n := a.Incarnation("b"); n > registry.MostIncarnation(time.Now()) {
		t.Errorf("b goes on from incarnation %d", n)
	}
	b.stop()
	if d, err = openDisk(dir); err != nil || len(d.objects) > 0 || d.saved.Incarnation >= 1<<40 {
		t.Fatalf("%v: on disk are %d objects and incarnation %d", err, len(d.objects), d.saved.Incarnation)
	}
	if err := d.close(); err != nil {
		t.Fatal(err)
	}
}

// TestRefusedIncarnationIsNotPersisted: an incarnation that the registry does not take is not on disk either.
func TestRefusedIncarnationIsNotPersisted(t *testing.T) {
	dir := t.TempDir()
	c, err := New(signed(Options{Self: "a", Dir: dir, Keys: [][]byte{key}}))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.keeper.close(); err != nil {
			t.Error(err)
		}
		_ = c.net.Shutdown()
	}()
	was := c.keeper.lastIncarnation()
	if err := c.Begin(nil, make([]Machine, registry.MaxRecords+1)); err == nil || c.keeper.lastIncarnation() != was {
		t.Fatalf("%v: incarnation %d is written down", err, c.keeper.lastIncarnation())
	}
}
