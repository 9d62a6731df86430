package oci

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	goruntime "runtime"
	"time"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/reaper/engine"
	"github.com/soukhq/souk/runtime/reaper/space"
	"github.com/soukhq/souk/runtime/reaper/spec"
	"github.com/soukhq/souk/runtime/reaper/users"
)

// tryPatience bounds a runtime's trial container, whose program ends at once. The trial takes 20 ms, with runsc 100.
const tryPatience = 3 * time.Second

// tryUsers is the host uid of the trial container's root: of no user and no machine.
const tryUsers = 2_000_000_000

// Try runs a container by an OCI runtime the way machines run, in a user namespace and a cgroup, and returns why it
// fails, nil if it succeeds. Its program ends at once, and nothing is left behind.
func Try(ctx context.Context, path string) error {
	return tryAs(ctx, path, fmt.Sprintf("souk-try-%08x", rand.Uint32()))
}

// tryAs is Try with a container id, which must be unique on this host.
func tryAs(ctx context.Context, path, id string) (err error) {
	program := exitProgram()
	if program == nil {
		return nil // no test program for this processor
	}
	ctx, cancel := context.WithTimeout(ctx, tryPatience)
	defer cancel()
	dir := filepath.Join(space.Dir, id) // the container's root may enter this directory
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	root := filepath.Join(dir, "root")
	for _, d := range []string{space.Dir, dir, root, filepath.Join(root, "dev"), filepath.Join(root, "proc"),
		filepath.Join(root, "sys")} {
		if err := os.Mkdir(d, 0o755); err != nil && !(d == space.Dir && os.IsExist(err)) {
			return unreadyError(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "end"), program, 0o755); err != nil {
		return unreadyError(err)
	}
	full, err := spec.New(spec.Container{Hostname: "try", Argv: []string{"/end"}, Env: []string{}, Rootfs: root,
		IDs: []users.ID{{Inside: 0, Outside: tryUsers, Size: 65536}}, Cgroup: "/" + id})
	if err != nil {
		return err
	}
	raw, err := json.Marshal(full)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "config.json"), raw, 0o600)
	}
	if err != nil {
		return unreadyError(err)
	}
	return engine.Engine{Path: path, State: filepath.Join(dir, "state")}.Run(ctx, id, dir)
}

func unreadyError(err error) error {
	return fault.Wrap(err, fault.Unavailable, runtime.CodeContainers, "the container for the test cannot be prepared")
}

// exitProgram returns a program that ends at once and needs no files: an ELF file with three instructions. nil: this
// processor is not supported.
func exitProgram() []byte {
	var machine uint16
	var code []byte
	switch goruntime.GOARCH {
	case "amd64":
		machine, code = 62, []byte{0x31, 0xff, 0xb8, 60, 0, 0, 0, 0x0f, 0x05} // exit(0)
	case "arm64":
		machine = 183
		for _, i := range []uint32{0xd2800000, 0xd2800ba8, 0xd4000001} { // exit(0)
			code = binary.LittleEndian.AppendUint32(code, i)
		}
	default:
		return nil
	}
	const base, head, segment = 0x400000, 64, 56
	le := binary.LittleEndian
	b := append([]byte("\x7fELF\x02\x01\x01"), make([]byte, 9)...)
	b = le.AppendUint16(b, 2) // ET_EXEC
	b = le.AppendUint16(b, machine)
	b = le.AppendUint32(b, 1)
	b = le.AppendUint64(b, base+head+segment) // entry point
	b = le.AppendUint64(b, head)              // offset of the program headers
	b = le.AppendUint64(b, 0)
	b = le.AppendUint32(b, 0)
	for _, n := range []uint16{head, segment, 1, 0, 0, 0} {
		b = le.AppendUint16(b, n)
	}
	b = le.AppendUint32(b, 1) // PT_LOAD
	b = le.AppendUint32(b, 5) // readable and executable
	size := uint64(head + segment + len(code))
	for _, n := range []uint64{0, base, base, size, size, 0x10000} {
		b = le.AppendUint64(b, n)
	}
	return append(b, code...)
}
