package oci

import (
	"context"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/reaper/engine"
)

// least is the oldest accepted version of an OCI runtime, and why.
type least struct {
	version []int
	because string
}

// For runsc the date is compared, which all of its versions contain: release-20260905.0, and Debian's 0.0~20221219.0.
var (
	leastRunc = least{[]int{1, 1, 5}, "it is that of Debian 12, and older ones are not tried"}
	// leastMended is the first runc without known vulnerabilities.
	leastMended  = least{[]int{1, 2, 8}, "older ones have holes"}
	leastSandbox = least{[]int{20221219}, "it is that of Debian 12, and older ones are not tried"}
	// leastConnected is the first runsc that supports machines with a network.
	leastConnected = least{[]int{20250205}, "older ones, as Debian 12's, cannot be in a user namespace and in a " +
		"network whose rules are the kernel's, at once"}
)

// leastOf returns the oldest accepted version of a runtime; an empty version for unknown runtimes.
func leastOf(name string) least {
	switch {
	case engine.Engine{Path: name}.Sandboxes():
		return leastSandbox
	case filepath.Base(name) == DefaultEngine:
		return leastRunc
	}
	return least{}
}

func (l least) String() string {
	s := make([]string, len(l.version))
	for i, n := range l.version {
		s[i] = strconv.Itoa(n)
	}
	return strings.Join(s, ".")
}

// isMet reports whether the version in a program's output is not older. Output without a readable version, such as that
// of a self-built runsc, is accepted.
func (l least) isMet(said string) bool {
	find := numbers
	if len(l.version) == 1 {
		find = dates
	}
	var have []int
	for _, s := range strings.FieldsFunc(find.FindString(said), func(r rune) bool { return r < '0' || r > '9' }) {
		n, _ := strconv.Atoi(s) // at most eight digits
		have = append(have, n)
	}
	return len(have) == 0 || len(l.version) == 0 || slices.Compare(have, l.version) >= 0
}

var (
	numbers = regexp.MustCompile(`[0-9]{1,6}\.[0-9]{1,6}(\.[0-9]{1,6})?`)
	dates   = regexp.MustCompile(`20[0-9]{6}`)
)

// versionPatience bounds the call that prints an OCI runtime's version.
const versionPatience = 5 * time.Second

// readVersion returns the first line of a runtime's --version output: "runc version 1.1.5+ds1".
func readVersion(ctx context.Context, path string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, versionPatience)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	first, _, _ := strings.Cut(string(out), "\n")
	return first, err
}

// examineEngine reports the version of an OCI runtime, and whether it is new enough.
func examineEngine(ctx context.Context, path string) cluster.Finding {
	v, err := readVersion(ctx, path)
	f := cluster.Finding{Name: "containers: " + filepath.Base(path), OK: err == nil, Have: path + ", " + v}
	if err != nil {
		f.Have = path + ": " + err.Error()
		f.Advice = "no container starts by it until it works: reinstall it, or name another (--containers)"
		return f
	}
	if l := leastOf(path); !l.isMet(v) {
		f.OK = false
		f.Advice = "it is older than " + l.String() + ", which is the least, for " + l.because +
			": install a newer one"
		return f
	}
	if err := Try(ctx, path); err != nil {
		f.OK, f.Have = false, f.Have+", runs no container: "+fault.As(err).Error()
		f.Advice = "machines of images do not start by it until it does: have another run them (--containers), or " +
			"put right what it says"
		return f
	}
	if err := checkConnectable(path, v); err != nil {
		f.Advice = fault.As(err).Text
	} else if filepath.Base(path) == DefaultEngine && !isMended(v) {
		f.Advice = "it may have the holes of November 2025 (CVE-2025-31133, CVE-2025-52565, CVE-2025-52881), " +
			"by which a container could write below /proc of its host. souk's user namespaces stand before them; " +
			"install runc " + leastMended.String() + " or newer, or your distribution's update"
	}
	return f
}

// isMended reports whether a runc of this version has no known vulnerabilities. The first versions of the 1.3 series
// also had those that leastMended fixes.
func isMended(said string) bool {
	of13 := least{version: []int{1, 3}}.isMet(said) && !least{version: []int{1, 4}}.isMet(said)
	return leastMended.isMet(said) && (!of13 || least{version: []int{1, 3, 3}}.isMet(said))
}

// Connectable returns why the containers of an OCI runtime ("": DefaultEngine) can have no network, judging by its
// version; nil if they can.
func Connectable(ctx context.Context, name string) error {
	path, err := findEngine(name)
	if err != nil {
		return err
	}
	v, err := readVersion(ctx, path)
	if err != nil {
		return fault.Wrap(
			err,
			fault.Precondition,
			runtime.CodeEngine,
			"the OCI runtime %s does not say which version it is",
			path,
		)
	}
	return checkConnectable(path, v)
}

func checkConnectable(path, said string) error {
	if leastOf(path).version == nil || !(engine.Engine{Path: path}).Sandboxes() || leastConnected.isMet(said) {
		return nil
	}
	return fault.New(fault.Precondition, fault.CodeNetwork,
		"machines run by %s can have no network: it is older than %s, and %s; install a newer one, or run them with "+
			"--network none", filepath.Base(path), leastConnected,
		leastConnected.because)
}
