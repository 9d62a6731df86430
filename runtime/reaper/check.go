package reaper

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime/reaper/container"
	"github.com/soukhq/souk/runtime/reaper/frame"
	"github.com/soukhq/souk/runtime/reaper/stdio"
)

// checkStart refuses what a start of a machine would refuse, as far as that is visible while another attempt of it
// runs. It does not change that attempt. It accepts an unknown machine, since its start prepares it.
func checkStart(r *Reaper, id string, s *frame.Start) error {
	m, err := r.findMachine(id)
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if s == nil {
		return fault.New(fault.Invalid, fault.CodeCheck, "a check of machine %s needs the start that it is to check",
			id)
	}
	if err := s.CheckStdio(); err != nil {
		return err
	}
	if err := r.lockMachine(m); err != nil {
		return err
	}
	defer m.op.Unlock()
	if s.Container != nil {
		return r.containers.checkImage(m, s)
	}
	o, err := r.apart.ownerOf(m, s)
	if err != nil {
		return err
	}
	shown, err := r.apart.planShown(s)
	if err != nil {
		return err
	}
	for _, f := range s.Files {
		if err := checkOutsideVolumes(f.Path, s.Mounts); err != nil && os.Geteuid() == 0 {
			return err
		}
	}
	if s.Dir == "" {
		return checkProgram(r, id, o, s)
	}
	below := len(s.Argv) > 0 && strings.Contains(s.Argv[0], "/") && !filepath.IsAbs(s.Argv[0])
	if shown == nil { // otherwise only its start can tell what is in the directory
		got, err := r.openDir(o, &stdio.Request{Dir: s.Dir}, nil, s.Argv,
			func() ([]string, error) { return s.Env, nil })
		if err != nil {
			return err
		}
		below = strings.HasPrefix(got.path, "./")
		got.close()
	}
	if below { // the program is in that directory
		return nil
	}
	return checkProgram(r, id, o, s)
}

// checkProgram is apart.checkProgram on a thread of openings, if a user of the host may have chosen the program.
func checkProgram(r *Reaper, id string, o *owner, s *frame.Start) error {
	if !opensFirst(s) {
		return r.apart.checkProgram(id, s)
	}
	got, err := r.openings.run(o, strings.Join(named(s), ", "), func(func() bool) (*opened, error) {
		return &opened{Opened: &stdio.Opened{Dir: -1, In: -1, Out: -1, Err: -1}}, r.apart.checkProgram(id, s)
	}, func() {})
	got.close()
	return err
}

// checkProgram looks for a program among the host's files and those of the machine. Programs on its volumes and files
// are checked only by its start.
func (a *apart) checkProgram(id string, s *frame.Start) error {
	path, err := findProgram(s.Argv, s.Env, RootDir(a.dir, id))
	brought := func(p string) bool { return container.Brings(s, p) || container.Brings(s, a.pathInside(id, p)) }
	if err == nil {
		if brought(path) {
			return nil
		}
		return container.Executable("/", path, s.Argv[0], "on this worker", brought)
	}
	if len(s.Mounts)+len(s.Files) == 0 || !fault.Is(err, fault.Precondition) {
		return err
	}
	if path != "" && brought(path) {
		return nil
	}
	for _, kv := range s.Env {
		dirs, is := strings.CutPrefix(kv, "PATH=")
		for _, d := range filepath.SplitList(dirs) {
			if is && brought(filepath.Join(d, s.Argv[0])) {
				return nil
			}
		}
	}
	return err
}

// pathInside converts a host path below a machine's directory to a path relative to that directory; it returns other
// paths unchanged.
func (a *apart) pathInside(id, path string) string {
	if rest, below := strings.CutPrefix(path, RootDir(a.dir, id)); below && strings.HasPrefix(rest, "/") {
		return rest
	}
	return path
}

// checkImage looks for a container's program and user in its image, which it mounts in a private namespace.
func (c *containers) checkImage(m *machine, s *frame.Start) error {
	if err := c.unableReason(); err != nil {
		return err
	}
	if err := errors.Join(container.Check(s), c.store.Open()); err != nil {
		return err
	}
	if _, err := c.r.apart.ownerOf(m, new(frame.Start)); err != nil {
		return err
	}
	return c.withEngine(func(context.Context) error {
		return c.store.Examine(m.id, container.Plan{Name: container.Name{ID: m.id}, Start: s, UID: m.uid,
			Users: c.r.namespaces.openNamespace})
	})
}
