package worker

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime/loopfs"
)

// disks are the storage of volumes and their snapshots: directories, or, if sized, file systems in files, which
// enforce their size. A volume keeps the form in which it was made.
type disks struct {
	worker cluster.WorkerID
	dir    string
	sized  bool
}

// imageSuffix is the suffix of a file with a file system.
const imageSuffix = ".ext4"

// carryOut makes, copies and removes the storage of volumes. Each step may be repeated: new files are made beside
// their place and renamed.
func (d disks) carryOut(ctx context.Context, kind string, t lifecycle.VolumeTarget) (any, error) {
	at := d.pathOf(d.volumeBase(t.Volume.ID))
	switch kind {
	case lifecycle.EffVolumeMake:
		err := d.makeVolume(ctx, t)
		return isImage(d.volumeAt(t.Volume.ID)), err
	case lifecycle.EffVolumeRemove:
		return nil, d.removeVolume(t.Volume.ID)
	case lifecycle.EffVolumeCopy:
		return d.snapshotVolume(ctx, at, t)
	case lifecycle.EffVolumeGrow:
		if !isImage(at) {
			return false, nil
		}
		return loopfs.Grow(ctx, at, bytesOf(t.Volume.SizeGB), bytesOf(t.GrowGB))
	}
	return nil, fault.New(fault.Internal, codeEffect, "the worker knows no effect %q", kind)
}

func bytesOf(gb int) int64 { return int64(gb) << 30 }

// removeVolume removes a volume, its unfinished parts, and its snapshots.
func (d disks) removeVolume(volume string) error {
	base := d.volumeBase(volume)
	begun, err := filepath.Glob(base + ".*")
	for _, at := range append(begun, base, d.snapshotBase(volume, "")) {
		err = errors.Join(err, os.RemoveAll(at))
	}
	return diskError(err)
}

func isImage(at string) bool { return strings.HasSuffix(at, imageSuffix) }

// pathOf returns the path of a volume or snapshot: a directory of that name, or a file with a file system.
func (disks) pathOf(base string) string {
	if _, err := os.Lstat(base + imageSuffix); err == nil {
		return base + imageSuffix
	}
	return base
}

// settleVolume prepares a volume for mounting: it completes a growth that was not possible while the volume was in
// use.
func (d disks) settleVolume(ctx context.Context, volume string) error {
	if at := d.volumeAt(volume); isImage(at) {
		return loopfs.Settle(ctx, at)
	}
	return nil
}

func (d disks) makeVolume(ctx context.Context, t lifecycle.VolumeTarget) error {
	base := d.volumeBase(t.Volume.ID)
	if _, err := os.Stat(d.pathOf(base)); err == nil {
		return nil
	}
	from := ""
	switch {
	case t.Snapshot != "":
		if from = d.findSnapshot(t.Snapshot); from == "" {
			return fault.New(fault.NotFound, codeSnapshotNotFound,
				"snapshot %s not found on worker %s; a volume can be made from a snapshot only where it lies",
				t.Snapshot, d.worker)
		}
	case t.SourceVolume != "":
		from = d.volumeAt(t.SourceVolume)
		if _, err := os.Stat(from); err != nil {
			return fault.New(fault.NotFound, fault.CodeVolumeNotFound,
				"volume %s not found on worker %s; a volume can be copied only where it lies", t.SourceVolume, d.worker)
		}
	}
	if err := diskError(os.MkdirAll(filepath.Dir(base), 0o700)); err != nil {
		return err
	}
	switch size := bytesOf(t.Volume.SizeGB); {
	case isImage(from):
		return d.makeOf(ctx, from, base+imageSuffix, size)
	case !d.sized:
		return fillDirectory(ctx, from, base)
	case from == "":
		return loopfs.Make(ctx, base+imageSuffix, size)
	default:
		return d.makeFrom(ctx, from, base+imageSuffix, size)
	}
}

// makeOf makes a volume from a copy of another's file system.
func (disks) makeOf(ctx context.Context, from, to string, size int64) error {
	st, err := os.Stat(from)
	if err != nil {
		return diskError(err)
	}
	if st.Size() > size {
		return fault.New(fault.Invalid, fault.CodeSize,
			"the volume or snapshot to copy has %d GB; ask for at least as much", st.Size()>>30)
	}
	part := to + ".made"
	err = loopfs.Copy(ctx, from, part)
	if err == nil {
		_, err = loopfs.Grow(ctx, part, st.Size(), size)
	}
	return finishVolume(err, part, to)
}

