package machine

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/soukhq/souk/fault"
)

// The bounds of a config. Bounds of the Machines API are the same here.
const (
	MaxEnv         = 1000          // variables
	MaxEnvValue    = 128<<10 - 256 // bytes of one variable or argument: Linux's limit, with room for the name
	MaxEnvTotal    = 512 << 10     // bytes of all variables
	MaxArgs        = 1024          // arguments of the command
	MaxMetadata    = 256           // entries
	MaxFiles       = 256           // files
	MaxFile        = 1 << 20       // bytes of a file
	MaxFilesTotal  = 4 << 20       // bytes of all files
	MaxMounts      = 8             // volumes of a machine
	MaxServices    = 64            // services
	MaxPorts       = 64            // ports of a service
	MaxChecks      = 64            // checks of a machine, and of a service
	MaxRetries     = 10000         // restarts after failures
	MaxSwapMB      = 1 << 16       // MiB
	MaxRootfsGB    = 1 << 16       // GiB
	MaxLeaseTTL    = 24 * 60 * 60  // seconds
	MaxStopTimeout = 300 * time.Second
)

// badConfig returns the error for an invalid config.
func badConfig(format string, args ...any) error {
	return fault.New(fault.Invalid, CodeConfig, format, args...)
}

// unsupportedError returns the error for a config that is valid elsewhere, but that souk cannot honour.
func unsupportedError(format string, args ...any) error {
	return fault.New(fault.Invalid, CodeUnsupported, format, args...)
}

// firstError returns the first non-nil error.
func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// Normalize fills in defaults, so that all later readers see the same: a guest of one shared CPU with 256 MB, or the
// guest that the deprecated size names. It changes nothing else that a user wrote. It is idempotent.
func (l *Launch) Normalize() {
	if l.Config != nil {
		l.Config.Normalize()
	}
}

// Validate returns the first problem of a normalized launch. Errors are Invalid and name the field by its path.
func (l *Launch) Validate() error {
	switch {
	case l.ID != "" && !ValidID(l.ID):
		return badConfig("id must be 14 of 0-9 and a-f, or be left out, not %s", quote(l.ID))
	case l.Name != "" && !ValidName(l.Name):
		return badConfig(
			"name must be 1 to 63 of a-z, 0-9, \"-\", \"_\" and \".\" with a letter or digit first, not %s",
			quote(l.Name))
	case l.Region != "" && !ValidRegion(l.Region):
		return badConfig("region must be 1 to 63 of a-z, 0-9 and \"-\", such as \"local\", not %s", quote(l.Region))
	case l.LeaseTTL < 0 || l.LeaseTTL > MaxLeaseTTL:
		return badConfig("lease_ttl must be 0 to %d seconds, not %d", MaxLeaseTTL, l.LeaseTTL)
	case l.CurrentVersion != "" && !ValidULID(l.CurrentVersion):
		return badConfig("current_version must be the instance_id the machine has now, not %s", quote(l.CurrentVersion))
	case l.Config == nil:
		return badConfig(
			"config is missing: send at least {\"config\": {\"image\": \"souk/host\", \"init\": {\"exec\": " +
				"[\"/bin/sleep\", \"60\"]}}}")
	}
	if l.Scheduling != nil {
		if why := l.Scheduling.Valid(); why != "" {
			return badConfig("scheduling: %s", why)
		}
	}
	return l.Config.Validate()
}

// Validate is Launch.Validate for a config alone. Paths begin with "config.".
func (c *Config) Validate() error {
	return firstError(c.checkSupported(), c.checkImage(), c.checkCommand(), c.checkEnv(), c.checkSize(),
		c.Guest.check(),
		c.checkMetadata(),
		c.checkMounts(), c.checkFiles(), c.checkLife(), c.checkServices(), c.checkNetwork())
}

// checkSupported refuses settings that would mean less isolation or lost data if they were ignored.
func (c *Config) checkSupported() error {
	switch {
	case len(c.Containers) > 0:
		return unsupportedError("config.containers is not supported: start one machine for each container")
	case len(c.Volumes) > 0:
		return unsupportedError("config.volumes is what config.containers share, and neither is supported: attach a " +
			"volume with config.mounts")
	case len(c.Processes) > 1:
		return unsupportedError("config.processes has %d entries and may have one: start one machine for each process",
			len(c.Processes))
	case c.Guest != nil && c.Guest.HostDedicationID != "":
		return unsupportedError(
			"config.guest.host_dedication_id is not supported: souk cannot keep other tenants off a " +
				"worker")
	case c.Restart != nil && c.Restart.Policy == "spot-price":
		return unsupportedError(
			"config.restart.policy \"spot-price\" is not supported, since souk has no spot prices: " +
				"choose no, on-failure or always")
	}
	for i, m := range c.Mounts {
		if m.Encrypted {
			return unsupportedError("config.mounts[%d].encrypted is not supported: souk would keep the data in the "+
				"clear; encrypt the worker's disk and leave it out", i)
		}
	}
	for i, f := range c.Files {
		if f.ImageConfig != nil {
			return unsupportedError("config.files[%d].image_config is not supported: give raw_value or secret_name", i)
		}
	}
	return nil
}

