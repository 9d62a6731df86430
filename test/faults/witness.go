package faults

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/cli/check/history"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// witness observes machines from outside: each machine's program locks a file named by the machine's id, on whichever
// host, and writes its fencing token to it. The kernel releases the lock when the process ends for any reason, so the
// lock shows whether a machine lives without asking souk.
type witness struct{ dir string }

// twice is the file in which a process records that another process of its machine lives.
const twice = "twice"

func newWitness(dir string) (witness, error) {
	w := witness{filepath.Join(dir, "witness")}
	err := os.Mkdir(w.dir, 0o700)
	if err == nil {
		err = os.Chmod(w.dir, 0o777)
	}
	// Machines run as their own users, who need access.
	for d := dir; err == nil && (d == dir || strings.HasPrefix(d, os.TempDir()+"/")); d = filepath.Dir(d) {
		err = os.Chmod(d, 0o711)
	}
	if err != nil {
		return w, fault.Wrap(err, fault.Internal, codeWitness, "the witnesses have no directory")
	}
	return w, nil
}

// command returns a machine's command. A process that finds its machine's lock taken records that and goes on, so that
// the violation stays visible.
func (w witness) command() []string {
	return []string{"/bin/sh", "-c", `umask 0
exec 9>>"$0/$SOUK_MACHINE"
flock -n 9 || echo "$SOUK_MACHINE with the token $SOUK_FENCE at $SOUK_WORKER" >> "$0/twice"
echo "$SOUK_FENCE" >&9
exec sleep 1000000`, w.dir}
}

// lives reports whether a process of a machine lives.
func (w witness) lives(id string) (bool, error) {
	f, err := os.Open(filepath.Join(w.dir, id))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil // it never ran
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	err = unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return true, nil
	}
	return false, err
}

// said returns the violations that machines saw while they ran. With attempts, an attempt that was started twice counts
// as one; leave that out if a worker's disk went back in time, since it has forgotten attempts.
func (w witness) said(attempts bool) (out []string, err error) {
	raw, err := os.ReadFile(filepath.Join(w.dir, twice))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for line := range strings.Lines(string(raw)) {
		out = append(out, "two processes of one machine lived at once: "+strings.TrimSpace(line))
	}
	if !attempts {
		return out, nil
	}
	files, err := os.ReadDir(w.dir)
	for _, f := range files {
		if f.Name() == twice {
			continue
		}
		again, errF := doubled(filepath.Join(w.dir, f.Name()))
		err = errors.Join(err, errF)
		for _, token := range again {
			out = append(out, fmt.Sprintf("an attempt of machine %s was begun twice: token %s", f.Name(), token))
		}
	}
	return out, err
}

// doubled returns the lines that a file has more than once.
func doubled(path string) ([]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	seen, again := map[string]bool{}, map[string]bool{}
	for sc := bufio.NewScanner(f); sc.Scan(); {
		if seen[sc.Text()] {
			again[sc.Text()] = true
		}
		seen[sc.Text()] = true
	}
	return slices.Sorted(maps.Keys(again)), nil
}

// differ returns violations: machines that live though they must not, or that do not live though souk says so. sure are
// the machines that souk has acknowledged as destroyed.
func (w witness) differ(ms []*machine.Machine, sure map[string]bool, inside *containers) (out []string, err error) {
	listed := map[string]machine.State{}
	run := inside.look() // machines
	for _, m := range ms {
		listed[m.ID] = m.State
		if _, known := run[m.ID]; !known && m.Config.Image == imageName {
			run[m.ID] = false
		}
	}
	files, err := os.ReadDir(w.dir)
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		if f.Name() == twice {
			continue
		}
		if run[f.Name()], err = w.lives(f.Name()); err != nil {
			return nil, err
		}
	}
	for id, lives := range run {
		state, known := listed[id]
		switch {
		case lives && sure[id]:
			out = append(out, fmt.Sprintf("machine %s was destroyed, as a client was told, and runs", id))
		case lives && !known:
			out = append(out, fmt.Sprintf("machine %s runs, and no member knows it", id))
		case lives && state != machine.Started:
			out = append(out, fmt.Sprintf("machine %s runs, and is said to be %s", id, state))
		case !lives && state == machine.Started:
			out = append(out, fmt.Sprintf("machine %s is said to be started, and does not run", id))
		}
	}
	return out, nil
}

// outside compares the members' answers with reality, until both agree or the time is over.
func (r *run) outside(ctx context.Context, ops []history.Op) error {
	sure := map[string]bool{}
	for _, o := range ops {
		if o.Kind == history.Destroy && o.Outcome == history.Yes && !r.forgot {
			sure[o.Machine] = true
		}
	}
	said, err := r.witness.said(!r.forgot)
	more, errInside := r.inside.sentences(!r.forgot)
	said = append(said, more...)
	if err = errors.Join(err, errInside); err != nil {
		return fault.Wrap(err, fault.Internal, codeWitness, "what the witnesses say cannot be read")
	}
	until, cancel := context.WithTimeout(ctx, agreeIn)
	defer cancel()
	var differ []string
	for {
		ms, err := r.ms[r.rng.IntN(len(r.ms))].cl.AllMachines(until, client.ListOptions{})
		if err == nil {
			if differ, err = r.witness.differ(ms, sure, r.inside); err == nil && len(differ) == 0 {
				break
			}
		}
		if wait(until, askPause) != nil {
			if err != nil {
				differ = append(differ, "machines cannot be listed: "+err.Error())
			}
			break
		}
	}
	r.rep.Containers = r.inside.count()
	r.say("from outside: %d machines looked at, %d containers seen, %d sentences", len(sure), r.rep.Containers,
		len(said)+len(differ))
	r.rep.Violations = append(r.rep.Violations, append(said, differ...)...)
	return ctx.Err()
}
