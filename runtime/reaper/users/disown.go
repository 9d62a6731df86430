package users

import (
	"bufio"
	"errors"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// public are the directories of a host that, by custom, everybody may write to. Everything else that a machine leaves
// is in its own directory, which is removed with it, or in a volume, which only the next machine that mounts it can
// see.
var public = []string{"/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue", "/run/lock"} //nolint:gochecknoglobals // a constant

// Disown gives to root the files of users from low to below high that are not living, so that a later machine with the
// same number does not own them. Shared memory, semaphores and message queues of System V are removed.
func Disown(low, high int, living func(uid int) bool) error {
	dead := func(uid int) bool { return uid >= low && uid < high && !living(uid) }
	var errs []error
	for _, dir := range public {
		c := chowning{owners: ownersTo(0, 0, func(u uint32) bool { return dead(int(u)) }), lenient: true}
		errs = append(errs, c.chownTree(dir))
	}
	for _, kind := range []struct {
		file string
		call uintptr
	}{{"shm", unix.SYS_SHMCTL}, {"sem", unix.SYS_SEMCTL}, {"msg", unix.SYS_MSGCTL}} {
		errs = append(errs, removeIPC("/proc/sysvipc/"+kind.file, kind.call, dead))
	}
	return errors.Join(errs...)
}

// removeIPC removes the System V objects of dead users that a table lists.
func removeIPC(table string, call uintptr, dead func(int) bool) error {
	f, err := os.Open(table)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // this kernel has no such objects
	}
	if err != nil {
		return err
	}
	defer f.Close()
	in := bufio.NewScanner(f)
	id, uid := -1, -1
	for first := true; in.Scan(); first = false {
		words := strings.Fields(in.Text())
		if first {
			for i, w := range words {
				switch {
				case strings.HasSuffix(w, "id") && id < 0 && w != "uid" && w != "gid":
					id = i
				case w == "uid":
					uid = i
				}
			}
			continue
		}
		if id < 0 || uid < 0 || len(words) <= max(id, uid) {
			continue
		}
		n, err1 := strconv.Atoi(words[id])
		u, err2 := strconv.Atoi(words[uid])
		if err1 != nil || err2 != nil || !dead(u) {
			continue
		}
		second := uintptr(0) // for semctl the number of a semaphore; for the others the command
		if call != unix.SYS_SEMCTL {
			second = unix.IPC_RMID
		}
		if _, _, e := unix.Syscall6(call, uintptr(n), second, unix.IPC_RMID*boolToUintptr(call == unix.SYS_SEMCTL), 0,
			0,
			0); e != 0 && e != unix.EINVAL && e != unix.EIDRM { // it is gone already
			return e
		}
	}
	return in.Err()
}

func boolToUintptr(b bool) uintptr {
	if b {
		return 1
	}
	return 0
}
