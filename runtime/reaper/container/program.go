package container

import (
	"bytes"
	"debug/elf"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	goruntime "runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/reaper/rootfs"
)

// headSize is how many bytes of a program Linux reads to determine its format.
const headSize = 256

// emulated is where Linux lists interpreters registered for other binary formats.
const emulated = "/proc/sys/fs/binfmt_misc"

// Executable refuses an existing program that Linux cannot execute: a script with a missing interpreter, or a binary
// for another processor. An init would report the first only as a missing file, and pass the second to a shell. name is
// the requested program, at its path in the root, and where describes the root ("in the image"); covered reports
// whether a mount or file of the machine is at a path. An unreadable program is accepted: execve will report it.
func Executable(root, at, name, where string, covered func(string) bool) error {
	head := headOf(root, at)
	if m, is := machineOf(head); is {
		if runs := hostProcessors()[goruntime.GOARCH]; runs != nil && !slices.Contains(runs, m) && !canEmulate() {
			return fault.New(fault.Precondition, runtime.CodeNoProgram,
				"%s %s is a program for %s, and this host is %s: build it for that", name, where, nameOf(m),
				goruntime.GOARCH)
		}
		return nil
	}
	line, is := bytes.CutPrefix(head, []byte("#!"))
	if !is {
		return nil
	}
	line, _, whole := bytes.Cut(line, []byte("\n"))
	if !whole && len(head) == headSize {
		return nil // longer than Linux reads
	}
	fields := strings.FieldsFunc(string(line), func(c rune) bool { return c == ' ' || c == '\t' || c == 0 })
	if len(fields) == 0 || !path.IsAbs(fields[0]) {
		return nil // execve resolves a relative path
	}
	interpreter := fields[0]
	_, err := rootfs.Program(root, interpreter, "/", "")
	if err == nil || !errors.Is(err, fs.ErrNotExist) || covered(interpreter) {
		return nil
	}
	if plain, crlf := strings.CutSuffix(interpreter, "\r"); crlf {
		return fault.New(fault.Precondition, runtime.CodeNoProgram,
			"the script %s %s has lines that end in CRLF, so that its interpreter is %q: save it with LF, then it "+
				"is %s", name, where, interpreter, plain)
	}
	return fault.New(fault.Precondition, runtime.CodeNoProgram,
		"the interpreter of the script %s does not exist %s: its first line names %s; install that, or change the "+
			"line",
		name, where, interpreter)
}

// headOf returns the first bytes of a file of the root, nothing if it cannot be read.
func headOf(root, at string) []byte {
	f, err := rootfs.Open(root, at, unix.O_RDONLY|unix.O_NONBLOCK)
	if err != nil {
		return nil
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return nil
	}
	head := make([]byte, headSize)
	n, _ := io.ReadFull(f, head)
	return head[:n]
}

// machineOf returns the processor that a program is for; is is false if it is not an ELF file.
func machineOf(head []byte) (m elf.Machine, is bool) {
	if len(head) < 20 || !bytes.HasPrefix(head, []byte(elf.ELFMAG)) {
		return 0, false
	}
	if elf.Data(head[elf.EI_DATA]) == elf.ELFDATA2MSB {
		return elf.Machine(uint16(head[18])<<8 | uint16(head[19])), true
	}
	return elf.Machine(uint16(head[19])<<8 | uint16(head[18])), true
}

// hostProcessors returns the processors whose programs a host can run, by GOARCH.
func hostProcessors() map[string][]elf.Machine {
	return map[string][]elf.Machine{"amd64": {elf.EM_X86_64, elf.EM_386}, "arm64": {elf.EM_AARCH64, elf.EM_ARM}}
}

// canEmulate reports whether the host may run programs of other processors, for instance by qemu.
func canEmulate() bool {
	all, err := os.ReadDir(emulated)
	return err == nil && slices.ContainsFunc(all, func(d os.DirEntry) bool {
		return d.Name() != "register" && d.Name() != "status"
	})
}

// nameOf returns the name that images use for a processor.
func nameOf(m elf.Machine) string {
	for name, known := range hostProcessors() {
		if known[0] == m {
			return name
		}
	}
	return strings.ToLower(strings.TrimPrefix(m.String(), "EM_"))
}
