// Package cgroup gives each machine its control groups: v2, v1, or both mounted side by side (hybrid), depending on the
// host.
//
// # Vocabulary
//
// A *tree* is souk's own directory in every hierarchy that it uses; a *group* is one machine's directory below it, in
// each of them. Limits use the version that has the controller. Killing, freezing and counting CPU time use v2 if it is
// mounted at all, since they need no controller there.
package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Mount is one mounted hierarchy.
type Mount struct {
	Dir         string
	V2          bool
	Controllers []string // v1 only; a named hierarchy without controllers has its name here (name=systemd)
}

// Tree is souk's directory in each hierarchy. It is plain data and is sent as JSON.
type Tree struct {
	// souk's directory on the cgroup2 mount, "" if there is none
	V2          string            `json:"v2,omitempty"`
	Controllers []string          `json:"controllers,omitempty"` // controllers usable on V2: cpu, memory, pids
	V1          map[string]string `json:"v1,omitempty"`          // souk's directory by controller

	// Unused are souk's directories in the v1 hierarchies that it does not use. OCI runtimes make a container's group
	// in every hierarchy, so groups may exist there; removing a group also removes it there.
	Unused []string `json:"-"`
}

// wanted lists the controllers that limits need.
var wanted = [...]string{"cpu", "memory", "pids"}

// reaperGroup is the group of the reaper itself.
const reaperGroup = "reaper"

// Mounts reads the cgroup mounts of this process.
func Mounts() ([]Mount, error) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("read the mounts: %w", err)
	}
	return ParseMounts(string(b)), nil
}

// ParseMounts returns the cgroup mounts in the text of a mountinfo file. Of several mounts of one hierarchy it returns
// the first.
func ParseMounts(text string) []Mount {
	var out []Mount
	for line := range strings.Lines(text) {
		left, right, ok := strings.Cut(line, " - ")
		l, r := strings.Fields(left), strings.Fields(right)
		if !ok || len(l) < 5 || len(r) < 3 {
			continue
		}
		m := Mount{Dir: unescapeOctal(l[4])}
		switch r[0] {
		case "cgroup2":
			m.V2 = true
		case "cgroup":
			for o := range strings.SplitSeq(r[2], ",") {
				if o != "rw" && o != "ro" && (!strings.Contains(o, "=") || strings.HasPrefix(o, "name=")) {
					m.Controllers = append(m.Controllers, o)
				}
			}
			if len(m.Controllers) == 0 {
				continue
			}
		default:
			continue
		}
		same := func(o Mount) bool { return o.V2 == m.V2 && slices.Equal(o.Controllers, m.Controllers) }
		if !slices.ContainsFunc(out, same) {
			out = append(out, m)
		}
	}
	return out
}

