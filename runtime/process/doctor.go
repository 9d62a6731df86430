package process

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/reaper"
	"github.com/soukhq/souk/runtime/reaper/cgroup"
	"github.com/soukhq/souk/runtime/reaper/proc"
)

// Examine reports what this host provides for machines and what it lacks.
func (r *Runtime) Examine(ctx context.Context) []cluster.Finding {
	var out []cluster.Finding
	add := func(name string, ok bool, have, advice string) {
		f := cluster.Finding{Name: name, OK: ok, Have: have}
		if !ok {
			f.Advice = advice
		}
		out = append(out, f)
	}
	root := os.Geteuid() == 0
	add("process: root", root, fmt.Sprintf("souk runs as user %d", os.Geteuid()),
		"without root, machines run as souk's own user and can do what souk can, a config's user is refused, and "+
			"volumes and files are below a machine's directory only; run souk as root to have them")
	s, err := r.link.liveSession(ctx)
	if err != nil {
		add("process: reaper", false, err.Error(), "machines cannot be started until it runs; see "+reaper.LogFile+
			" in "+r.o.Dir)
		return append(out, r.diskFinding())
	}
	add("process: reaper", true, fmt.Sprintf("pid %d, protocol %d", s.welcome.PID, s.welcome.Version), "")
	if root {
		add("process: users of machines", s.welcome.NoUsers == "", cmp.Or(s.welcome.NoUsers, "one for each"),
			"machines start only with a user that is named (souk run --user)")
		add("process: view of machines", s.welcome.View, yesNo(s.welcome.View),
			"machines with volumes or files are refused, and others must be let through to their directories; souk "+
				"needs CAP_SYS_ADMIN and a /run that can be written; see "+reaper.LogFile+" in "+r.o.Dir)
	}
	add("process: reaper is of this build", s.welcome.Build == Build(), s.welcome.Build,
		"it works; it is replaced the next time it is started")
	out = append(out, examineTree(s.welcome.Tree, s.welcome.Lacks)...)
	out = append(out, r.examineDevices(s.welcome.Tree)...)
	if s.welcome.Tree == nil {
		out = append(out, r.findStrays(ctx, s.welcome.PID))
	}
	fd, err := unix.PidfdOpen(os.Getpid(), 0)
	if err == nil {
		_ = unix.Close(fd)
	}
	add("process: pidfd", err == nil, yesNo(err == nil),
		"when the reaper itself is killed, machines are not found again (Linux 5.3 has it)")
	add("process: exit code by pidfd", reaper.HasExitInfo(), yesNo(reaper.HasExitInfo()),
		"when the reaper itself was killed, a machine that ends later is told as lost, without its code (Linux 6.15 "+
			"has it)")
	add("process: logs", true, fmt.Sprintf("%d files of %d KiB a machine", r.o.LogFiles, r.o.LogFileBytes>>10), "")
	return append(out, r.diskFinding())
}

// examineDevices reports the host's devices, and whether they can be denied to machines that do not hold them.
func (r *Runtime) examineDevices(t *cgroup.Tree) []cluster.Finding {
	out := r.o.Devices.Examine()
	if r.o.Devices.Denied(nil) == "" {
		return out
	}
	f := cluster.Finding{Name: "process: devices are kept from others", OK: t.KeepsDevices(),
		Have: yesNo(t.KeepsDevices())}
	if !f.OK {
		f.Advice = "a program of the host may open a GPU that its machine was not granted; run souk as root, with " +
			"cgroup v2 or the devices controller of v1"
	}
	return append(out, f)
}

// examineTree reports which cgroup features work.
func examineTree(t *cgroup.Tree, lacks []string) []cluster.Finding {
	version := "none"
	if t != nil {
		switch {
		case t.V2 != "" && len(t.V1) > 0:
			version = "v1 and v2 (hybrid)"
		case t.V2 != "":
			version = "v2"
		default:
			version = "v1"
		}
	}
	out := []cluster.Finding{{
		Name: "process: cgroups", OK: t != nil, Have: version,
	}}
	if t == nil {
		out[0].Advice = "limits are not enforced, and a process that leaves its session, its directory and its " +
			"environment may outlive its machine; run souk as root (" + strings.Join(lacks, "; ") + ")"
	}
	for _, c := range []struct{ name, lost string }{
		{"cpu", "machines are not held to their CPU"},
		{"memory", "machines are not held to their memory, and an OOM kill is not told as one"},
		{"pids", "a fork bomb in one machine can take all processes of the worker"},
	} {
		f := cluster.Finding{Name: "process: " + c.name + " limit", OK: t.Has(c.name), Have: yesNo(t.Has(c.name))}
		if !f.OK {
			f.Advice = c.lost + "; give souk the " + c.name + " controller"
		}
		out = append(out, f)
	}
	freezer := t != nil && t.Group("x").CanFreeze()
	f := cluster.Finding{Name: "process: freezer", OK: freezer, Have: yesNo(freezer)}
	if !freezer {
		f.Advice = "a machine is suspended by SIGSTOP, which it can notice"
	}
	return append(out, f)
}

// findStrays finds processes left behind by machines: without cgroups, a process that leaves its session and its
// directory, and drops its environment, cannot be attributed to a machine. Such processes are children of the reaper,
// since it adopts orphans.
func (r *Runtime) findStrays(ctx context.Context, parent int) cluster.Finding {
	f := cluster.Finding{Name: "process: strays", OK: true, Have: "none"}
	all, err := r.List(ctx)
	if err != nil {
		return cluster.Finding{Name: f.Name, Have: err.Error(), Advice: "see that the reaper runs"}
	}
	kids, _ := proc.Children(parent)
	var found []string
	for _, pid := range kids {
		p, err := proc.Read(pid)
		// the last: a fork that has not executed its program yet
		if err != nil || p.State == 'Z' || proc.Has(pid, reaper.EnvDir+"="+r.o.Dir) ||
			slices.ContainsFunc(all, func(s runtime.Status) bool {
				return s.Running && (s.PID == pid || proc.In(pid, s.PID, reaper.RootDir(r.o.Dir, s.Machine)) ||
					proc.Has(pid, runtime.EnvMachine+"="+s.Machine))
			}) {
			continue
		}
		found = append(found, fmt.Sprintf("%d (%s)", pid, p.Name))
	}
	if len(found) > 0 {
		f.OK, f.Have = false, fault.Clip(fmt.Sprintf("%d: %s", len(found), strings.Join(found, ", ")), 200)
		f.Advice = "machines left these processes behind: look what they are, and end them (kill)"
	}
	return f
}

// minFree is the free disk space in bytes that a worker should have.
const minFree = 1 << 30

func (r *Runtime) diskFinding() cluster.Finding {
	f := cluster.Finding{Name: "process: disk"}
	var st unix.Statfs_t
	if err := unix.Statfs(r.o.Dir, &st); err != nil {
		f.Have, f.Advice = err.Error(), "the directory "+r.o.Dir+" must be readable"
		return f
	}
	free := int64(st.Bavail) * st.Bsize
	f.OK, f.Have = free >= minFree, fmt.Sprintf("%d MiB free in %s", free>>20, r.o.Dir)
	if !f.OK {
		f.Advice = "free some: when the disk is full, output of machines is dropped and none can be started"
	}
	return f
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
