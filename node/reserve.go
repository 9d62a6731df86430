package node

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/fault"
)

// A full disk must not end souk for good: whoever makes room wants to list, stop and destroy, and each of these is
// written down. So a file beside the journals holds room, which is given up when souk starts on a disk that has none,
// and taken again when there is.

const (
	reserveFile  = "reserve"
	reserveBytes = 32 << 20         // two new logs of a worker's journal, and room for journals to grow
	reserveLook  = 10 * time.Second // how often it is looked whether there is room again
)

// GiveUpReserve removes the reserve of a directory where its disk has less than that left. It is called before
// anything in the directory is opened.
func GiveUpReserve(dir string) error {
	path := filepath.Join(dir, reserveFile)
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	free, err := freeBytes(dir)
	if err != nil || free >= reserveBytes {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fault.Wrap(err, fault.Unavailable, "reserve",
			"the disk of %s is full, and the room that is kept for that in %s cannot be given up", dir, path)
	}
	return nil
}

// takeReserve makes the reserve, where it is not there and the disk has plenty.
func (n *Node) takeReserve() {
	path := n.below(reserveFile)
	free, err := freeBytes(n.o.Dir)
	if _, there := os.Lstat(path); there == nil || err != nil {
		return
	}
	if free < 4*reserveBytes {
		n.o.Log.Warn("the disk is nearly full, and no room is kept to stop and destroy machines: make room",
			"dir", n.o.Dir, "free_mb", free>>20, "wanted_mb", 4*reserveBytes>>20)
		return
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		err = unix.Fallocate(int(f.Fd()), 0, 0, reserveBytes)
		if err = errors.Join(err, f.Close()); err != nil {
			err = errors.Join(err, os.Remove(path))
		}
	}
	if err != nil {
		n.o.Log.Warn("no room can be kept for a full disk", "dir", n.o.Dir, "err", err)
	}
}

// keepReserve takes the reserve again once there is room, until ctx ends.
func (n *Node) keepReserve(ctx context.Context) {
	if !n.o.Reserve {
		return
	}
	look := time.NewTicker(reserveLook)
	defer look.Stop()
	for {
		n.takeReserve()
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
	}
}

func freeBytes(dir string) (int64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, fault.Wrap(err, fault.Unavailable, "reserve", "the disk of %s does not tell how full it is", dir)
	}
	return int64(s.Bavail) * s.Bsize, nil
}
