package reaper

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/runtime/reaper/users"
)

// maxNamespaces bounds the user namespaces that are cached.
const maxNamespaces = 256

// namespaces caches user namespaces, which only map the owners of layers and volumes; no process is in them. Making one
// costs as much as three starts of a process, and a machine needs the same one at each start.
type namespaces struct {
	make func(ids []users.ID) (*os.File, error)

	mu     sync.Mutex
	latest []namespace // the last used first
}

type namespace struct {
	ids  []users.ID
	file *os.File
}

// openNamespace returns a namespace that maps ids. The caller closes it.
func (n *namespaces) openNamespace(ids []users.ID) (*os.File, error) {
	if f, err := n.keptNamespace(ids); f != nil || err != nil {
		return f, err
	}
	f, err := n.make(ids)
	if err != nil {
		return nil, err
	}
	own, err := reopenFile(f)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.latest = slices.Insert(n.latest, 0, namespace{ids, f})
	if len(n.latest) > maxNamespaces {
		_ = n.latest[maxNamespaces].file.Close() // closing cannot lose data
		n.latest = slices.Delete(n.latest, maxNamespaces, len(n.latest))
	}
	return own, nil
}

func (n *namespaces) keptNamespace(ids []users.ID) (*os.File, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	i := slices.IndexFunc(n.latest, func(x namespace) bool { return slices.Equal(x.ids, ids) })
	if i < 0 {
		return nil, nil //nolint:nilnil // not cached
	}
	x := n.latest[i]
	copy(n.latest[1:], n.latest[:i])
	n.latest[0] = x
	return reopenFile(x.file)
}

// reopenFile duplicates a file's descriptor.
func reopenFile(f *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("keep a user namespace: %w", err)
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// userNamespace makes a user namespace. It forks a process for it, which is killed before its program runs.
func (r *Reaper) userNamespace(ids []users.ID) (*os.File, error) {
	maps := make([]syscall.SysProcIDMap, len(ids))
	for i, m := range ids {
		maps[i] = syscall.SysProcIDMap{ContainerID: int(m.Inside), HostID: int(m.Outside), Size: int(m.Size)}
	}
	r.forkMu.Lock() // prevents reaping by others
	defer r.forkMu.Unlock()
	pid, err := syscall.ForkExec("/proc/self/exe", []string{"souk", "--version"}, &syscall.ProcAttr{
		Env: []string{}, Files: []uintptr{r.null.Fd(), r.null.Fd(), r.null.Fd()},
		Sys: &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, UidMappings: maps, GidMappings: maps, Ptrace: true,
			Pdeathsig: syscall.SIGKILL},
	})
	if err != nil {
		return nil, fmt.Errorf("make a user namespace: %w", err)
	}
	f, err := os.Open("/proc/" + strconv.Itoa(pid) + "/ns/user")
	_ = syscall.Kill(pid, syscall.SIGKILL) // it is a stopped child of this process
	var ws syscall.WaitStatus
	for {
		if _, err := syscall.Wait4(pid, &ws, 0, nil); err == nil && !ws.Stopped() ||
			err != nil && !errors.Is(err, syscall.EINTR) {
			return f, err
		}
	}
}
