package faults

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/cli/check/history"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/test/netns"
)

// leastStall and mostStall bound how long processes are stopped.
const (
	leastStall = 5 * time.Second
	mostStall  = time.Minute
)

// stall stops the agent of a member, its reaper, or both, like a paused virtual machine.
func (r *run) stall(ctx context.Context) error {
	for end := time.Now().Add(r.o.For); time.Now().Before(end); {
		m := r.ms[r.rng.IntN(len(r.ms))]
		kinds := [][]string{{"agent"}, {"reaper"}, {"agent", "reaper"}}[r.rng.IntN(3)]
		still := min(leastStall, r.o.For)
		if more := min(r.o.For, mostStall) - still; more > 0 {
			still += time.Duration(r.rng.Int64N(int64(more)))
		}
		r.say("%s of %s stand still for %v", strings.Join(kinds, " and "), m.id, still)
		if slices.Contains(kinds, "agent") {
			r.batch.isDown(m)
		}
		for _, k := range kinds {
			m.signal(k, syscall.SIGSTOP)
		}
		err := wait(ctx, still)
		for _, k := range kinds {
			m.signal(k, syscall.SIGCONT)
		}
		r.batch.isUp(m.id)
		if err != nil {
			return err
		}
	}
	return nil
}

// killReapers kills reapers, but not their agents.
func (r *run) killReapers(ctx context.Context) error {
	for end := time.Now().Add(r.o.For); time.Now().Before(end); {
		m := r.ms[r.rng.IntN(len(r.ms))]
		m.signal("reaper", syscall.SIGKILL)
		r.rep.Kills++
		r.say("the reaper of %s is killed", m.id)
		if err := wait(ctx, time.Duration(r.rng.Int64N(int64(time.Second)))); err != nil {
			return err
		}
	}
	return nil
}

// flap cuts the links of some hosts for half a second of each second.
func (r *run) flap(ctx context.Context) error {
	for end := time.Now().Add(r.o.For); time.Now().Before(end); {
		cut := map[int]bool{}
		for _, i := range r.rng.Perm(len(r.hosts))[:1+r.rng.IntN(len(r.hosts)-1)] {
			cut[i] = true
		}
		for i := range r.hosts {
			if !cut[i] {
				continue
			}
			if err := errors.Join(r.hosts[i].Deafen(r.hosts...), deafenAll(r.hosts, r.hosts[i])); err != nil {
				return err
			}
		}
		if err := wait(ctx, 500*time.Millisecond); err != nil {
			return err
		}
		if err := r.hosts.Heal(); err != nil {
			return err
		}
		if err := wait(ctx, 500*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

func deafenAll(hosts netns.Hosts, to *netns.Host) (err error) {
	for _, h := range hosts {
		err = errors.Join(err, h.Deafen(to))
	}
	return err
}

// firewall drops packets to a member's port for calls, but not its gossip; another member every few seconds.
func (r *run) firewall(ctx context.Context) error {
	port, err := strconv.Atoi(strings.TrimPrefix(wirePort, ":"))
	if err != nil {
		return err
	}
	for end := time.Now().Add(r.o.For); time.Now().Before(end); {
		i := r.rng.IntN(len(r.ms))
		r.say("nobody can call %s", r.ms[i].id)
		if err := r.hosts[i].Shut(port); err != nil {
			return err
		}
		more := time.Duration(r.rng.Int64N(int64(5 * time.Second)))
		if err := wait(ctx, min(time.Until(end), 3*time.Second+more)); err != nil {
			return err
		}
		if err := r.hosts[i].Heal(); err != nil {
			return err
		}
	}
	return nil
}

// lostFile removes a file of a member's worker while its agent is down, and starts the agent: it must refuse to serve,
// or have lost nothing. Then it restores the file.
func (r *run) lostFile(ctx context.Context) error {
	for end := time.Now().Add(r.o.For); time.Now().Before(end); {
		m := r.ms[r.rng.IntN(len(r.ms))]
		op := r.down(m)
		m.kill(false)
		away := filepath.Join(r.o.Dir, "away")
		file, err := r.takeFile(m, away)
		if err != nil {
			return err
		}
		r.say("%s starts without %s", m.id, strings.TrimPrefix(file, m.dir+"/"))
		if err := m.start(); err != nil {
			return err
		}
		try, cancel := context.WithTimeout(ctx, 3*time.Second)
		served := m.ready(try) == nil
		cancel()
		if served {
			r.say("%s serves without it", m.id)
		} else {
			r.say("%s does not serve without it", m.id)
			m.kill(false)
			if err := os.Rename(away, file); err != nil {
				return err
			}
			if err := errors.Join(m.start(), m.ready(ctx)); err != nil {
				return err
			}
		}
		r.up(op)
		if err := wait(ctx, time.Duration(r.rng.Int64N(int64(time.Second)))); err != nil {
			return err
		}
	}
	return nil
}

// takeFile renames one of a worker's files, and returns its path. The reaper lives on, and may remove a file meanwhile:
// then it is another one.
func (r *run) takeFile(m *member, away string) (file string, err error) {
	for range 20 {
		files, err := filesBelow(filepath.Join(m.dir, "worker"))
		if err != nil {
			return "", err
		}
		if len(files) == 0 {
			break
		}
		file = files[r.rng.IntN(len(files))]
		if err = os.Rename(file, away); !errors.Is(err, fs.ErrNotExist) {
			return file, err
		}
	}
	return "", fault.New(fault.Internal, codeFiles, "%s has no files", m.id)
}

// filesBelow lists a worker's persistent files, without those made at each start, and without machines' output.
func filesBelow(dir string) (out []string, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it has gone meanwhile
		}
		if err == nil && d.IsDir() && d.Name() == "logs" {
			return fs.SkipDir
		}
		if err == nil && d.Type().IsRegular() {
			out = append(out, path)
		}
		return err
	})
	slices.Sort(out)
	return out, err
}