// unescapeOctal replaces mountinfo's octal escapes of space, tab, newline and backslash.
func unescapeOctal(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// Open makes souk's directory called name in every usable hierarchy of mounts, and returns sentences about what is
// lacking. A nil Tree means that no cgroups can be made.
func Open(mounts []Mount, name string) (*Tree, []string) {
	t := &Tree{V1: map[string]string{}}
	var lacks []string
	for _, m := range mounts {
		dir := filepath.Join(m.Dir, name)
		if m.V2 {
			if err := t.openV2(m.Dir, dir); err != nil {
				lacks = append(lacks, fmt.Sprintf("cgroup2 at %s: %v", m.Dir, err))
			}
		}
	}
	for _, m := range mounts {
		if m.V2 {
			continue
		}
		use, dir := t.missingControllers(m.Controllers), filepath.Join(m.Dir, name)
		if len(use) == 0 {
			t.Unused = append(t.Unused, dir)
			continue
		}
		if err := mkdirs(dir, filepath.Join(dir, reaperGroup)); err != nil {
			lacks = append(lacks, fmt.Sprintf("cgroup v1 %s: %v", strings.Join(m.Controllers, ","), err))
			continue
		}
		for _, c := range use {
			t.V1[c] = dir
		}
	}
	if t.V2 == "" && len(t.V1) == 0 {
		return nil, append(lacks, "no cgroup hierarchy can be written")
	}
	for _, c := range wanted {
		if !t.Has(c) {
			lacks = append(lacks, "no "+c+" controller")
		}
	}
	return t, lacks
}

// Able returns why no cgroups can be made on this host, nil if they can. It makes some for a moment.
func Able() error {
	mounts, err := Mounts()
	if err != nil {
		return err
	}
	t, lacks := Open(mounts, fmt.Sprintf("souk-able-%d", os.Getpid()))
	if t == nil {
		return errors.New(strings.Join(lacks, "; "))
	}
	return t.Destroy()
}

// openV2 makes the directory and enables the available controllers below it.
func (t *Tree) openV2(mount, dir string) error {
	if err := mkdirs(dir, filepath.Join(dir, reaperGroup)); err != nil {
		return err
	}
	t.V2 = dir
	have, err := os.ReadFile(filepath.Join(mount, "cgroup.controllers"))
	if err != nil {
		return fmt.Errorf("read which controllers there are: %w", err)
	}
	for _, c := range wanted {
		if !slices.Contains(strings.Fields(string(have)), c) {
			continue
		}
		// fails if the host's own manager already uses the controller
		up := writeControl(filepath.Join(mount, "cgroup.subtree_control"), "+"+c)
		if err := writeControl(filepath.Join(dir, "cgroup.subtree_control"), "+"+c); err != nil {
			return fmt.Errorf("pass on the %s controller: %w", c, errors.Join(err, up))
		}
		t.Controllers = append(t.Controllers, c)
	}
	return nil
}

// missingControllers returns the controllers among cs that souk wants and v2 does not provide.
func (t *Tree) missingControllers(cs []string) []string {
	var out []string
	for _, c := range cs {
		switch {
		case slices.Contains(wanted[:], c) && !t.Has(c):
			out = append(out, c)
		case (c == "freezer" || c == "cpuacct") && t.V2 == "" && t.V1[c] == "":
			out = append(out, c)
		case c == devicesController && t.V1[c] == "" && !t.deniesByV2():
			out = append(out, c)
		}
	}
	return out
}

// Has reports whether a controller is usable, on either version.
func (t *Tree) Has(controller string) bool {
	return t != nil && (slices.Contains(t.Controllers, controller) || t.V1[controller] != "")
}

// hierarchyDirs lists souk's directories without duplicates, v2 first.
func (t *Tree) hierarchyDirs() []string {
	var out []string
	if t.V2 != "" {
		out = append(out, t.V2)
	}
	for _, d := range t.V1 {
		if !slices.Contains(out, d) {
			out = append(out, d)
		}
	}
	slices.Sort(out[min(1, len(out)):])
	return out
}

// listV1Dirs lists souk's v1 directories without duplicates.
func (t *Tree) listV1Dirs() []string {
	out := t.hierarchyDirs()
	return slices.DeleteFunc(out, func(d string) bool { return d == t.V2 })
}

// Groups lists the groups that exist in any hierarchy, used or not.
func (t *Tree) Groups() ([]string, error) {
	var out []string
	for _, dir := range append(t.hierarchyDirs(), t.Unused...) {
		es, err := os.ReadDir(dir)
		if errors.Is(err, os.ErrNotExist) {
			continue // part of the tree is gone
		}
		if err != nil {
			return nil, fmt.Errorf("list the cgroups: %w", err)
		}
		for _, e := range es {
			if e.IsDir() && e.Name() != reaperGroup && !slices.Contains(out, e.Name()) {
				out = append(out, e.Name())
			}
		}
	}
	return out, nil
}

// Adopt moves a process into the tree's group for the reaper, so that it is not in the group of the process that
// started it, which may be killed as a whole.
func (t *Tree) Adopt(pid int) error {
	var errs []error
	for _, dir := range t.hierarchyDirs() {
		errs = append(errs, writeControl(filepath.Join(dir, reaperGroup, "cgroup.procs"), fmt.Sprint(pid)))
	}
	return errors.Join(errs...)
}

// Leave moves a process out of the tree, into the groups above it.
func (t *Tree) Leave(pid int) error {
	var errs []error
	for _, dir := range t.hierarchyDirs() {
		errs = append(errs, writeControl(filepath.Join(filepath.Dir(dir), "cgroup.procs"), fmt.Sprint(pid)))
	}
	return errors.Join(errs...)
}

// Destroy removes souk's directories and the empty groups. A group in use prevents the removal.
func (t *Tree) Destroy() error {
	var errs []error
	names, err := t.Groups()
	if err != nil {
		errs = append(errs, err)
	}
	for _, n := range names {
		if err := t.Group(n).TryRemove(); err != nil {
			errs = append(errs, err)
		}
	}
	for _, dir := range t.hierarchyDirs() {
		for _, d := range []string{filepath.Join(dir, reaperGroup), dir} {
			if err := os.Remove(d); err != nil && !errors.Is(err, os.ErrNotExist) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// Abandoned is a tree without processes: its reaper was killed, and nothing that it ran is left. Nodes are the inodes
// of its directories, which distinguish it from a later tree of the same name.
type Abandoned struct {
	Name  string
	Nodes string
	dirs  []string
}

// AbandonedIn finds abandoned trees in these mounts; is reports whether a name is that of a reaper's tree.
func AbandonedIn(mounts []Mount, is func(name string) bool) map[string]Abandoned {
	out, used := map[string]Abandoned{}, map[string]bool{}
	for _, m := range mounts {
		es, err := os.ReadDir(m.Dir)
		if err != nil {
			continue // its trees are found by the other mounts
		}
		for _, e := range es {
			if !e.IsDir() || !is(e.Name()) || used[e.Name()] {
				continue
			}
			dir := filepath.Join(m.Dir, e.Name())
			node, empty := lookAtGroup(dir)
			if !empty {
				used[e.Name()] = true
				delete(out, e.Name())
				continue
			}
			a := out[e.Name()]
			out[e.Name()] = Abandoned{e.Name(), a.Nodes + node + " ", append(a.dirs, dir)}
		}
	}
	return out
}

// lookAtGroup returns a tree's inode in one hierarchy, and whether all of its groups are empty. An unreadable group
// counts as in use.
func lookAtGroup(dir string) (node string, empty bool) {
	var st syscall.Stat_t
	if err := syscall.Stat(dir, &st); err != nil {
		return "", false
	}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		b, err := os.ReadFile(filepath.Join(path, "cgroup.procs"))
		if err == nil && len(b) > 0 {
			err = syscall.EBUSY
		}
		return err
	})
	return fmt.Sprint(st.Ino), err == nil
}

// Remove removes the tree's directories. The reaper's group goes first: if a new reaper is in it, everything stays.
func (a Abandoned) Remove() error {
	var errs []error
	for _, dir := range a.dirs {
		errs = append(errs, removeTree(dir))
	}
	return errors.Join(errs...)
}

// RemoveEverywhere removes the empty directories of a tree in all hierarchies, also those that the tree does not use:
// OCI runtimes make a container's group in each.
func RemoveEverywhere(name string) error {
	mounts, err := Mounts()
	if err != nil {
		return err
	}
	var errs []error
	for _, m := range mounts {
		errs = append(errs, removeTree(filepath.Join(m.Dir, name)))
	}
	return errors.Join(errs...)
}

func removeTree(dir string) error {
	gone := func(err error) bool { return err == nil || errors.Is(err, os.ErrNotExist) }
	if err := os.Remove(filepath.Join(dir, reaperGroup)); !gone(err) {
		return err
	}
	es, err := os.ReadDir(dir)
	if err != nil {
		if gone(err) {
			return nil
		}
		return err
	}
	for _, e := range es {
		if !e.IsDir() {
			continue
		}
		if err := os.Remove(filepath.Join(dir, e.Name())); !gone(err) {
			return err
		}
	}
	if err := os.Remove(dir); !gone(err) {
		return err
	}
	return nil
}

func mkdirs(dirs ...string) error {
	for _, d := range dirs {
		if err := os.Mkdir(d, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	return nil
}

// writeControl writes one control file. It never creates one: a missing file is an error.
func writeControl(path, value string) error {
	fd, err := openFD(path, syscall.O_WRONLY)
	if err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer syscall.Close(fd)
	for {
		_, err = syscall.Write(fd, []byte(value))
		if err != syscall.EINTR {
			break
		}
	}
	if err != nil {
		return &os.PathError{Op: "write", Path: path, Err: err}
	}
	return nil
}