func (c *Config) checkImage() error {
	if c.Image == "" {
		return badConfig("config.image is missing: name an image, or \"souk/host\" to run the worker's own files")
	}
	return CheckImage(c.Image)
}

func (c *Config) checkCommand() error {
	for _, list := range []struct {
		name string
		args []string
	}{{"exec", c.Init.Exec}, {"entrypoint", c.Init.Entrypoint}, {"cmd", c.Init.Cmd}} {
		if err := checkArgs("config.init."+list.name, list.args); err != nil {
			return err
		}
	}
	if n := c.Init.SwapSizeMB; n != nil && (*n < 0 || *n > MaxSwapMB) {
		return badConfig("config.init.swap_size_mb must be 0 to %d, not %d", MaxSwapMB, *n)
	}
	for _, p := range c.Processes {
		if err := p.check(); err != nil {
			return err
		}
	}
	argv := Argv(c)
	if IsHostImage(c.Image) && len(argv) == 0 {
		return badConfig(
			"config.init.exec is missing: image %s brings no command of its own, so say what to run, such as "+
				"[\"/bin/sleep\", \"60\"]", HostImage)
	}
	if init := commandOf(c); len(argv) == 0 && init.clearsEntrypoint() {
		return badConfig(
			"config.init.entrypoint is [\"\"], which clears the image's own, and there is no other program: " +
				"name it in config.init.cmd")
	}
	if len(argv) > 0 && argv[0] == "" {
		return badConfig("config.init names an empty program: its first word must be a program, such as \"/bin/sh\"")
	}
	return nil
}

func (p ProcessConfig) check() error {
	const at = "config.processes[0]."
	if !hasOnly(p.User, func(c byte) bool { return tagByte(c) || c == ':' }) || len(p.User) > 64 {
		return badConfig(at+"user must be a user's name or number, with \":group\" if need be, not %s", quote(p.User))
	}
	for i, e := range p.EnvFrom {
		if err := checkEnvName(fmt.Sprintf(at+"env_from[%d].env_var", i), e.EnvVar); err != nil {
			return err
		}
		refs := []string{"id", "version", "app_name", "private_ip", "region", "image"}
		if !slices.Contains(refs, e.FieldRef) {
			return badConfig(at+"env_from[%d].field_ref must be one of %s, not %s", i, strings.Join(refs, ", "),
				quote(e.FieldRef))
		}
	}
	for i, s := range p.Secrets {
		if err := checkEnvName(fmt.Sprintf(at+"secrets[%d].env_var", i), s.EnvVar); err != nil {
			return err
		}
	}
	return firstError(checkArgs(at+"exec", p.Exec), checkArgs(at+"entrypoint", p.Entrypoint),
		checkArgs(at+"cmd", p.Cmd),
		checkEnv(at+"env", p.Env))
}

func checkArgs(at string, args []string) error {
	if len(args) > MaxArgs {
		return badConfig("%s has %d words and may have %d: put the rest into a file", at, len(args), MaxArgs)
	}
	for i, a := range args {
		switch {
		case strings.IndexByte(a, 0) >= 0:
			return badConfig("%s[%d] holds a zero byte, which no program can be given", at, i)
		case len(a) > MaxEnvValue:
			return badConfig("%s[%d] is %d bytes long and may be %d: put it into a file", at, i, len(a), MaxEnvValue)
		}
	}
	return nil
}

func (c *Config) checkEnv() error { return checkEnv("config.env", c.Env) }

func checkEnv(at string, env map[string]string) error {
	if len(env) > MaxEnv {
		return badConfig("%s has %d variables and may have %d: put the rest into a file", at, len(env), MaxEnv)
	}
	total := 0
	for _, k := range sortedKeys(env) {
		v := env[k]
		if err := checkEnvName(at, k); err != nil {
			return err
		}
		switch total += len(k) + len(v); {
		case strings.IndexByte(v, 0) >= 0:
			return badConfig("%s.%s holds a zero byte, which no variable can: encode the value", at, k)
		case len(v) > MaxEnvValue:
			return badConfig("%s.%s is %d bytes long and may be %d: put it into a file", at, k, len(v), MaxEnvValue)
		case total > MaxEnvTotal:
			return badConfig("%s is larger than %d bytes: put large values into files", at, MaxEnvTotal)
		}
	}
	return nil
}

