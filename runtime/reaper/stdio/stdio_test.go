package stdio_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/osthread"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/reaper/stdio"
)

// onThread runs Open on a thread that ends.
func onThread(q *stdio.Request) (o *stdio.Opened, err error) {
	done := make(chan struct{})
	osthread.Go(func() {
		defer close(done)
		o, err = stdio.Open(q)
	})
	<-done
	return o, err
}

// TestThreadHasTheUsersRightsButIsNotTheUser: it has no capability, and a process of the user cannot signal it, which
// would end the whole reaper. Other threads keep root's rights.
func TestThreadHasTheUsersRightsButIsNotTheUser(t *testing.T) {
	if os.Geteuid() != 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("this needs root")
		}
		t.Skip("this needs root")
	}
	mask, status := uint32(0o077), ""
	q := &stdio.Request{User: &stdio.User{UID: 54321, GID: 54322, Groups: []uint32{54323}, Umask: &mask}, Dir: "/",
		Find: func(string) error {
			b, err := os.ReadFile("/proc/thread-self/status")
			status = string(b)
			return err
		}}
	o, err := onThread(q)
	if err != nil {
		t.Fatal(err)
	}
	o.Close()
	for _, want := range []string{"Uid:\t0\t54321\t0\t54321\n", "Gid:\t0\t54322\t0\t54322\n", "Groups:\t54323 \n",
		"CapEff:\t0000000000000000\n", "Umask:\t0077\n"} {
		if !strings.Contains(status, want) {
			t.Errorf("it has no %q: %s", want, status)
		}
	}
	if os.Geteuid() != 0 {
		t.Error("the process has the user's rights")
	}
}

// TestOpenFilesAreBlockingAndNotInherited: as a program expects its streams, and no other program gets them.
func TestOpenFilesAreBlockingAndNotInherited(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/in", []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	o, err := onThread(&stdio.Request{Dir: dir, Files: runtime.Stdio{In: "in", Out: "out", Err: "err", Append: true}})
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	for _, fd := range []int{o.Dir, o.In, o.Out, o.Err} {
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
		if err != nil || flags&unix.O_NONBLOCK != 0 || flags&unix.O_APPEND != 0 != (fd == o.Out || fd == o.Err) {
			t.Errorf("descriptor %d has flags %#o, %v", fd, flags, err)
		}
		if f, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || f&unix.FD_CLOEXEC == 0 {
			t.Errorf("descriptor %d is inherited: %#x, %v", fd, f, err)
		}
	}
	if to, err := os.Readlink(o.DirPath()); err != nil || to != dir {
		t.Errorf("its directory is %q, %v", to, err)
	}
}

// TestOpenThatIsGivenUpChangesNothing: a file keeps its contents, and no descriptor is left.
func TestOpenThatIsGivenUpChangesNothing(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	if err := os.WriteFile(out, []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	q := &stdio.Request{Dir: "/", Files: runtime.Stdio{Out: out, Err: out + "2"}, Begin: func() bool { return false }}
	if o, err := onThread(q); err == nil || o != nil {
		t.Errorf("%+v, %v", o, err)
	}
	if b, err := os.ReadFile(out); err != nil || string(b) != "kept" {
		t.Errorf("%q, %v", b, err)
	}
	for fd := range 256 {
		if to, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd)); err == nil && strings.HasPrefix(to, out) {
			t.Errorf("descriptor %d is left: %s", fd, to)
		}
	}
}

// TestOneFileByTwoNamesIsOpenedOnce: a hard link and a symbolic link.
func TestOneFileByTwoNamesIsOpenedOnce(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/a", []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(dir+"/a", dir+"/b"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("a", dir+"/c"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b", "c", "./a", dir + "/a"} {
		o, err := onThread(&stdio.Request{Dir: dir, Files: runtime.Stdio{Out: "a", Err: name}})
		if err != nil || o.Out != o.Err {
			t.Errorf("%s: %+v, %v", name, o, err)
			continue
		}
		o.Close()
	}
}

// TestSocketIsRefused: as a FIFO is.
func TestSocketIsRefused(t *testing.T) {
	dir := t.TempDir()
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	if err := syscall.Bind(fd, &syscall.SockaddrUnix{Name: dir + "/s"}); err != nil {
		t.Fatal(err)
	}
	for _, files := range []runtime.Stdio{{In: "s"}, {Out: "s"}} {
		if _, err := onThread(&stdio.Request{Dir: dir, Files: files}); fault.CodeOf(err) != runtime.CodeStdio ||
			!strings.Contains(err.Error(), "a socket") {
			t.Errorf("%+v: %v", files, err)
		}
	}
}
