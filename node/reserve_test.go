package node_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/runtime/fake"
	"github.com/soukhq/souk/store/disk"
	"github.com/soukhq/souk/store/disk/disktest"
)

// TestNodeStartsOnAFullDisk: a process is started on a disk that has no byte left, and lists and destroys. Once there is room again,
// it is kept for the next time.
func TestNodeStartsOnAFullDisk(t *testing.T) {
	p := &process{t: t, dir: t.TempDir(), world: fake.New(fake.Options{}), reserve: true}
	disktest.Mount(t, p.dir, "256m")
	p.start()
	if _, err := p.cl.CreateApp(t.Context(), app); err != nil {
		t.Fatal(err)
	}
	m, err := p.cl.Launch(t.Context(), app, launch(), client.LaunchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p.waitReserve()
	p.end()
	ballast := filepath.Join(p.dir, "ballast")
	fill(t, ballast)
	if err := disk.GiveUp(p.dir); err != nil {
		t.Fatal(err)
	}
	p.start()
	if list, err := p.cl.Machines(t.Context(), app, client.ListOptions{}); err != nil || len(list) != 1 {
		t.Errorf("%v, %v", list, err)
	}
	if _, err := p.cl.Destroy(t.Context(), app, m.ID, "", true); err != nil {
		t.Error(err)
	}
	p.end()
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	p.start()
	p.waitReserve()
	p.end()
}

// waitReserve waits until room is kept.
func (p *process) waitReserve() {
	p.t.Helper()
	waittest.Until(p.t, "the reserve has its size", func() bool {
		info, err := os.Stat(filepath.Join(p.dir, "reserve"))
		return err == nil && info.Size() > 0
	})
}

// fill writes until nothing more goes.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for size := 1 << 20; size > 0; {
		if _, err := f.Write(make([]byte, size)); errors.Is(err, syscall.ENOSPC) {
			size /= 2
		} else if err != nil {
			t.Fatal(err)
		}
	}
}
