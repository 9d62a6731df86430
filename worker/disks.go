package worker

import (
	"cmp"
	"context"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/lifecycle"
	"github.com/soukhq/souk/machine"
)

// disks are the directories behind volumes and their snapshots.
type disks struct {
	worker cluster.WorkerID
	dir    string
}

// carryOut makes, copies and removes the directories behind volumes. Each step can be repeated: what is made is made
// beside its place and renamed into it.
func (d disks) carryOut(ctx context.Context, kind string, t lifecycle.VolumeTarget) (any, error) {
	dir := d.volumeDir(t.Volume.ID)
	switch kind {
	case lifecycle.EffVolumeMake:
		return nil, d.make(ctx, dir, t)
	case lifecycle.EffVolumeRemove:
		return nil, diskError(cmp.Or(os.RemoveAll(dir), os.RemoveAll(d.snapshotDir(t.Volume.ID, ""))))
	case lifecycle.EffVolumeCopy:
		return d.snapshot(ctx, dir, t)
	}
	return nil, fault.New(fault.Internal, "effect", "the worker knows no effect %q", kind)
}

func (d disks) make(ctx context.Context, dir string, t lifecycle.VolumeTarget) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	from := ""
	switch {
	case t.Snapshot != "":
		if from = d.findSnapshot(t.Snapshot); from == "" {
			return fault.New(fault.NotFound, "snapshot_not_found",
				"snapshot %s not found on worker %s; a volume can be made from a snapshot only where it lies",
				t.Snapshot, d.worker)
		}
	case t.SourceVolume != "":
		from = d.volumeDir(t.SourceVolume)
		if _, err := os.Stat(from); err != nil {
			return fault.New(fault.NotFound, "volume_not_found",
				"volume %s not found on worker %s; a volume can be copied only where it lies", t.SourceVolume, d.worker)
		}
	}
	return d.fill(ctx, from, dir)
}

// fill makes directory dir with the contents of from ("" for none).
func (d disks) fill(ctx context.Context, from, dir string) error {
	part := dir + ".part"
	if err := cmp.Or(os.RemoveAll(part), os.MkdirAll(part, 0o700)); err != nil {
		return diskError(err)
	}
	if from != "" {
		// cp keeps owners, modes, links and holes, and shares blocks where the file system can: better than a copy of
		// our own.
		if out, err := exec.CommandContext(ctx, "cp", "-a", "--reflink=auto", from+"/.",
			part).CombinedOutput(); err != nil {
			return fault.Wrap(err, fault.Unavailable, "disk", "copying %s failed (%s)", filepath.Base(from), out)
		}
	}
	return diskError(os.Rename(part, dir))
}

func (d disks) snapshot(ctx context.Context, dir string, t lifecycle.VolumeTarget) (any, error) {
	to := d.snapshotDir(t.Volume.ID, t.Snapshot)
	if _, err := os.Stat(to); err != nil {
		if err := diskError(os.MkdirAll(filepath.Dir(to), 0o700)); err != nil {
			return nil, err
		}
		if err := d.fill(ctx, dir, to); err != nil {
			return nil, err
		}
	}
	size, err := treeSize(to)
	if err != nil {
		return nil, diskError(err)
	}
	return machine.Snapshot{ID: t.Snapshot, Size: size, VolumeSize: int64(t.Volume.SizeGB) << 30,
		CreatedAt: time.Now().UTC(),
		Status:    "created", RetentionDays: t.Volume.SnapshotRetention}, nil
}

func treeSize(dir string) (int64, error) {
	var n int64
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			n += info.Size()
		}
		return err
	})
	return n, err
}

func (d disks) snapshotDir(volume, id string) string {
	return filepath.Join(d.dir, "snapshots", volume, id)
}

func (d disks) volumeDir(id string) string { return filepath.Join(d.dir, "volumes", id) }

func (d disks) findSnapshot(id string) string {
	found, err := filepath.Glob(filepath.Join(d.dir, "snapshots", "*", id))
	if err != nil || len(found) != 1 {
		return ""
	}
	return found[0]
}

func diskError(err error) error {
	if err == nil {
		return nil
	}
	return fault.Wrap(err, fault.Unavailable, "disk", "the worker's disk does not do what it should")
}