// finishVolume renames a complete volume to its final name, and removes an incomplete one.
func finishVolume(err error, part, to string) error {
	if err == nil {
		err = diskError(os.Rename(part, to))
	}
	if err != nil {
		err = errors.Join(err, os.RemoveAll(part))
	}
	return err
}

// makeFrom makes a sized volume from a directory.
func (disks) makeFrom(ctx context.Context, from, to string, size int64) error {
	part := to + ".made"
	err := loopfs.Make(ctx, part, size)
	if err == nil {
		err = copyInto(ctx, from, part)
	}
	return finishVolume(err, part, to)
}

// copyInto copies a directory into the file system of a file.
func copyInto(ctx context.Context, from, file string) (err error) {
	m, err := loopfs.Mount(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	into, err := os.Open(m.Dir())
	if err != nil {
		return diskError(err)
	}
	defer into.Close()
	cp := exec.CommandContext(ctx, "cp", "-a", from+"/.", "/proc/self/fd/3/.")
	cp.ExtraFiles = []*os.File{into}
	if out, err := cp.CombinedOutput(); err != nil {
		return copyError(err, from, out)
	}
	return nil
}

func copyError(err error, from string, said []byte) error {
	return fault.Wrap(err, fault.Unavailable, fault.CodeDisk, "copying %s failed (%s)", filepath.Base(from), said)
}

// fillDirectory makes directory dir with the contents of from ("" for none).
func fillDirectory(ctx context.Context, from, dir string) error {
	part := dir + ".part"
	if err := cmp.Or(os.RemoveAll(part), os.MkdirAll(part, 0o700)); err != nil {
		return diskError(err)
	}
	if from != "" {
		// cp keeps owners, modes, links and holes, and shares blocks if the file system can.
		if out, err := exec.CommandContext(ctx, "cp", "-a", "--reflink=auto", from+"/.",
			part).CombinedOutput(); err != nil {
			return copyError(err, from, out)
		}
	}
	return diskError(os.Rename(part, dir))
}

func (d disks) snapshotVolume(ctx context.Context, from string, t lifecycle.VolumeTarget) (any, error) {
	to := d.snapshotBase(t.Volume.ID, t.Snapshot)
	if isImage(from) {
		to += imageSuffix
	}
	if _, err := os.Stat(to); err != nil {
		if err := diskError(os.MkdirAll(filepath.Dir(to), 0o700)); err != nil {
			return nil, err
		}
		if isImage(from) {
			err = loopfs.Copy(ctx, from, to)
		} else {
			err = fillDirectory(ctx, from, to)
		}
		if err != nil {
			return nil, err
		}
	}
	size, err := treeSize(to)
	if err != nil {
		return nil, diskError(err)
	}
	return machine.Snapshot{ID: t.Snapshot, Size: size, VolumeSize: bytesOf(t.Volume.SizeGB),
		CreatedAt: time.Now().UTC(), Status: "created", RetentionDays: t.Volume.SnapshotRetention}, nil
}

// treeSize returns the bytes in a directory, or the disk space of a file.
func treeSize(at string) (int64, error) {
	if isImage(at) {
		var st unix.Stat_t
		err := unix.Stat(at, &st)
		return st.Blocks * 512, err
	}
	var n int64
	err := filepath.WalkDir(at, func(_ string, d fs.DirEntry, err error) error {
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

func (d disks) snapshotBase(volume, id string) string {
	return filepath.Join(d.dir, "snapshots", volume, id)
}

func (d disks) volumeBase(id string) string { return filepath.Join(d.dir, "volumes", id) }

// volumeAt returns the directory of a volume, or the file with its file system.
func (d disks) volumeAt(id string) string { return d.pathOf(d.volumeBase(id)) }

func (d disks) findSnapshot(id string) string {
	for _, name := range []string{id, id + imageSuffix} {
		found, err := filepath.Glob(filepath.Join(d.dir, "snapshots", "*", name))
		if err == nil && len(found) == 1 {
			return found[0]
		}
	}
	return ""
}

func diskError(err error) error {
	if err == nil {
		return nil
	}
	return fault.Wrap(err, fault.Unavailable, fault.CodeDisk, "an operation on the worker's disk failed")
}
