package cgroup

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/opencontainers/cgroups"
	_ "github.com/opencontainers/cgroups/devices" // that fills in cgroups.DevicesSetV1 and DevicesSetV2
	device "github.com/opencontainers/cgroups/devices/config"
)

// AnyMinor stands for each node of a major number.
const AnyMinor = -1

// Node is a device by its numbers, as the kernel knows it, whatever it is called.
type Node struct {
	Block bool  `json:"block,omitempty"`
	Major int64 `json:"major"`
	Minor int64 `json:"minor"` // may be AnyMinor
}

// Denied is a list of devices that a group may not use: not open, and not make nodes of. It is a text, so that limits
// can be compared, one device a line, as cgroup v1 spells it: "c 195:0". The zero value denies nothing.
type Denied string

// Deny lists devices. Each counts once, in whatever order they come.
func Deny(nodes []Node) Denied {
	all := slices.Clone(nodes)
	slices.SortFunc(all, func(a, b Node) int {
		if a.Block != b.Block {
			if a.Block {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(a.Major, b.Major), cmp.Compare(a.Minor, b.Minor))
	})
	lines := make([]string, 0, len(all))
	for _, n := range slices.Compact(all) {
		kind, minor := "c", strconv.FormatInt(n.Minor, 10)
		if n.Block {
			kind = "b"
		}
		if n.Minor == AnyMinor {
			minor = "*"
		}
		lines = append(lines, kind+" "+strconv.FormatInt(n.Major, 10)+":"+minor)
	}
	return Denied(strings.Join(lines, "\n"))
}

// rules are those of a group that may use all that is not denied.
func (d Denied) rules() ([]*device.Rule, error) {
	rules := []*device.Rule{{Type: device.WildcardDevice, Major: device.Wildcard, Minor: device.Wildcard,
		Permissions: "rwm", Allow: true}}
	for line := range strings.Lines(string(d)) {
		kind, numbers, _ := strings.Cut(strings.TrimSpace(line), " ")
		left, right, _ := strings.Cut(numbers, ":")
		major, wrong := strconv.ParseUint(left, 10, 32)
		minor, err := int64(device.Wildcard), error(nil)
		if right != "*" {
			var n uint64
			n, err = strconv.ParseUint(right, 10, 32)
			minor = int64(n)
		}
		if kind != "c" && kind != "b" || wrong != nil || err != nil {
			return nil, fmt.Errorf("%.40q is no device", line)
		}
		rules = append(rules, &device.Rule{Type: device.Type(kind[0]), Major: int64(major), Minor: minor,
			Permissions: "rwm"})
	}
	return rules, nil
}

// devicesController is that of v1. On v2 a program that the kernel runs does its work, and needs no controller.
const devicesController = "devices"

// KeepsDevices says whether groups can be denied devices: whether there is a version that can.
func (t *Tree) KeepsDevices() bool {
	return t != nil && (t.V1[devicesController] != "" || t.deniesByV2())
}

// Deny has a group use no device that is denied. Those that are open stay so.
func (g Group) Deny(d Denied) error {
	rules, err := d.rules()
	if err != nil {
		return err
	}
	switch r := (&cgroups.Resources{Devices: rules}); {
	case g.t.V1[devicesController] != "":
		err = cgroups.DevicesSetV1(filepath.Join(g.t.V1[devicesController], g.name), r)
	case g.t.V2 != "":
		err = cgroups.DevicesSetV2(filepath.Join(g.t.V2, g.name), r)
	default:
		err = errors.New("no hierarchy can")
	}
	if err != nil {
		return fmt.Errorf("deny a cgroup devices: %w", err)
	}
	return nil
}

// deniesByV2 says whether the kernel takes a program that says which devices a group may use. It gives the reaper's
// group one that denies nothing.
func (t *Tree) deniesByV2() bool {
	return t.V2 != "" && (&Tree{V2: t.V2}).Group(reaperGroup).Deny("") == nil
}
