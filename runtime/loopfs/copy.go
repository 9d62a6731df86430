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

// Copy copies a file system as it is at one moment, mounted or not: what writes into it waits. Should this process end
// meanwhile, another one has it go on. Nobody else copies: what a process of its own had not finished by then would go
// into the copy of who comes next.
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

// openAlone opens a file for as long as one copies it: of two at once, the first to be done would have its file system
// go on for both. It is another lock than that of lockFile, which a start waits for.
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

// copyFile copies a file: the disk shares its blocks where it can, else holes and zeros stay holes.
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
	// What is in the page cache counts as written (SEEK_DATA), also where it was only read ahead: one look at the
	// beginning, and gigabytes that nobody ever wrote are read.
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

// copyUnit is how much is read at once.
const copyUnit = 1 << 20

// dataAfter returns what has been written of a file at or after a place; both are its length where there is no more.
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

// copyRange copies part of a file, but for the zeros in it.
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

// zeroUnit is the smallest hole that is kept.
const zeroUnit = 64 << 10

var zeros [zeroUnit]byte
