package container

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"strconv"
	"syscall"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime/reaper/spec"
	"github.com/soukhq/souk/runtime/reaper/users"
)

// bare measures the OCI runtime, or the kernel alone, with the same program in the same root.
type bare struct {
	dir     string
	busybox string
	runs    int
}

func newBare(dir string) (*bare, error) {
	path, err := exec.LookPath("busybox")
	_, lacks := exec.LookPath("runc")
	if err != nil || lacks != nil || os.Geteuid() != 0 {
		return nil, fault.New(fault.Precondition, fault.CodeBench,
			"this measures containers as root, with runc and a static busybox: apt install runc busybox-static")
	}
	b := &bare{dir: dir, busybox: path}
	for _, d := range []string{"root/bin", "root/proc", "root/dev", "root/sys", "root/tmp", "root/etc", "runc"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil { //nolint:gosec // a root that others enter
			return nil, fault.Wrap(err, fault.Unavailable, fault.CodeBench,
				"the benchmark's directory cannot be written")
		}
	}
	raw, err := os.ReadFile(path)
	for _, name := range []string{"busybox", "sleep", "true", "httpd"} {
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, "root/bin", name), raw, 0o755) //nolint:gosec // a program
		}
	}
	if err == nil {
		err = os.Chmod(dir, 0o755) //nolint:gosec // the container's users pass through
	}
	if err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, fault.CodeBench, "busybox cannot be copied")
	}
	return b, nil
}

// Image returns an image with busybox of a name, as "docker save" writes it. Its root is made in dir, which must not
// exist.
func Image(dir, name string) (io.Reader, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, fault.CodeBench, "the benchmark's directory cannot be written")
	}
	b, err := newBare(dir)
	if err != nil {
		return nil, err
	}
	layer, err := b.packLayer()
	if err != nil {
		return nil, err
	}
	return dockerArchive(name, layer)
}

func (b *bare) close() {}

func (b *bare) rootPath() string { return filepath.Join(b.dir, "root") }

// writeBundle writes the specification that a machine of the benchmark has, with another program.
func (b *bare) writeBundle(argv ...string) (string, error) {
	b.runs++
	dir := filepath.Join(b.dir, "bundle-"+strconv.Itoa(b.runs))
	c, err := spec.New(spec.Container{Argv: argv, Env: []string{"PATH=/bin"}, Rootfs: b.rootPath(),
		IDs: []users.ID{{Inside: 0, Outside: 0, Size: 1 << 16}}, Cgroup: "/souk-bench/bare"})
	if err != nil {
		return "", err
	}
	c.Linux.Resources.Memory = &specs.LinuxMemory{Limit: new(int64(64 << 20))}
	raw, err := json.Marshal(c)
	if err == nil {
		err = os.Mkdir(dir, 0o700)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "config.json"), raw, 0o600)
	}
	return dir, err
}

// callRunc runs a command of the OCI runtime.
func (b *bare) callRunc(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, "runc", append([]string{"--root", filepath.Join(b.dir, "runc")}, args...)...)
	if err := cmd.Run(); err != nil { // no pipes: the container would keep them open
		return fault.Wrap(err, fault.Internal, fault.CodeBench, "runc %s failed", args[0])
	}
	return nil
}

// createStart returns how long `runc create` and `runc start` take.
func (b *bare) createStart(ctx context.Context) (create, start time.Duration, err error) {
	dir, err := b.writeBundle("sleep", "100000")
	if err != nil {
		return 0, 0, err
	}
	begin := time.Now()
	err = b.callRunc(ctx, "create", "--bundle", dir, "bare")
	create = time.Since(begin)
	begin = time.Now()
	if err == nil {
		err = b.callRunc(ctx, "start", "bare")
	}
	start = time.Since(begin)
	return create, start, errors.Join(err, b.callRunc(ctx, "delete", "--force", "bare"))
}

// timeRun returns how long `runc run` takes for a program that ends at once, including the clean-up.
func (b *bare) timeRun(ctx context.Context) (time.Duration, error) {
	dir, err := b.writeBundle("true")
	if err != nil {
		return 0, err
	}
	begin := time.Now()
	err = b.callRunc(ctx, "run", "--bundle", dir, "bare")
	return time.Since(begin), err
}

// timeClone returns how long the kernel takes to make a process in namespaces of its own execute the program.
func (b *bare) timeClone() (time.Duration, error) {
	cmd := exec.Command("/bin/true")
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: b.rootPath(),
		Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC |
			syscall.CLONE_NEWUTS | syscall.CLONE_NEWNET | syscall.CLONE_NEWCGROUP,
		UidMappings: []syscall.SysProcIDMap{{Size: 1 << 16}}, GidMappings: []syscall.SysProcIDMap{{Size: 1 << 16}}}
	begin := time.Now()
	err := cmd.Start()
	took := time.Since(begin)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		err = fault.Wrap(err, fault.Internal, fault.CodeBench, "a program in namespaces of its own did not run")
	}
	return took, err
}

// packLayer returns the root as a tar.
func (b *bare) packLayer() ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	err := errors.Join(w.AddFS(os.DirFS(b.rootPath())), w.Close())
	return out.Bytes(), err
}

// filesLayer returns a layer of small files, of random content.
func filesLayer(rng io.Reader, files, size int) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	buf := make([]byte, size)
	for i := range files {
		if _, err := io.ReadFull(rng, buf); err != nil {
			return nil, err
		}
		h := &tar.Header{Name: fmt.Sprintf("d%d/f%d", i/100, i), Mode: 0o644, Size: int64(size), Typeflag: tar.TypeReg}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(buf); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return out.Bytes(), err
}

// compressLayer compresses a layer as registries do.
func compressLayer(raw []byte) ([]byte, error) {
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestSpeed)
	if err != nil {
		return nil, err
	}
	_, err = w.Write(raw)
	err = errors.Join(err, w.Close())
	return out.Bytes(), err
}

func digestOf(raw []byte) string {
	sum := sha256.Sum256(raw)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// imageConfig returns the document of an image of one layer, which runs sleep.
func imageConfig(layer []byte) ([]byte, error) {
	return json.Marshal(map[string]any{"architecture": goruntime.GOARCH, "os": "linux",
		"config": map[string]any{"Env": []string{"PATH=/bin"}, "Cmd": []string{"sleep", "100000"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{digestOf(layer)}}})
}

// dockerArchive returns an image of one layer as "docker save" writes it.
func dockerArchive(name string, layer []byte) (io.Reader, error) {
	conf, err := imageConfig(layer)
	if err != nil {
		return nil, err
	}
	list, err := json.Marshal([]map[string]any{{"Config": "config.json", "RepoTags": []string{name},
		"Layers": []string{"layer.tar"}}})
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range []struct {
		name string
		data []byte
	}{{"manifest.json", list}, {"config.json", conf}, {"layer.tar", layer}} {
		err = errors.Join(err, w.WriteHeader(&tar.Header{Name: f.name, Mode: 0o644, Size: int64(len(f.data)),
			Typeflag: tar.TypeReg}))
		if err == nil {
			_, err = w.Write(f.data)
		}
	}
	return &out, errors.Join(err, w.Close())
}