// exhaust limits a member's agent and reaper to the file descriptors that they have.
func (r *run) exhaust(ctx context.Context) error {
	m := r.ms[r.rng.IntN(len(r.ms))]
	before := map[int]unix.Rlimit{}
	for _, pid := range slices.Concat(m.processes("agent"), m.processes("reaper")) {
		open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
		if err != nil {
			continue // it has ended
		}
		least, was := uint64(len(open)), unix.Rlimit{}
		if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &was); err != nil {
			continue
		}
		before[pid] = was
		if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: least, Max: was.Max}, nil); err != nil {
			return err
		}
	}
	r.say("%d processes of %s may open no more files", len(before), m.id)
	err := wait(ctx, r.o.For)
	for pid, was := range before {
		_ = unix.Prlimit(pid, unix.RLIMIT_NOFILE, &was, nil) // it may have ended
	}
	return errors.Join(err, m.ready(ctx))
}

// powerLoss kills some hosts at once, and their disks keep only synced data, with which they boot.
func (r *run) powerLoss(ctx context.Context) error {
	order := r.rng.Perm(len(r.ms))
	order = order[:1+r.rng.IntN(len(order))]
	ops := map[int]history.Op{}
	for _, i := range order {
		m := r.ms[i]
		ops[i] = r.down(m)
		if err := cutPower(m.dir); err != nil {
			return err
		}
		m.powerOff()
	}
	r.rep.Kills += len(order)
	// Running hosts see the new boot id, too, but start nothing meanwhile that reads it.
	if err := netns.NewBoot(); err != nil {
		return err
	}
	for _, i := range order {
		m := r.ms[i]
		if err := errors.Join(mountAgain(ctx, m.dir), m.start(), m.ready(ctx)); err != nil {
			return err
		}
		r.up(ops[i])
	}
	return wait(ctx, r.o.For)
}
