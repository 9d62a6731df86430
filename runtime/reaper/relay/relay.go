// Package relay is a program of a hundred bytes that executes another. A process that has executed it holds up nobody
// any more, whatever the second execution waits for.
//
// Package syscall forks like vfork(2): until the child has executed a program, the thread that forked stands still in
// the kernel where the Go runtime does not know of it, so that the whole process stops with the next garbage
// collection; and a child that waits for a file system's server cannot be killed. So it first executes this program,
// which is in memory.
package relay

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// The descriptors that the program expects.
const (
	WordFD = 3 // a pipe: closed when the program is executed; a failure writes its negative errno, of WordSize
	DirFD  = 4 // the directory to start in
	SelfFD = 5 // the relay
)

// WordSize is the length of the errno, in bytes, in the order of this processor.
const WordSize = 8

// Path is the relay's path for a child whose directory is that of /proc. Its argv is the program's path followed by
// the program's argv.
const Path = "self/fd/5"

// Open makes the program, in a file that has no path. errors.ErrUnsupported: there is none for this processor.
//
// Whoever runs it may not read it: so the kernel lets its user neither trace it nor look into it.
func Open() (*os.File, error) {
	if len(code) == 0 {
		return nil, errors.ErrUnsupported
	}
	fd, err := unix.MemfdCreate("souk-relay", unix.MFD_CLOEXEC|unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3 all may be executed
		fd, err = unix.MemfdCreate("souk-relay", unix.MFD_CLOEXEC)
	}
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	f := os.NewFile(uintptr(fd), "relay")
	defer f.Close() // what is open for writing cannot be executed
	if _, err := f.Write(image()); err != nil {
		return nil, err
	}
	if err := f.Chmod(0o111); err != nil {
		return nil, err
	}
	end, err := unix.Open("/proc/self/fd/"+strconv.Itoa(fd), unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("open", err)
	}
	return os.NewFile(uintptr(end), "relay"), nil
}

// image is the ELF file: the code, loaded as a whole, and a stack that cannot be executed.
func image() []byte {
	const base, page = 0x400000, 0x10000
	const head, prog = 64, 56 // the sizes of both headers
	start := uint64(head + 2*prog)
	size := start + uint64(len(code))
	h := elf.Header64{Type: uint16(elf.ET_EXEC), Machine: uint16(machine), Version: uint32(elf.EV_CURRENT),
		Entry: base + start, Phoff: head, Ehsize: head, Phentsize: prog, Phnum: 2}
	copy(h.Ident[:], elf.ELFMAG)
	h.Ident[elf.EI_CLASS], h.Ident[elf.EI_DATA] = byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB)
	h.Ident[elf.EI_VERSION] = byte(elf.EV_CURRENT)
	var b bytes.Buffer
	for _, part := range []any{h,
		elf.Prog64{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X), Vaddr: base, Paddr: base,
			Filesz: size, Memsz: size, Align: page},
		elf.Prog64{Type: uint32(elf.PT_GNU_STACK), Flags: uint32(elf.PF_R | elf.PF_W), Align: 16},
		code} {
		_ = binary.Write(&b, binary.LittleEndian, part) // a Buffer takes all
	}
	return b.Bytes()
}
