package oci

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/hostnet"
	"github.com/soukhq/souk/runtime/reaper/cgroup"
	"github.com/soukhq/souk/runtime/reaper/engine"
)

// DefaultEngine is the OCI runtime if none is configured. Sandbox is the runtime whose containers have their own kernel
// (gVisor).
const (
	DefaultEngine = "runc"
	Sandbox       = "runsc"
)

// leastKernel is the first Linux that supports idmapped layers in an overlay.
var leastKernel = [2]int{5, 19} //nolint:gochecknoglobals // a constant

// Able returns why this host cannot run containers by an OCI runtime ("": DefaultEngine), as far as that is visible
// without a start; nil if it can.
func Able(engine string) error {
	if uid := os.Geteuid(); uid != 0 {
		return fault.New(fault.Precondition, runtime.CodeContainers,
			"containers need souk to be root, and it runs as user %d: run it as root (sudo)", uid)
	}
	if _, err := findEngine(engine); err != nil {
		return err
	}
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return fault.Wrap(err, fault.Precondition, runtime.CodeContainers, "the version of the kernel cannot be read")
	}
	release := unix.ByteSliceToString(u.Release[:])
	if !atLeast(release, leastKernel) {
		return fault.New(
			fault.Precondition,
			runtime.CodeContainers,
			"containers need Linux %d.%d or newer, and this is %s: use a "+
				"newer kernel",
			leastKernel[0],
			leastKernel[1],
			release,
		)
	}
	if err := cgroup.Able(); err != nil {
		return fault.New(fault.Precondition, runtime.CodeContainers,
			"containers need cgroups, and souk can make none here (%v): give it a cgroup file system that it can "+
				"write, as a systemd unit with Delegate=yes has", err)
	}
	return nil
}

// atLeast compares a kernel's release, such as 6.1.0-18-amd64. An unreadable release is accepted.
func atLeast(release string, want [2]int) bool {
	var major, minor int
	if n, err := fmt.Sscanf(release, "%d.%d", &major, &minor); n < 2 || err != nil {
		return true
	}
	return major > want[0] || major == want[0] && minor >= want[1]
}

func findEngine(name string) (string, error) {
	if name == "" {
		name = DefaultEngine
	}
	path, err := exec.LookPath(name)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return "", fault.Wrap(err, fault.Precondition, runtime.CodeEngine,
			"there is no OCI runtime %s on this host: install it (apt install %s), or name another", name,
			filepath.Base(name))
	}
	return path, nil
}

// Examine adds findings about containers to those of the process runtime.
func (r *Runtime) Examine(ctx context.Context) []cluster.Finding {
	out := r.Runtime.Examine(ctx)
	for _, e := range r.engines {
		out = append(out, examineEngine(ctx, e.path))
	}
	if err := Able(r.engines[0].path); err != nil {
		out = append(out, cluster.Finding{Name: "containers: host", Have: fault.As(err).Text, Advice: "no container " +
			"starts here until that is so"})
	}
	f := cluster.Finding{Name: "containers: init", OK: r.init != "", Have: r.init}
	if r.init == "" {
		f.Have, f.Advice = "none", "a container's program is its process 1: it gets only the signals that it handles "+
			"and must wait for orphans; install tini (apt install tini) to have an init in each"
	}
	out = append(out, f, r.examineNetwork(), r.examineSleep())
	if n := r.network; n != nil && n.Between != nil {
		out = append(out, n.Between())
	}
	return out
}

// examineSleep reports which machines can be suspended to disk.
func (r *Runtime) examineSleep() cluster.Finding {
	f := cluster.Finding{Name: "containers: suspend to disk", Have: "those by "}
	for _, e := range r.engines {
		if (engine.Engine{Path: e.path}).Checkpoints() == nil {
			f.OK, f.Have = true, f.Have+e.name+" without network"
		}
	}
	switch {
	case r.awake != nil:
		f.OK, f.Have = false, fault.As(r.awake).Error()
		f.Advice = "machines are suspended in memory"
	case !f.OK:
		f.Have = "none"
		f.Advice = "runc has no checkpoints that souk uses, so machines are suspended in memory: add runsc " +
			"(--containers runc,runsc), and run those with --runtime runsc --network none"
	}
	return f
}

// examineNetwork reports whether containers can have a network.
func (r *Runtime) examineNetwork() cluster.Finding {
	f := cluster.Finding{Name: "containers: network", OK: true, Have: "a link and an address for each"}
	switch {
	case r.network == nil:
		f.OK, f.Have, f.Advice = false, "loopback alone", "this worker was started without networks for containers"
	case r.network.Lacks != nil:
		f.OK, f.Have = false, fault.As(r.network.Lacks).Error()
		f.Advice = "images that want a network are refused here: load what is named, or run them with --network none"
	case r.network.AllowHost:
		f.Have += ", or the host's (--allow-host-network)"
	}
	if lost, err := hostnet.Unguarded(); err == nil && len(lost) > 0 {
		f.OK, f.Have = false, fmt.Sprintf("containers whose rules on this host are gone (nftables, table inet %s)",
			strings.Join(lost, ", inet "))
		f.Advice = "something removes them again and again, or souk is not running: they reach the host, and their " +
			"published ports are not reached; see souk's log, and \"nft monitor\" for who it is"
	}
	if !f.OK || r.network == nil {
		return f
	}
	if err := hostnet.Blocked(); err != nil {
		f.OK, f.Have = false, fault.As(err).Error()
		f.Advice = "programs of the host, souk's proxy among them, reach containers all the same; souk lays such " +
			"rules where it is told the chain (--forward-chain)"
	}
	return f
}
