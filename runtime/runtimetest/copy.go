package runtimetest

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime"
)

func (h *harness) copier() runtime.Copier {
	c, ok := h.rt.(runtime.Copier)
	if !ok {
		h.Skip("it cannot copy")
	}
	h.ok(h.rt.Prepare(h.ctx(), spec("m", 0)))
	return c
}

func at(id, path string) runtime.Place { return runtime.Place{Machine: id, Path: path} }

// pack makes a tar stream of headers; the content of a file is its name.
func pack(hs ...tar.Header) io.Reader {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range hs {
		if h.Typeflag == tar.TypeReg {
			h.Size = int64(len(h.Name))
		}
		if h.Mode == 0 {
			h.Mode = 0o644
		}
		if err := w.WriteHeader(&h); err != nil {
			panic(err)
		}
		if h.Typeflag == tar.TypeReg {
			_, _ = io.WriteString(w, h.Name)
		}
	}
	_ = w.Close()
	return &b
}

// says returns the output of a script that is run in the machine, or as the machine unless Ephemeral is set.
func (h *harness) says(id, script string) string {
	h.Helper()
	if !h.Ephemeral {
		h.start(sh(id, 1, script))
		h.exitOf(id, 1)
		return strings.Join(h.texts(id, machine.LogQuery{}), "\n")
	}
	var out bytes.Buffer
	argv := []string{"sh", "-c", script}
	_, err := h.rt.Exec(h.ctx(), id, runtime.ExecRequest{Argv: argv, Stdout: &out, Stderr: &out})
	h.ok(err)
	return out.String()
}

func (h *harness) list(r io.Reader) []string {
	h.Helper()
	var out []string
	t := tar.NewReader(r)
	for {
		e, err := t.Next()
		if err == io.EOF {
			slices.Sort(out)
			return out
		}
		h.ok(err)
		b, err := io.ReadAll(t)
		h.ok(err)
		out = append(out, strings.TrimSpace(string(e.Typeflag)+" "+e.Name+" "+e.Linkname+string(b)))
	}
}

func testCopy(h *harness) {
	c := h.copier()
	if h.Ephemeral {
		h.start(spec("m", 1, "sleep", "1000"))
	}
	h.ok(c.CopyIn(h.ctx(), at("m", "/srv"), pack(
		tar.Header{Typeflag: tar.TypeDir, Name: "d", Mode: 0o755},
		tar.Header{Typeflag: tar.TypeReg, Name: "d/f"},
		tar.Header{Typeflag: tar.TypeReg, Name: "g"},
		tar.Header{Typeflag: tar.TypeSymlink, Name: "l", Linkname: "d/f"},
	)))
	for _, v := range []struct {
		path string
		want []string
	}{
		{"/srv", []string{"0 srv/d/f d/f", "0 srv/g g", "2 srv/l d/f", "5 srv/", "5 srv/d/"}},
		{"srv/d/f", []string{"0 f d/f"}},
		{"/srv/d", []string{"0 d/f d/f", "5 d/"}},
	} {
		var b bytes.Buffer
		h.ok(c.CopyOut(h.ctx(), at("m", v.path), &b))
		if d := cmp.Diff(v.want, h.list(&b)); d != "" {
			h.Errorf("%s (-want +got):\n%s", v.path, d)
		}
	}
	if got := h.says("m", "cat srv/l srv/g"); got != "d/fg" {
		h.Errorf("the machine sees %q", got)
	}
	if h.Ephemeral {
		h.ok(h.rt.Kill(h.ctx(), "m"))
		h.want(c.CopyOut(h.ctx(), at("m", "/srv"), io.Discard), fault.Precondition)
		h.want(c.CopyIn(h.ctx(), at("m", "/srv"), pack()), fault.Precondition)
		h.start(spec("m", 2, "sleep", "1000"))
	}
	h.want(c.CopyOut(h.ctx(), at("m", "/none"), io.Discard), fault.NotFound)
	h.want(c.CopyOut(h.ctx(), at("ghost", "/"), io.Discard), fault.NotFound)
	h.want(c.CopyIn(h.ctx(), at("ghost", "/"), pack()), fault.NotFound)
	h.want(c.CopyIn(h.ctx(), at("m", "/"), strings.NewReader(strings.Repeat("no tar", 500))), fault.Invalid)
}

