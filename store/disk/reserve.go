// Package disk keeps souk working while the disk of its state is full: to make room, a person lists, stops and
// destroys machines, and these operations write to journals. So a file beside the journals reserves room. A write that
// fails for lack of room gives up a piece of the reserve and is repeated; when nothing is left, the write waits.
// Meanwhile nothing new is accepted. Once the disk has room, the reserve is restored and new machines are accepted
// again.
//
// Only souk's own writes give up pieces, one for each write that failed: so a program that fills the disk does not get
// the whole reserve.
package disk

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/fault"
)

// The codes of this package's errors.
const (
	codeDiskFull fault.Code = "disk_full" // the disk is full
	codeReserve  fault.Code = "reserve"   // the disk's reserve cannot be kept or given up
)

const (
	file = "reserve"
	// Bytes is the size of a complete reserve: two new logs of a worker's journal, which a start needs, and room for
	// journals to grow.
	Bytes = 32 << 20
	piece = 1 << 20
	low   = 8 << 20 // with less free room besides the reserve, nothing new is accepted

	lookEvery  = time.Second            // how often the free room is checked
	againEvery = 100 * time.Millisecond // how often a write that waits for room is retried
)

// GiveUp removes the reserve of a directory if its disk has less than Bytes free. It is called before anything in the
// directory is opened.
func GiveUp(dir string) error {
	path := filepath.Join(dir, file)
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	free, err := freeBytes(dir)
	if err != nil || free >= Bytes {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fault.Wrap(err, fault.Unavailable, codeReserve,
			"the disk of %s is full, and the space that souk reserves in %s for that cannot be freed", dir, path)
	}
	return nil
}

// Reserve is the room that one process reserves. Its methods may be called from many goroutines; a nil Reserve
// reserves nothing.
type Reserve struct {
	dir  string
	log  *slog.Logger
	full atomic.Pointer[fault.Error]

	mu      sync.Mutex    // guards the file and the fields below
	held    int64         // bytes of the file
	unable  bool          // the file system cannot reserve room
	keeping chan struct{} // open while Keep runs; nil before that
}

// Open makes the reserve of a directory, as far as its disk has room.
func Open(dir string, log *slog.Logger) *Reserve {
	r := &Reserve{dir: dir, log: log}
	if info, err := os.Lstat(r.filePath()); err == nil {
		r.held = info.Size()
	}
	r.checkSpace()
	return r
}

func (r *Reserve) filePath() string { return filepath.Join(r.dir, file) }

// Full returns why nothing new is accepted; nil if it is.
func (r *Reserve) Full() error {
	if r == nil {
		return nil
	}
	if e := r.full.Load(); e != nil {
		return e
	}
	return nil
}

// Write carries out a write, and repeats it while it fails because the disk is full. A failed write must leave nothing
// that a repetition does not replace. Without Keep it does not wait for room.
func (r *Reserve) Write(write func() error) error {
	err := write()
	for r != nil && IsFull(err) && r.giveOrWait() {
		err = write()
	}
	return err
}

// IsFull reports whether a write failed because the disk, or its user's quota, is full.
func IsFull(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

// giveOrWait gives up a piece of the reserve, or waits if none is left. It reports whether to repeat the write.
func (r *Reserve) giveOrWait() bool {
	gave, keeping := r.giveUp()
	if gave {
		return true
	}
	if keeping == nil {
		return false
	}
	again := time.NewTimer(againEvery)
	defer again.Stop()
	select {
	case <-again.C:
		return true
	case <-keeping:
		return false
	}
}

func (r *Reserve) giveUp() (gave bool, keeping <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held > 0 {
		left := max(0, r.held-piece)
		if err := os.Truncate(r.filePath(), left); err != nil {
			r.log.Error("the disk is full, and the room that is kept for that cannot be given up", "dir", r.dir,
				"err", err)
		} else {
			r.held, gave = left, true
		}
	}
	r.judgeFree(0)
	return gave, r.keeping
}

// Keep checks the free room, and restores the reserve, until ctx ends. Waiting writes then fail.
func (r *Reserve) Keep(ctx context.Context) {
	if r == nil {
		return
	}
	keeping := make(chan struct{})
	defer close(keeping)
	r.mu.Lock()
	r.keeping = keeping
	r.mu.Unlock()
	every := time.NewTicker(lookEvery)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
			r.checkSpace()
		}
	}
}

// checkSpace restores the reserve if there is room for twice what it lacks, and updates Full.
func (r *Reserve) checkSpace() {
	r.mu.Lock()
	defer r.mu.Unlock()
	free, err := freeBytes(r.dir)
	if err != nil {
		r.log.Warn("it is not known how full the disk is", "err", err)
		return
	}
	if lacks := Bytes - r.held; lacks > 0 && free >= lacks+Bytes && !r.unable {
		if err := r.growFile(); err == nil {
			free -= lacks
		} else if !IsFull(err) {
			r.unable = true
			r.log.Warn("no room can be kept for a full disk", "dir", r.dir, "err", err)
		}
	}
	r.judgeFree(free)
}

// growFile grows the file to its full size, or leaves it unchanged.
func (r *Reserve) growFile() error {
	f, err := os.OpenFile(r.filePath(), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	if err = unix.Fallocate(int(f.Fd()), 0, 0, Bytes); err != nil {
		err = errors.Join(err, f.Truncate(r.held))
	} else {
		r.held = Bytes
	}
	return errors.Join(err, f.Close())
}

// judgeFree decides whether new things are accepted. The reason for a full disk stays unchanged until then.
func (r *Reserve) judgeFree(free int64) {
	was := r.full.Load()
	full := r.held < Bytes && !r.unable || free < low || was != nil && free < Bytes
	switch {
	case full && was == nil:
		e := fault.New(fault.Exhausted, codeDiskFull,
			"the disk of %s is full: %d MiB are free, and souk has %d of the %d MiB that it reserves; souk accepts "+
				"nothing new until %d MiB are free: destroy machines and volumes, or remove other files",
			r.dir, free>>20, r.held>>20, Bytes>>20, 2*Bytes>>20)
		e.Scope, e.Resource, e.RetryAfter = fault.ScopeHost, "disk", 5*time.Second
		r.full.Store(e)
		r.log.Error("the disk is full: nothing new is taken", "dir", r.dir, "free_mb", free>>20, "kept_mb", r.held>>20)
	case !full && was != nil:
		r.full.Store(nil)
		r.log.Info("the disk has room again: new things are taken", "dir", r.dir, "free_mb", free>>20)
	}
}

func freeBytes(dir string) (int64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, fault.Wrap(err, fault.Unavailable, codeReserve, "the free space on the disk of %s cannot be read",
			dir)
	}
	return int64(s.Bavail) * s.Bsize, nil
}
