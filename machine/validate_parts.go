package machine

import (
	"encoding/base64"
	"fmt"
	"path"
	"slices"
	"strings"
)

// checkPath requires an absolute, clean path: no "..", no doubled slash, not the root itself.
func checkPath(at, p string) error {
	if p == "" || p[0] != '/' || p == "/" || len(p) > 4096 || path.Clean(p) != p || strings.IndexByte(p, 0) >= 0 {
		return badConfig(
			"%s must be an absolute path below \"/\" without \"..\", \"//\" and a slash at its end, such as "+
				"\"/etc/app.conf\", not %s", at, quote(p))
	}
	return nil
}

func (c *Config) checkMounts() error {
	if len(c.Mounts) > MaxMounts {
		return badConfig("config.mounts has %d volumes and may have %d", len(c.Mounts), MaxMounts)
	}
	for i, m := range c.Mounts {
		at := fmt.Sprintf("config.mounts[%d]", i)
		if !ValidVolumeID(m.Volume) {
			return badConfig("%s.volume must be the id of a volume, such as \"vol_4qrz8j\", not %s", at,
				quote(m.Volume))
		}
		if err := checkPath(at+".path", m.Path); err != nil {
			return err
		}
		if m.Name != "" && !ValidName(m.Name) {
			return badConfig("%s.name must be the name of the volume or be left out, not %s", at, quote(m.Name))
		}
		for _, o := range c.Mounts[:i] {
			if o.Volume == m.Volume {
				return badConfig("%s.volume %s is mounted twice: mount it once", at, m.Volume)
			}
			if isWithin(o.Path, m.Path) || isWithin(m.Path, o.Path) {
				return badConfig("%s.path %s lies in or over %s, where another volume is mounted: choose another path",
					at,
					quote(m.Path), quote(o.Path))
			}
		}
	}
	return nil
}

// isWithin reports whether p is dir or below it.
func isWithin(p, dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") }

func (c *Config) checkFiles() error {
	if len(c.Files) > MaxFiles {
		return badConfig("config.files has %d files and may have %d: put them into a volume", len(c.Files), MaxFiles)
	}
	total := 0
	seen := map[string]bool{}
	for i, f := range c.Files {
		at := fmt.Sprintf("config.files[%d]", i)
		n, err := f.check(at)
		if err != nil {
			return err
		}
		if seen[f.GuestPath] {
			return badConfig("%s.guest_path %s is written twice: write it once", at, quote(f.GuestPath))
		}
		seen[f.GuestPath] = true
		if total += n; total > MaxFilesTotal {
			return badConfig("config.files are larger than %d bytes together: put large files into a volume",
				MaxFilesTotal)
		}
	}
	return nil
}

// check validates one file and returns its size in bytes, 0 for a secret.
func (f File) check(at string) (int, error) {
	if err := checkPath(at+".guest_path", f.GuestPath); err != nil {
		return 0, err
	}
	if f.Mode > 0o777 {
		return 0, badConfig("%s.mode must be permission bits up to 511 (0777), not %d", at, f.Mode)
	}
	switch {
	case f.RawValue != nil && f.SecretName != nil:
		return 0, badConfig("%s has both raw_value and secret_name: give one", at)
	case f.SecretName != nil:
		if *f.SecretName == "" {
			return 0, badConfig("%s.secret_name is empty: name a secret", at)
		}
		return 0, nil
	case f.RawValue == nil:
		return 0, badConfig("%s has no content: give raw_value (base64) or secret_name", at)
	}
	data, err := f.Data()
	if err != nil {
		return 0, badConfig("%s.raw_value is not base64: encode the content with base64", at)
	}
	if len(data) > MaxFile {
		return 0, badConfig("%s is %d bytes long and may be %d: put it into a volume", at, len(data), MaxFile)
	}
	return len(data), nil
}

// Data decodes the raw value.
func (f File) Data() ([]byte, error) {
	if f.RawValue == nil {
		return nil, nil
	}
	return base64.StdEncoding.DecodeString(*f.RawValue)
}

func (c *Config) checkServices() error {
	if err := c.checkCreated(); err != nil {
		return err
	}
	if err := CheckServices(c.Services); err != nil {
		return err
	}
	if err := c.checkChecks(); err != nil {
		return err
	}
	if m := c.Metrics; m != nil {
		return checkPort("config.metrics.port", m.Port)
	}
	return nil
}

func checkPort(at string, p int) error {
	if p < 1 || p > 65535 {
		return badConfig("%s must be 1 to 65535, not %d", at, p)
	}
	return nil
}

func (s Service) check(at string) error {
	if !slices.Contains([]string{"", "tcp", "udp"}, s.Protocol) {
		return badConfig("%s.protocol must be tcp or udp, not %s", at, quote(s.Protocol))
	}
	if err := checkPort(at+".internal_port", s.InternalPort); err != nil {
		return err
	}
	if s.MinMachinesRunning != nil && *s.MinMachinesRunning < 0 {
		return badConfig("%s.min_machines_running must not be below 0, as %d is", at, *s.MinMachinesRunning)
	}
	if err := s.checkOwn(at); err != nil {
		return err
	}
	if len(s.Ports) > MaxPorts {
		return badConfig("%s.ports has %d ports and may have %d", at, len(s.Ports), MaxPorts)
	}
	for i, p := range s.Ports {
		if err := p.check(fmt.Sprintf("%s.ports[%d]", at, i)); err != nil {
			return err
		}
	}
	if k := s.Concurrency; k != nil {
		if !slices.Contains([]string{"", "connections", "requests"}, k.Type) {
			return badConfig("%s.concurrency.type must be connections or requests, not %s", at, quote(k.Type))
		}
		if k.SoftLimit < 0 || k.HardLimit < 0 || k.HardLimit > 0 && k.SoftLimit > k.HardLimit {
			return badConfig("%s.concurrency must have 0 <= soft_limit <= hard_limit, not %d and %d", at, k.SoftLimit,
				k.HardLimit)
		}
	}
	if len(s.Checks) > MaxChecks {
		return badConfig("%s.checks has %d checks and may have %d", at, len(s.Checks), MaxChecks)
	}
	for i, ch := range s.Checks {
		if err := ch.check(fmt.Sprintf("%s.checks[%d]", at, i)); err != nil {
			return err
		}
	}
	return nil
}

func (p Port) check(at string) error {
	for _, n := range []struct {
		name string
		port *int
	}{{"port", p.Port}, {"start_port", p.StartPort}, {"end_port", p.EndPort}} {
		if n.port != nil {
			if err := checkPort(at+"."+n.name, *n.port); err != nil {
				return err
			}
		}
	}
	if p.StartPort != nil && p.EndPort != nil && *p.StartPort > *p.EndPort {
		return badConfig("%s.start_port %d lies behind end_port %d: turn them round", at, *p.StartPort, *p.EndPort)
	}
	return nil
}