func checkEnvName(at, name string) error {
	ok := name != "" && len(name) <= 255 && (name[0] < '0' || name[0] > '9') && hasOnly(name, tagByte)
	if !ok {
		return badConfig(
			"%s: a variable's name must be letters, digits, \"_\", \"-\" and \".\" without a digit first, "+
				"not %s", at, quote(name))
	}
	return nil
}

func (c *Config) checkMetadata() error {
	if len(c.Metadata) > MaxMetadata {
		return badConfig("config.metadata has %d entries and may have %d", len(c.Metadata), MaxMetadata)
	}
	for _, k := range sortedKeys(c.Metadata) {
		if err := CheckMetadata(k, c.Metadata[k]); err != nil {
			return err
		}
	}
	return nil
}

// CheckMetadata validates one entry of a machine's metadata.
func CheckMetadata(key, value string) error {
	switch {
	case key == "" || len(key) > 256 || !hasOnly(key, func(c byte) bool { return c > ' ' && c != 0x7f }):
		return badConfig("a metadata key must be 1 to 256 bytes without spaces and control characters, not %s",
			quote(key))
	case len(value) > 4096:
		return badConfig("the metadata value of %s is %d bytes long and may be 4096", quote(key), len(value))
	}
	return nil
}

// maxRuntime bounds the name of an OCI runtime, which becomes part of an attribute of workers.
const maxRuntime = 48

// checkRuntime validates the name of the OCI runtime that a machine asks for: the name of its program's file.
func checkRuntime(name, image string) error {
	plain := func(c byte) bool {
		return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-'
	}
	switch {
	case name == "":
		return nil
	case len(name) > maxRuntime || !hasOnly(name, plain):
		return badConfig(
			"config.runtime is the name of an OCI runtime, as runc or runsc: up to %d letters, digits and . _ -, "+
				"not %s",
			maxRuntime,
			quote(name),
		)
	case IsHostImage(image):
		return badConfig("config.runtime is for machines of an image: a program of the host is in no container")
	}
	return nil
}

// checkLife validates the settings for a machine's schedule, restart and stop.
func (c *Config) checkLife() error {
	if r := c.Rootfs; r != nil && r.SizeGB > MaxRootfsGB {
		return badConfig("config.rootfs.size_gb must be 0 to %d, not %d", MaxRootfsGB, r.SizeGB)
	}
	if r := c.Rootfs; r != nil && r.ReadOnly && IsHostImage(c.Image) {
		return badConfig(
			"config.rootfs.read_only is for machines of an image: a program of the host has no root of its own")
	}
	if s := c.SuspendTo; s != "" && s != ToMemory && s != ToDisk {
		return badConfig("config.suspend_to is %s or %s, not %s", ToMemory, ToDisk, quote(s))
	}
	if err := checkRuntime(c.Runtime, c.Image); err != nil {
		return err
	}
	if !slices.Contains([]string{"", "hourly", "daily", "weekly", "monthly"}, c.Schedule) {
		return badConfig("config.schedule must be hourly, daily, weekly or monthly, or be left out, not %s",
			quote(c.Schedule))
	}
	if r := c.Restart; r != nil {
		if !slices.Contains([]string{"", "no", "on-failure", "always"}, r.Policy) {
			return badConfig("config.restart.policy must be no, on-failure or always, not %s", quote(r.Policy))
		}
		if r.MaxRetries < 0 || r.MaxRetries > MaxRetries {
			return badConfig("config.restart.max_retries must be 0 to %d, not %d", MaxRetries, r.MaxRetries)
		}
	}
	if s := c.StopConfig; s != nil {
		if s.Timeout != nil && (s.Timeout.Duration < 0 || s.Timeout.Duration > MaxStopTimeout) {
			return badConfig("config.stop_config.timeout must be 0s to %v, not %v", MaxStopTimeout, s.Timeout.Duration)
		}
		if s.Signal != nil && *s.Signal != "" {
			if _, err := ParseSignal(*s.Signal); err != nil {
				return badConfig("config.stop_config.signal: %s", fault.As(err).Text)
			}
		}
	}
	return nil
}

func quote(s string) string {
	if len(s) > 64 {
		s = strings.ToValidUTF8(s[:61], "") + "..."
	}
	return strconv.Quote(s)
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
