package worker_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime/loopfs"
	"github.com/soukhq/souk/worker"
)

// TestRemovedVolumesLeaveNothing: of a volume that could not be made, and of one that has been removed, nothing is left.
func TestRemovedVolumesLeaveNothing(t *testing.T) {
	for _, sized := range []bool{false, true} {
		t.Run(map[bool]string{false: "directory", true: "sized"}[sized], func(t *testing.T) {
			if err := loopfs.Able(); sized && err != nil {
				if os.Getenv("CI") == "true" {
					t.Fatal(err)
				}
				t.Skip(err)
			}
			dir := t.TempDir()
			do := func(kind string, target lifecycle.VolumeTarget) any {
				t.Helper()
				data, err := worker.CarryOut(t.Context(), dir, sized, kind, target)
				if err != nil {
					t.Fatal(err)
				}
				return data
			}
			vol := func(id string, gb int) machine.Volume { return machine.Volume{ID: id, SizeGB: gb} }
			one := lifecycle.VolumeTarget{Volume: vol("vol_1", 1)}
			for range 2 { // each can be repeated
				if held := do(lifecycle.EffVolumeMake, one); held != sized {
					t.Errorf("its size is held: %v", held)
				}
			}
			one.Snapshot = "vs_1"
			do(lifecycle.EffVolumeCopy, one)
			do(lifecycle.EffVolumeCopy, one)
			one.GrowGB = 2
			do(lifecycle.EffVolumeGrow, one)
			do(lifecycle.EffVolumeGrow, one)

			two := lifecycle.VolumeTarget{Volume: vol("vol_2", 1<<20), Snapshot: "vs_1"}
			_, err := worker.CarryOut(t.Context(), dir, sized, lifecycle.EffVolumeMake, two)
			if sized && !fault.Is(err, fault.Exhausted) {
				t.Errorf("one of 1 PiB: %v", err)
			}
			two = lifecycle.VolumeTarget{Volume: vol("vol_3", 1), SourceVolume: "vol_1"}
			_, err = worker.CarryOut(t.Context(), dir, sized, lifecycle.EffVolumeMake, two)
			if sized && !fault.Is(err, fault.Invalid) {
				t.Errorf("one smaller than what it is made of: %v", err)
			}
			if left := entries(t, dir); sized && len(left) != 2 {
				t.Errorf("there are %q, not the volume and its snapshot", left)
			}
			for _, begun := range []string{"vol_1.ext4.part", "vol_1.ext4.made"} { // of who was killed
				if err := os.WriteFile(filepath.Join(dir, "volumes", begun), []byte("x"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			for _, id := range []string{"vol_1", "vol_2", "vol_3"} {
				do(lifecycle.EffVolumeRemove, lifecycle.VolumeTarget{Volume: vol(id, 1)})
			}
			if left := entries(t, dir); len(left) != 0 {
				t.Errorf("left behind: %q", left)
			}
		})
	}
}

// entries lists volumes and snapshots.
func entries(t *testing.T, dir string) (out []string) {
	t.Helper()
	for _, pattern := range []string{"volumes/*", "snapshots/*/*"} {
		found, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, found...)
	}
	return out
}
