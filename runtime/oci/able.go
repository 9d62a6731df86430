package oci

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
)

// DefaultEngine is the OCI runtime where none is named.
const DefaultEngine = "runc"

// leastKernel is the first Linux that shows layers of an overlay by an idmapped mount.
var leastKernel = [2]int{5, 19} //nolint:gochecknoglobals // a constant

// Able returns why this host can run no containers by an OCI runtime ("": DefaultEngine), as far as that is seen before
// the first is started; nil when it can.
func Able(engine string) error {
	if uid := os.Geteuid(); uid != 0 {
		return fault.New(fault.Precondition, "containers",
			"containers need souk to be root, and it runs as user %d: run it as root (sudo)", uid)
	}
	if _, err := findEngine(engine); err != nil {
		return err
	}
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return fault.Wrap(err, fault.Precondition, "containers", "the kernel does not say what it is")
	}
	release := unix.ByteSliceToString(u.Release[:])
	if !atLeast(release, leastKernel) {
		return fault.New(
			fault.Precondition,
			"containers",
			"containers need Linux %d.%d or newer, and this is %s: use a "+
				"newer kernel",
			leastKernel[0],
			leastKernel[1],
			release,
		)
	}
	return nil
}

// atLeast compares a kernel's release, such as 6.1.0-18-amd64. What it cannot read is not refused.
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
		return "", fault.Wrap(err, fault.Precondition, "engine",
			"there is no OCI runtime %s on this host: install it (apt install runc), or name another", name)
	}
	return path, nil
}

// versionPatience bounds how long an OCI runtime may take to say its version.
const versionPatience = 5 * time.Second

// version returns the first line of what the runtime says of itself: "runc version 1.1.5+ds1".
func (r *Runtime) version(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, versionPatience)
	defer cancel()
	out, err := exec.CommandContext(ctx, r.engine, "--version").Output()
	first, _, _ := strings.Cut(string(out), "\n")
	return first, err
}

// Examine adds what there is for containers to what the process runtime says.
func (r *Runtime) Examine(ctx context.Context) []cluster.Finding {
	out := r.Runtime.Examine(ctx)
	v, err := r.version(ctx)
	f := cluster.Finding{Name: "containers: OCI runtime", OK: err == nil, Have: r.engine + ", " + v}
	if err != nil {
		f.Have = r.engine + ": " + err.Error()
		f.Advice = "no container starts until it works: reinstall it, or name another (--containers)"
	}
	out = append(out, f)
	if err := Able(r.engine); err != nil {
		out = append(out, cluster.Finding{Name: "containers: host", Have: fault.As(err).Text, Advice: "no container " +
			"starts here until that is so"})
	}
	f = cluster.Finding{Name: "containers: init", OK: r.init != "", Have: r.init}
	if r.init == "" {
		f.Have, f.Advice = "none", "a container's program is its process 1: it gets only the signals that it handles "+
			"and must wait for orphans; install tini (apt install tini) to have an init in each"
	}
	return append(append(out, f), r.examineNetwork())
}

// examineNetwork says whether containers can be given a network.
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
	return f
}
