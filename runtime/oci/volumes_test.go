package oci_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/loopfs"
	"github.com/soukhq/souk/runtime/oci"
	"github.com/soukhq/souk/runtime/process"
	"github.com/soukhq/souk/runtime/reaper/users"
)

// volumeUser has one machine after another use a volume.
type volumeUser struct {
	*testing.T
	r      imaged
	engine string
	vol    string
	n      int
}

// as runs a script in a new machine that has the volume at a path, as a user, and returns what it wrote.
func (v *volumeUser) as(user, path, script string) string {
	v.Helper()
	v.n++
	s := runtime.Spec{Machine: fmt.Sprint("m", v.n), Attempt: 1, Fresh: true, SwapMB: -1, User: user, Runtime: v.engine,
		Argv: []string{"sleep", "1000"}, Env: []string{"PATH=/bin:/usr/bin"},
		Mounts: []runtime.Mount{{Volume: "v", Dir: v.vol, Path: path}}}
	s.Resources.CPU, s.Resources.Memory = 500, 64
	if _, err := v.r.Start(v.Context(), s); err != nil {
		v.Fatal(err)
	}
	var out bytes.Buffer
	_, err := v.r.Exec(v.Context(), s.Machine, runtime.ExecRequest{Argv: []string{"sh", "-c", script},
		Stdout: &out, Stderr: &out})
	if err != nil {
		v.Fatal(err)
	}
	if err := v.r.Remove(v.Context(), s.Machine); err != nil {
		v.Fatal(err)
	}
	return strings.TrimSpace(out.String())
}

func (v *volumeUser) want(user, path, script, want string) {
	v.Helper()
	if got := v.as(user, path, script); got != want {
		v.Errorf("as %q, %s:\n%s\nnot\n%s", user, script, got, want)
	}
}

// onDisk leads to what is in the volume, until done is called.
func (v *volumeUser) onDisk() (dir string, done func() error) {
	v.Helper()
	if st, err := os.Stat(v.vol); err == nil && st.IsDir() {
		return v.vol, func() error { return nil }
	}
	m, err := loopfs.Mount(v.vol)
	if err != nil {
		v.Fatal(err)
	}
	return m.Dir(), m.Close
}

