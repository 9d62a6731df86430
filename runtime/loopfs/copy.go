package loopfs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Copy copies a file system in its state at one moment, mounted or not; writers are blocked meanwhile. If this process
// dies, a guard process unblocks them. The copying itself is not in a separate process: one that outlived souk would go
// on writing into the next copy.
func Copy(ctx context.Context, from, to string) error {
	src, err := openAlone(from)
	if err != nil {
		return diskFault(err, from)
	}
	defer src.Close()
	m, err := Mount(from)
	if err != nil {
		return err
	}
	defer m.Close()
	part := to + ".part"
	if err := removeFile(part); err != nil {
		return diskFault(err, to)
	}
	thaw, err := m.freezeWrites(src)
	if err != nil {
		return diskFault(err, from)
	}
	err = errors.Join(copyFile(ctx, src, part), thaw())
	if err == nil {
		err = moveInPlace(part, to)
	}
	if err != nil {
		return errors.Join(diskFault(err, from), removeFile(part))
	}
	return nil
}

// openAlone opens a file and locks it for the duration of a copy: of two concurrent copies, the first to finish would
// unfreeze the file system of both. It is not the lock of lockFile, which a start waits for.
func openAlone(file string) (*os.File, error) {
	f, err := os.OpenFile(file, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	for {
		err = unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLKW, &unix.Flock_t{Type: unix.F_WRLCK})
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// copyFile copies a file: it shares the blocks if the disk supports that, else it keeps holes and makes holes of zeros.
func copyFile(ctx context.Context, src *os.File, to string) (err error) {
	st, err := src.Stat()
	if err != nil {
		return err
	}
	dst, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dst.Close()) }()
	if unix.IoctlFileClone(int(dst.Fd()), int(src.Fd())) == nil {
		return nil
	}
	if err := dst.Truncate(st.Size()); err != nil {
		return err
	}
	// SEEK_DATA takes pages in the page cache for data, even pages that were only read ahead: without this advice,
	// reading the beginning would cause gigabytes that were never written to be read.
	for _, advice := range []int{unix.FADV_DONTNEED, unix.FADV_RANDOM} {
		if err := unix.Fadvise(int(src.Fd()), 0, 0, advice); err != nil {
			return fmt.Errorf("have a file not read ahead: %w", err)
		}
	}
	buf := make([]byte, copyUnit)
	for at := int64(0); at < st.Size(); {
		begin, end, err := dataAfter(src, at, st.Size())
		if err != nil {
			return err
		}
		if err := copyRange(ctx, dst, src, begin, end, buf); err != nil {
			return err
		}
		at = end
	}
	return nil
}

// copyUnit is the bytes read at once.
const copyUnit = 1 << 20

// dataAfter returns the next range of data in a file at or after an offset; both are the file's length if there is
// none.
func dataAfter(f *os.File, at, length int64) (begin, end int64, err error) {
	begin, err = unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
	if errors.Is(err, unix.ENXIO) {
		return length, length, nil
	}
	if err == nil {
		end, err = unix.Seek(int(f.Fd()), begin, unix.SEEK_HOLE)
	}
	return begin, end, err
}

// copyRange copies a range of a file, and skips zeros.
func copyRange(ctx context.Context, dst, src *os.File, at, end int64, buf []byte) error {
	for at < end {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := src.ReadAt(buf[:min(int64(len(buf)), end-at)], at)
		if n == 0 {
			return errors.Join(err, io.ErrUnexpectedEOF)
		}
		for i := 0; i < n; i += zeroUnit {
			piece := buf[i:min(i+zeroUnit, n)]
			if bytes.Equal(piece, zeros[:len(piece)]) {
				continue
			}
			if _, err := dst.WriteAt(piece, at+int64(i)); err != nil {
				return err
			}
		}
		at += int64(n)
	}
	return nil
}

// zeroUnit is the smallest hole that copyRange makes.
const zeroUnit = 64 << 10

var zeros [zeroUnit]byte
