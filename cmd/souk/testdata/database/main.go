// A database in small. Its root gives its directories to its users at the first start, and it works as one of them. Each
// start reads every file that was ever written, as root and as the user, and ends if one is another's or cannot be read.
package main

import (
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

const data = "/data"

var users = []int{999, 70000}

func main() {
	if err := run(os.Getenv("AS"), os.Getenv("RUN")); err != nil {
		fmt.Println("bad:", err)
		os.Exit(1)
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)
	<-stop
}

func run(as, number string) error {
	uid, err := strconv.Atoi(as)
	if err != nil {
		return err
	}
	if _, err := os.Stat(data + "/root.conf"); err != nil {
		if err := first(); err != nil {
			return err
		}
	}
	seen, err := look(data)
	if err != nil {
		return err
	}
	if err := drop(uid); err != nil {
		return err
	}
	dir := fmt.Sprintf("%s/%d", data, uid)
	if _, err := look(dir); err != nil {
		return err
	}
	if err := os.WriteFile(fmt.Sprintf("%s/%s", dir, number), []byte(as), 0o600); err != nil {
		return err
	}
	fmt.Printf("run %s as %d: %d files\n", number, uid, seen+1)
	return nil
}

func drop(uid int) error {
	if err := syscall.Setgroups(nil); err != nil {
		return err
	}
	if err := syscall.Setgid(uid); err != nil {
		return err
	}
	return syscall.Setuid(uid)
}

func first() error {
	for _, uid := range users {
		dir := fmt.Sprintf("%s/%d", data, uid)
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
		if err := os.Chown(dir, uid, uid); err != nil {
			return err
		}
	}
	return os.WriteFile(data+"/root.conf", []byte("0"), 0o600)
}

// look reads all files below a directory, and counts them. Each is of the user that its directory is called after.
func look(dir string) (n int, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == data {
			return err
		}
		st, err := os.Lstat(path)
		if err != nil {
			return err
		}
		of, _, _ := strings.Cut(strings.TrimPrefix(path, data+"/"), "/")
		if of == "root.conf" {
			of = "0"
		}
		sys := st.Sys().(*syscall.Stat_t)
		if owner := fmt.Sprint(sys.Uid); owner != of || fmt.Sprint(sys.Gid) != of {
			return fmt.Errorf("%s belongs to %d:%d", path, sys.Uid, sys.Gid)
		}
		if want := map[bool]fs.FileMode{true: 0o700, false: 0o600}[d.IsDir()]; st.Mode().Perm() != want {
			return fmt.Errorf("%s has the mode %o", path, st.Mode())
		}
		if d.IsDir() {
			return nil
		}
		n++
		raw, err := os.ReadFile(path)
		if err == nil && string(raw) != of {
			err = fmt.Errorf("%s says %q", path, raw)
		}
		return err
	})
	return n, err
}