// eachVolume runs a test with volumes of both kinds.
func eachVolume(t *testing.T, layer dir, engine string, test func(v *volumeUser)) {
	o := oci.Options{Images: layer, Engines: []string{engine}, Process: process.Options{
		Dir: filepath.Join(t.TempDir(), "oci"), ReaperCommand: []string{os.Args[0]}}}
	t.Cleanup(func() { stopReaper(t, o) })
	r := reopen(t, o)
	for _, kind := range []string{"directory", "file system"} {
		vol := filepath.Join(t.TempDir(), "v")
		var err error
		if kind == "directory" {
			err = os.Mkdir(vol, 0o700)
		} else if err = loopfs.Able(); err != nil {
			lacking(t, err.Error())
		} else {
			err = loopfs.Make(t.Context(), vol, 16<<20)
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Run(kind, func(t *testing.T) {
			test(&volumeUser{T: t, r: r, engine: filepath.Base(engine), vol: vol, n: len(kind)})
		})
	}
}

// TestVolumeKeepsFileOwners: whoever a file was given to has it in each machine after that, up to the largest number.
func TestVolumeKeepsFileOwners(t *testing.T) {
	t.Parallel()
	for _, engine := range []string{oci.DefaultEngine, "runsc"} {
		t.Run(engine, func(t *testing.T) {
			if engine == "runsc" {
				engine = sandbox(t)
			}
			eachVolume(t, busybox(t), engine, keepsOwners)
		})
	}
}

func keepsOwners(v *volumeUser) {
	const look = "cd /d; stat -c '%u:%g %a %n' . root web svc far last"
	const want = "999:33 750 .\n0:0 600 root\n33:33 600 web\n70000:70000 600 svc\n" +
		"2000000000:5 600 far\n4294967294:4294967294 600 last"
	v.want("", "/d", "cd /d; for f in root web svc far last; do echo $f > $f; done; chmod 600 *; chown web:33 web; "+
		"chown 70000:70000 svc; chown 2000000000:5 far; chown 4294967294:4294967294 last; chown 999:33 .; "+
		"chmod 750 .; "+look, want)
	v.want("", "/d", look+"; cat *", want+"\nfar\nlast\nroot\nsvc\nweb")
	v.want("999:33", "/d", "cd /d; echo mine > mine; stat -c '%u:%g' mine; cat root 2>/dev/null || echo no",
		"999:33\nno")
	v.want("70000:33", "/d", "cat /d/svc; stat -c %u /d/svc; id -u", "svc\n70000\n70000")
	v.want("", "/d", "cd /d; rm mine; "+look, want)
	// runc runs nobody above 2147483647 whom the passwd lacks; souk enters who it is.
	v.want("4294967294:33", "/d", "cat /d/last; id -u; touch /tmp/x; stat -c %u /tmp/x", "last\n4294967294\n4294967294")
}

// TestVolumeWithHostNumbersIsTranslated: where the kernel could not show owners, files have their machine's own number of the
// host; a machine elsewhere sees them as root's.
func TestVolumeWithHostNumbersIsTranslated(t *testing.T) {
	t.Parallel()
	eachVolume(t, busybox(t), oci.DefaultEngine, func(v *volumeUser) {
		dir, done := v.onDisk()
		for name, n := range map[string]int{
			"root": users.First + 5, "older": users.First + 6, "web": 33,
		} {
			at := filepath.Join(dir, name)
			if err := os.WriteFile(at, []byte(name+"\n"), 0o600); err != nil {
				v.Fatal(err)
			}
			if err := os.Chown(at, n, n); err != nil {
				v.Fatal(err)
			}
		}
		if err := os.Chown(dir, users.First+6, users.First+6); err != nil {
			v.Fatal(err)
		}
		if err := done(); err != nil {
			v.Fatal(err)
		}
		v.want("", "/d", "cd /d; stat -c '%u:%g %a %n' . root older web; cat *",
			"0:0 700 .\n0:0 600 root\n0:0 600 older\n33:33 600 web\nolder\nroot\nweb")
	})
}

// TestFreshVolumeCopiesImageDirectory: it begins as the image has the directory at its path, or belongs to the machine's user; what has
// been in use stays as it is.
func TestFreshVolumeCopiesImageDirectory(t *testing.T) {
	t.Parallel()
	layer := busybox(t)
	data := filepath.Join(string(layer), "data")
	for _, err := range []error{
		os.MkdirAll(filepath.Join(data, "conf.d"), 0o750),
		os.WriteFile(filepath.Join(data, "conf.d", "a"), []byte("of the image\n"), 0o640),
		os.Link(filepath.Join(data, "conf.d", "a"), filepath.Join(data, "again")),
		os.Symlink("conf.d/a", filepath.Join(data, "link")),
		unix.Setxattr(filepath.Join(data, "again"), "user.x", []byte("y"), 0),
		exec.Command("chown", "-hR", "1000:1000", data).Run(),
		os.Chown(filepath.Join(data, "conf.d"), 70000, 33),
		unix.Chmod(filepath.Join(data, "conf.d"), 0o755),
		unix.Chmod(data, 0o2750),
		os.WriteFile(filepath.Join(string(layer), "file"), nil, 0o644),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	eachVolume(t, layer, oci.DefaultEngine, func(v *volumeUser) {
		const look = "cd /data; stat -c '%u:%g %a %h %n' . conf.d conf.d/a; readlink link; ls"
		const want = "1000:1000 2750 3 .\n70000:33 755 2 conf.d\n1000:1000 640 2 conf.d/a\nconf.d/a\n" +
			"again\nconf.d\nlink"
		v.want("1000:1000", "/data", look+"; echo mine > mine; rm link; ln -s conf.d/a link", want)
		v.want("", "/data", look, want+"\nmine")
		// What a machine removed is not copied from the image again.
		v.want("", "/data", "rm -r /data/*; ls /data", "")
		v.want("", "/data", "ls /data", "")
	})
	eachVolume(t, layer, oci.DefaultEngine, func(v *volumeUser) { // a path that the image has not
		v.want("1000:33", "/new", "stat -c '%u:%g %a' /new; echo x > /new/x; cat /new/x", "1000:33 755\nx")
	})
	eachVolume(t, layer, oci.DefaultEngine, func(v *volumeUser) { // killed in the middle of its first content
		dir, done := v.onDisk()
		for _, err := range []error{
			unix.Setxattr(dir, "trusted.souk.volume", []byte("filling"), 0),
			os.MkdirAll(filepath.Join(dir, "conf.d", "half"), 0o700), done(),
		} {
			if err != nil {
				v.Fatal(err)
			}
		}
		v.want("", "/data", "find /data | sort", "/data\n/data/again\n/data/conf.d\n/data/conf.d/a\n/data/link")
	})
	eachVolume(t, layer, oci.DefaultEngine, func(v *volumeUser) { // where no directory can be
		_, err := v.r.Start(t.Context(), runtime.Spec{Machine: "m", Attempt: 1, Fresh: true, SwapMB: -1,
			Argv: []string{"true"}, Env: []string{"PATH=/bin"},
			Mounts: []runtime.Mount{{Volume: "v", Dir: v.vol, Path: "/file"}}})
		if !fault.Is(err, fault.Precondition) || !strings.Contains(fmt.Sprint(err), "cannot be shown at /file") {
			v.Errorf("over a file: %v", err)
		}
	})
}

// TestVolumeIsSharedByContainerAndProgram: what is a container's root's is the program's, and the other way round.
func TestVolumeIsSharedByContainerAndProgram(t *testing.T) {
	t.Parallel()
	eachVolume(t, busybox(t), oci.DefaultEngine, func(v *volumeUser) {
		program := func(id, script string) string {
			s := runtime.Spec{Machine: id, Attempt: 1, Fresh: true, SwapMB: -1, Image: "souk/host",
				Argv: []string{"sleep", "1000"}, Env: []string{"PATH=/usr/bin:/bin"},
				Mounts: []runtime.Mount{{Volume: "v", Dir: v.vol, Path: "/soukvolume"}}}
			s.Resources.CPU, s.Resources.Memory = 500, 64
			if _, err := v.r.Runtime.Start(v.Context(), s); err != nil {
				v.Fatal(err)
			}
			var out bytes.Buffer
			_, err := v.r.Exec(v.Context(), id, runtime.ExecRequest{Argv: []string{"sh", "-c", script},
				Stdout: &out, Stderr: &out})
			if err != nil {
				v.Fatal(err)
			}
			if err := v.r.Remove(v.Context(), id); err != nil {
				v.Fatal(err)
			}
			return strings.TrimSpace(out.String())
		}
		const own = `[ "$(stat -c %u /soukvolume)" = "$(id -u)" ] && cd /soukvolume && `
		if got := program("p", own+"echo p > p && chmod 600 p && cat p"); got != "p" {
			v.Errorf("the first program: %s", got)
		}
		v.want("", "/d", "cd /d; stat -c '%u:%g' . p; cat p; for f in c w; do echo $f > $f; chmod 600 $f; done; "+
			"chown 33 w", "0:0\n0:0\np")
		if got := program("q", own+"cat p c; cat w 2> /dev/null || echo no"); got != "p\nc\nno" {
			v.Errorf("the second program: %s", got)
		}
		v.want("", "/d", "stat -c '%u:%g' /d /d/c /d/w", "0:0\n0:0\n33:0")
	})
}

// keeper has an image that keeps data in some directories.
type keeper struct{ dir }

func (k keeper) Look(ctx context.Context, ref string) (oci.Image, error) {
	i, err := k.dir.Look(ctx, ref)
	i.Volumes = []string{"/data", "/file/in", "/held/out", "/new/one", "/way/deep"}
	return i, err
}

func (k keeper) Hold(ctx context.Context, _, ref string) (oci.Image, error) { return k.Look(ctx, ref) }

// TestImageDataDirectoryIsWritable: where an image keeps data, and no volume is attached, there is a directory, as the image has it
// or else its user's, which can be written though the root cannot. It is gone with the life. No path leads out of the
// container, and one that can be no directory is left as it is.
func TestImageDataDirectoryIsWritable(t *testing.T) {
	t.Parallel()
	layer, away := busybox(t), t.TempDir()
	for _, err := range []error{
		os.Mkdir(filepath.Join(string(layer), "data"), 0o700),
		os.WriteFile(filepath.Join(string(layer), "data", "seed"), []byte("of the image\n"), 0o644),
		os.Chown(filepath.Join(string(layer), "data"), 33, 33),
		os.WriteFile(filepath.Join(string(layer), "file"), nil, 0o644),
		os.Symlink(away, filepath.Join(string(layer), "held")),
		os.Symlink("data", filepath.Join(string(layer), "way")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, engine := range []string{oci.DefaultEngine, "runsc"} {
		t.Run(engine, func(t *testing.T) {
			if engine == "runsc" {
				engine = sandbox(t)
			}
			o := oci.Options{Images: keeper{layer}, Engines: []string{engine}, Process: process.Options{
				Dir: filepath.Join(t.TempDir(), "oci"), ReaperCommand: []string{os.Args[0]}}}
			t.Cleanup(func() { stopReaper(t, o) })
			r := reopen(t, o)
			keepsData(t, r, "free", false)
			if !strings.HasSuffix(engine, "runsc") {
				keepsData(t, r, "held", true)
			}
		})
	}
	if es, err := os.ReadDir(away); err != nil || len(es) > 0 {
		t.Errorf("out of the container there is %v, %v", es, err)
	}
}

func keepsData(t *testing.T, r imaged, id string, held bool) {
	t.Helper()
	const script = `for d in /data /new/one /data/deep; do stat -c '%u:%g %a' $d; echo x > $d/x; cat $d/[sx]*; done
		stat -c '%u:%g %a' /new; (echo y > /bin/y) 2> /dev/null || echo held`
	want := "33:33 700\nof the image\nx\n33:33 755\nx\n33:33 755\nx\n0:0 755\nheld\n"
	for attempt := range uint64(2) {
		s := runtime.Spec{Machine: id, Attempt: attempt + 1, Fresh: attempt == 0, SwapMB: -1, User: "33:33",
			ReadOnly: held, Argv: []string{"sh", "-c", script}, Env: []string{"PATH=/bin"}}
		s.Resources.CPU, s.Resources.Memory = 500, 64
		if _, err := r.Start(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		x := <-r.Exits()
		if err := r.Ack(t.Context(), id, x.Attempt); err != nil {
			t.Fatal(err)
		}
	}
	if got := strings.Join(logOf(t, r.Runtime, id), "\n") + "\n"; got != want+want {
		t.Errorf("%s: twice it is\n%s\nand not\n%s", id, got, want)
	}
	if err := r.Remove(t.Context(), id); err != nil {
		t.Fatal(err)
	}
}
