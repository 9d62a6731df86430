package unixsock_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/unixsock"
)

// TestMain is also the program of another user: "dial PATH" says what is read there, "listen PATH" listens until it is
// ended.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "dial" {
		c, err := net.Dial("unix", os.Args[2])
		if err != nil {
			fmt.Println(err)
			os.Exit(0)
		}
		b, _ := io.ReadAll(c)
		fmt.Printf("read %q\n", b)
		os.Exit(0)
	}
	if len(os.Args) == 3 && os.Args[1] == "listen" {
		if _, err := net.Listen("unix", os.Args[2]); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("listens")
		_, _ = io.ReadAll(os.Stdin)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// nobody is the command of this program as another user.
func nobody(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	if os.Geteuid() != 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("this needs root, to be another user")
		}
		t.Skip("this needs root, to be another user")
	}
	exe := filepath.Join(openDir(t), "exe")
	raw, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = os.WriteFile(exe, raw, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	return cmd
}

// openDir is a directory that anybody may write to.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "unixsock")
	if err == nil {
		err = os.Chmod(dir, 0o777)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// serve writes a word to whoever is accepted.
func serve(t *testing.T, path string) (refused chan error) {
	t.Helper()
	ln, err := unixsock.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	refused = make(chan error, 8)
	go func() {
		checked := unixsock.Checked(ln, func(err error) { refused <- err })
		for {
			c, err := checked.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "welcome")
			_ = c.Close()
		}
	}()
	return refused
}

func TestSameUserConnects(t *testing.T) {
	for _, name := range []string{"short", strings.Repeat("long", 30)} {
		dir := filepath.Join(t.TempDir(), name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, "s")
		serve(t, path)
		st, err := os.Stat(path)
		if err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("the socket's mode: %v, %v", st.Mode(), err)
		}
		c, err := unixsock.Dial(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(c); err != nil || string(b) != "welcome" {
			t.Errorf("%q, %v", b, err)
		}
		c.Close()
		serve(t, path) // in place of the one that was left
	}
}

func TestOtherUserIsRefused(t *testing.T) {
	path := filepath.Join(openDir(t), "s")
	refused := serve(t, path)
	out, err := nobody(t, "dial", path).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "permission denied") {
		t.Errorf("by the file's mode: %s, %v", out, err)
	}
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	out, err = nobody(t, "dial", path).CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != `read ""` {
		t.Errorf("by who it is: %s, %v", out, err)
	}
	if err := <-refused; !fault.Is(err, fault.Denied) {
		t.Error(err)
	}
}

func TestOtherUsersSocketIsNotTrusted(t *testing.T) {
	path := filepath.Join(openDir(t), "s")
	cmd := nobody(t, "listen", path)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { err = errors.Join(in.Close(), cmd.Wait()) }()
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "listens\n" {
		t.Fatal(line, err)
	}
	if _, err := unixsock.Dial(t.Context(), path); !fault.Is(err, fault.Denied) {
		t.Error(err)
	}
}