// testCopyVolume: the contents of a volume are copied from and to the volume, whether its machine runs or not.
func testCopyVolume(h *harness) {
	c := h.copier()
	vol := runtime.Mount{Volume: "v", Dir: h.TempDir(), Path: "/srv/data"}
	in := func(path string) runtime.Place { return runtime.Place{Machine: "m", Mount: &vol, Path: path} }
	h.ok(c.CopyIn(h.ctx(), in("d"), pack(tar.Header{Typeflag: tar.TypeReg, Name: "f"})))
	h.ok(c.CopyIn(h.ctx(), in(""), pack(tar.Header{Typeflag: tar.TypeReg, Name: "g"})))
	s := sh("m", 1, "cat srv/data/d/f srv/data/g")
	s.Mounts = []runtime.Mount{vol}
	h.start(s)
	h.exitOf("m", 1)
	if got := h.texts("m", machine.LogQuery{}); !slices.Equal(got, []string{"fg"}) {
		h.Errorf("log %q", got)
	}
	for path, want := range map[string][]string{
		"":    {"0 data/d/f f", "0 data/g g", "5 data/", "5 data/d/"},
		"d":   {"0 d/f f", "5 d/"},
		"d/f": {"0 f f"},
	} {
		var b bytes.Buffer
		h.ok(c.CopyOut(h.ctx(), in(path), &b))
		if d := cmp.Diff(want, h.list(&b)); d != "" {
			h.Errorf("%q (-want +got):\n%s", path, d)
		}
	}
	h.want(c.CopyOut(h.ctx(), in("../x"), io.Discard), fault.Invalid)
}

func testCopyInside(h *harness) {
	c := h.copier()
	if h.RootOf == nil {
		h.Skip("files cannot be seen from outside")
	}
	out := h.TempDir()
	h.ok(os.WriteFile(filepath.Join(out, "file"), []byte("secret"), 0o600))
	h.ok(os.Symlink(out, filepath.Join(h.RootOf("m"), "link")))
	h.ok(os.Symlink(filepath.Join(out, "file"), filepath.Join(h.RootOf("m"), "flink")))
	for _, p := range []string{"../x", "/../..", "a/../../b"} {
		h.want(c.CopyOut(h.ctx(), at("m", p), io.Discard), fault.Invalid, fault.NotFound)
		h.want(c.CopyIn(h.ctx(), at("m", p), pack()), fault.Invalid)
	}
	h.want(c.CopyOut(h.ctx(), at("m", "/link/file"), io.Discard), fault.Precondition)
	var b bytes.Buffer
	h.ok(c.CopyOut(h.ctx(), at("m", "/"), &b))
	if bytes.Contains(b.Bytes(), []byte("secret")) {
		h.Error("a symlink was followed out of the machine")
	}
	for _, e := range []tar.Header{
		{Typeflag: tar.TypeReg, Name: "../out"},
		{Typeflag: tar.TypeReg, Name: "/abs"},
		{Typeflag: tar.TypeReg, Name: "a/../../out"},
		{Typeflag: tar.TypeReg, Name: "suid", Mode: 0o4755},
		{Typeflag: tar.TypeReg, Name: "sgid", Mode: 0o2755},
		{Typeflag: tar.TypeChar, Name: "dev", Devmajor: 1, Devminor: 3},
		{Typeflag: tar.TypeBlock, Name: "dev", Devmajor: 1, Devminor: 3},
		{Typeflag: tar.TypeFifo, Name: "fifo"},
		{Typeflag: tar.TypeLink, Name: "hard", Linkname: "link/file"},
	} {
		h.want(c.CopyIn(h.ctx(), at("m", "/"), pack(e)), fault.Invalid)
	}
	h.want(c.CopyIn(h.ctx(), at("m", "/"), pack(tar.Header{Typeflag: tar.TypeReg, Name: "link/file"})),
		fault.Precondition)
	h.want(c.CopyIn(h.ctx(), at("m", "/link"), pack(tar.Header{Typeflag: tar.TypeReg, Name: "file"})),
		fault.Precondition)
	h.ok(c.CopyIn(h.ctx(), at("m", "/"),
		pack(tar.Header{Typeflag: tar.TypeReg, Name: "flink"}))) // replaced, not followed
	got, err := os.ReadFile(filepath.Join(out, "file"))
	h.ok(err)
	if string(got) != "secret" {
		h.Errorf("outside there is now %q", got)
	}
}
