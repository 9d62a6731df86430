package output

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"runtime/debug"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// spoolFile is one file of the spool. Its first page is mapped, so that changing it needs no system call and survives a
// kill of this process:
//
//	0     the end of the content, updated by the kernel during splice
//	128   a head
//	256   another head; the one with the greater number is valid, so that one is always complete
//	4096  the content
type spoolFile struct {
	file *os.File
	fd   int
	page []byte
	end  int64 // end of the content
	head head
	n    uint64 // the number of the valid head
}

// head describes the owner and the state of the content.
type head struct {
	src   Source // Machine is "" if the file is free
	start int64  // offset of the content that is not logged, except in lines with stamp
	stamp int64  // of the lines being written; nanoseconds
	bytes int64  // size of each log file
	files int    // number of log files kept
}

const (
	contentAt = 4096
	headSize  = 128
)

func openSpoolFile(path string) (f *spoolFile, err error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open a file of the spool: %w", err)
	}
	f = &spoolFile{file: file, fd: int(file.Fd()), end: contentAt}
	st, err := file.Stat()
	if err == nil && st.Size() < contentAt { // the page needs disk space before it is mapped
		_, err = file.WriteAt(make([]byte, contentAt), 0)
	}
	if err == nil {
		f.page, err = unix.Mmap(f.fd, 0, contentAt, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open a file of the spool: %w", err), file.Close())
	}
	f.end = int64(binary.NativeEndian.Uint64(f.page))
	for i := range uint64(2) {
		if h, n := decodeHead(f.headSlot(i)); n > f.n {
			f.head, f.n = h, n
		}
	}
	if f.head.start < contentAt || f.head.start > f.end || f.end > max(contentAt, st.Size()) {
		f.head = head{}
	}
	return f, nil
}

func (f *spoolFile) close() {
	_ = unix.Munmap(f.page) // fails only if it is not mapped
	_ = f.file.Close()
}

var errPage = errors.New("a file of the spool cannot be written: the disk is full or damaged")

// changePage changes the mapped page. If the file system has no space for the change (a copy-on-write file system may
// need some each time), the kernel sends a signal, which becomes an error.
func (f *spoolFile) changePage(change func()) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if recover() != nil {
			err = errPage
		}
	}()
	change()
	return nil
}

// writeHead writes a new head.
func (f *spoolFile) writeHead(h head) error {
	return f.changePage(func() {
		encodeHead(f.headSlot(f.n+1), h, f.n+1)
		f.head, f.n = h, f.n+1
	})
}

// headSlot returns the place of the head with a number.
func (f *spoolFile) headSlot(n uint64) []byte {
	at := headSize * (1 + n%2)
	return f.page[at : at+headSize : at+headSize]
}

// clearContent drops the content of a free file.
func (f *spoolFile) clearContent() error { return f.endAt(contentAt) }

func (f *spoolFile) endAt(n int64) error {
	return f.changePage(func() {
		atomic.StoreInt64(f.endWord(), n)
		f.end = n
	})
}

// endWord returns the place where the file stores the end of its content.
func (f *spoolFile) endWord() *int64 { return (*int64)(unsafe.Pointer(&f.page[0])) }

// moveFromPipe makes the kernel move data from the pipe to the end of the content, at most n bytes.
func (f *spoolFile) moveFromPipe(pipe, n int) (int, error) {
	m, err := unix.Splice(pipe, nil, f.fd, f.endWord(), n, unix.SPLICE_F_NONBLOCK)
	if err != nil {
		return 0, err
	}
	f.end += m
	return int(m), nil
}

// appendBytes appends b to the content of a free file.
func (f *spoolFile) appendBytes(b []byte) error {
	if _, err := f.file.WriteAt(b, f.end); err != nil {
		return fmt.Errorf("write a file of the spool: %w", err)
	}
	return f.endAt(f.end + int64(len(b)))
}

// readTail reads the end of the content into b.
func (f *spoolFile) readTail(b []byte) error {
	if _, err := f.file.ReadAt(b, f.end-int64(len(b))); err != nil {
		return fmt.Errorf("read a file of the spool: %w", err)
	}
	return nil
}

func encodeHead(b []byte, h head, n uint64) {
	clear(b)
	p := binary.LittleEndian.AppendUint64(b[4:4], n)
	p = binary.LittleEndian.AppendUint64(p, uint64(h.start))
	p = binary.LittleEndian.AppendUint64(p, uint64(h.stamp))
	p = binary.LittleEndian.AppendUint64(p, h.src.Attempt)
	p = binary.LittleEndian.AppendUint64(p, uint64(h.bytes))
	p = binary.LittleEndian.AppendUint32(p, uint32(h.files))
	p = append(p, byte(len(h.src.Stream)))
	p = append(p, h.src.Stream...)
	p = append(p, byte(len(h.src.Machine)))
	_ = append(p, h.src.Machine...) // fits: the two have at most 6 and 64 bytes
	binary.LittleEndian.PutUint32(b, crc32.ChecksumIEEE(b[4:]))
}

// decodeHead returns number 0 if b is not a valid head.
func decodeHead(b []byte) (h head, n uint64) {
	if binary.LittleEndian.Uint32(b) != crc32.ChecksumIEEE(b[4:]) {
		return head{}, 0
	}
	h.start = int64(binary.LittleEndian.Uint64(b[12:]))
	h.stamp = int64(binary.LittleEndian.Uint64(b[20:]))
	h.src.Attempt = binary.LittleEndian.Uint64(b[28:])
	h.bytes = int64(binary.LittleEndian.Uint64(b[36:]))
	h.files = int(binary.LittleEndian.Uint32(b[44:]))
	text := func(b []byte) (string, []byte) {
		n := int(b[0])
		if n > len(b)-2 {
			return "", []byte{0, 0}
		}
		return string(b[1 : 1+n]), b[1+n:]
	}
	var rest []byte
	h.src.Stream, rest = text(b[48:])
	h.src.Machine, _ = text(rest)
	return h, binary.LittleEndian.Uint64(b[4:])
}
