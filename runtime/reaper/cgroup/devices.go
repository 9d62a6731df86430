package cgroup

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/opencontainers/cgroups"
	_ "github.com/opencontainers/cgroups/devices" // that fills in cgroups.DevicesSetV1 and DevicesSetV2
	device "github.com/opencontainers/cgroups/devices/config"

	"github.com/soukhq/souk/runtime/devices"
)

// rulesOf returns the rules of a group that may use all devices except those denied.
func rulesOf(d devices.Denied) ([]*device.Rule, error) {
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

// devicesController is the controller of v1. On v2 a BPF program does its work, without a controller.
const devicesController = "devices"

// KeepsDevices reports whether groups can be denied devices, by v1 or v2.
func (t *Tree) KeepsDevices() bool {
	return t != nil && (t.V1[devicesController] != "" || t.deniesByV2())
}

// Deny denies a group devices. Open devices stay usable.
func (g Group) Deny(d devices.Denied) error {
	rules, err := rulesOf(d)
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

// deniesByV2 reports whether the kernel accepts a BPF program for devices. It tries one that denies nothing on the
// reaper's group.
func (t *Tree) deniesByV2() bool {
	return t.V2 != "" && (&Tree{V2: t.V2}).Group(reaperGroup).Deny("") == nil
}
