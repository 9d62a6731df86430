package worker

import (
	"encoding/base64"
	"maps"
	"slices"
	"strconv"

	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/devices"
)

// defaultPath is the PATH of a machine that runs a host program and whose config sets none.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// runtimeSpec converts a machine to a runtime's spec. Secrets are fetched only for a launch, at that moment, and are
// not stored.
func (e *effects) runtimeSpec(t lifecycle.Target, launch bool) (runtime.Spec, error) {
	m := t.Machine
	c := m.Config
	s := runtime.Spec{
		Machine: m.ID, Attempt: t.Attempt, Fresh: t.Fresh, App: m.App, Image: machine.Pinned(m),
		Argv: machine.Argv(c), User: machine.User(c), Home: true, TTY: c.Init.TTY,
		ReadOnly: c.Rootfs != nil && c.Rootfs.ReadOnly, Runtime: c.Runtime, Resources: machine.Resources(c),
		SharedCPU: c.Guest == nil || c.Guest.CPUKind != "performance", SwapMB: -1,
		Network: machine.NetworkOf(c), Devices: t.DeviceIDs,
	}
	if args := machine.Args(c); args != nil && !machine.IsHostImage(c.Image) {
		s.Argv, s.Args = nil, args
	}
	if c.Init.SwapSizeMB != nil {
		s.SwapMB = *c.Init.SwapSizeMB
	}
	for _, mt := range c.Mounts {
		s.Mounts = append(s.Mounts, runtime.Mount{Volume: mt.Volume, Dir: e.disks.volumeAt(mt.Volume), Path: mt.Path})
	}
	if !launch {
		return s, nil
	}
	s.Attach = t.Attach
	login, err := e.runAsOwner(m, &s)
	if err != nil {
		return s, err
	}
	secrets := map[string]string{}
	if e.secrets != nil && !t.SkipSecrets {
		got, err := e.secrets(m)
		if err != nil {
			return s, fault.Wrap(err, fault.Unavailable, codeSecrets, "the secrets of app %s cannot be read", m.App)
		}
		secrets = got
	}
	given, missing := machine.Secrets(c, secrets)
	if len(missing) > 0 {
		return s, fault.New(fault.Precondition, fault.CodeSecret,
			"the machine wants the secrets %q, and the app has none of these names; set them first", missing)
	}
	s.Env = devices.SetEnv(login, environmentOf(m, string(e.disks.worker), t, given))
	s.Files, err = configFiles(c, secrets)
	return s, err
}

// environmentOf returns a machine's whole environment: the platform's names, then the app's secrets, then the config's
// own, and last its GPUs and its fencing token, which neither secrets nor config may hide.
func environmentOf(m *machine.Machine, worker string, t lifecycle.Target, secrets map[string]string) []string {
	n := strconv.FormatUint(t.Attempt, 10)
	env := map[string]string{
		"FLY_APP_NAME": m.App, runtime.EnvMachine: m.ID, "FLY_ALLOC_ID": m.ID,
		"FLY_REGION": m.Region, "PRIMARY_REGION": m.Region,
		"FLY_MACHINE_VERSION": m.InstanceID, "FLY_PRIVATE_IP": m.PrivateIP, "FLY_IMAGE_REF": m.Config.Image,
		"SOUK_APP": m.App, "SOUK_MACHINE": m.ID, "SOUK_NAME": m.Name, "SOUK_REGION": m.Region,
		"SOUK_WORKER": worker, "SOUK_ATTEMPT": n,
	}
	if machine.IsHostImage(m.Config.Image) { // an image has its own PATH
		env["PATH"], env["LANG"] = defaultPath, "C.UTF-8"
	}
	if g := m.Config.Metadata["fly_process_group"]; g != "" {
		env["FLY_PROCESS_GROUP"] = g
	}
	if len(m.Config.Services) > 0 {
		env["PORT"] = strconv.Itoa(m.Config.Services[0].InternalPort)
	}
	maps.Copy(env, secrets)
	maps.Copy(env, machine.Environment(m))
	maps.Copy(env, t.DevicesEnv())
	env["SOUK_FENCE"] = strconv.FormatUint(machine.Fence(m, t.Attempt), 10)
	out := make([]string, 0, len(env))
	for k, v := range env {
		out = append(out, k+"="+v)
	}
	slices.Sort(out)
	return out
}

// configFiles returns the files of a config with their contents.
func configFiles(c *machine.Config, secrets map[string]string) ([]runtime.File, error) {
	out := make([]runtime.File, 0, len(c.Files))
	for _, f := range c.Files {
		raw := stringOf(f.RawValue)
		if name := stringOf(f.SecretName); name != "" {
			v, ok := secrets[name]
			if !ok {
				return nil, fault.New(fault.Precondition, fault.CodeSecret,
					"file %s wants the secret %s, and the app has none of that name; set it first", f.GuestPath, name)
			}
			raw = v
		}
		data, err := base64.StdEncoding.DecodeString(raw)
		if err != nil {
			return nil, fault.New(fault.Invalid, fault.CodeFile, "the content of file %s is not base64", f.GuestPath)
		}
		mode := f.Mode
		switch {
		case mode != 0:
		case stringOf(f.SecretName) != "":
			mode = 0o600
		default:
			mode = 0o644
		}
		out = append(out, runtime.File{Path: f.GuestPath, Mode: mode, Data: data})
	}
	return out, nil
}

func stringOf(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
