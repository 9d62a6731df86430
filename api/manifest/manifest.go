// Package manifest reads souk.toml files, which describe an app's machines. It is pure, and returns API requests.
//
// A file is read strictly. An unknown key, or a value of the wrong type, is refused with its line, its column and what
// was wanted there. Variables such as $NAME are not expanded.
package manifest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// Manifest is the content of a file.
type Manifest struct {
	App     string // "": it names none
	Release api.NewRelease
}

// Loader reads files of one format.
type Loader interface {
	// Load reads a file. name is for errors, which are Invalid, code manifest, and begin with "NAME:LINE:COLUMN: ". It
	// checks the release's shape; the souk that gets the release checks the rest.
	Load(name string, text []byte) (*Manifest, error)
}

// TOML loads souk.toml.
type TOML struct{}

var _ Loader = TOML{}

// file is the top level of souk.toml.
type file struct {
	App    string           `json:"app"`
	Note   string           `json:"note,omitempty"`
	Groups map[string]group `json:"groups"`

	ReleaseCommand        []string          `json:"release_command,omitempty"`
	ReleaseCommandGroup   string            `json:"release_command_group,omitempty"`
	ReleaseCommandTimeout *machine.Duration `json:"release_command_timeout,omitempty"`
}

// group is a group of a release with the config of its machines inlined, and short forms of nested keys.
type group struct {
	short
	api.NewGroup
	machine.Config
	Mounts []mount `json:"mounts,omitempty"` // replaces the config's mounts
}

// mount is a mount whose volume may be given by its name, and by a size if it should be made.
type mount struct {
	machine.Mount
	Size *gigabytes `json:"size,omitempty"`
}

// short has the short forms of nested config keys, named like the flags of souk run.
type short struct {
	Command []string `json:"command,omitempty"` // for an image the arguments of its program; else the whole command
	Memory  *memory  `json:"memory,omitempty"`
	CPU     *cpu     `json:"cpu,omitempty"`
	CPUs    *int     `json:"cpus,omitempty"`
}

// elsewhere maps keys that do not belong in a group to where they belong.
func elsewhere() map[string]string {
	return map[string]string{
		"name":   "the group's name stands in its heading, as in [groups.web]",
		"config": "the keys of config stand in the group itself: image, env, services and so on",
	}
}

// memory is a size in MiB: 512, "512m" or "2g".
type memory int

// UnmarshalJSON reads a number of MiB or a text.
func (m *memory) UnmarshalJSON(raw []byte) error {
	mib, err := machine.ReadMebibytes("memory", unquoted(raw))
	*m = memory(mib)
	return err
}

// gigabytes is the size of a volume in whole GB: 10 or "10g".
type gigabytes int

// UnmarshalJSON reads a number of GB or a text.
func (g *gigabytes) UnmarshalJSON(raw []byte) error {
	text := strings.TrimSuffix(strings.TrimSuffix(strings.ToLower(unquoted(raw)), "b"), "g")
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return fault.New(fault.Invalid, fault.CodeSize,
			"the size of a volume is a whole number of GB, such as 10 or \"10g\", "+
				"not %s", fault.Clip(string(raw), 80))
	}
	*g = gigabytes(n)
	return nil
}

// cpu is thousandths of a core, written in cores: 0.3, 2 or "0.125".
type cpu int

// UnmarshalJSON reads a number of cores, or the same as a text.
func (c *cpu) UnmarshalJSON(raw []byte) error {
	milli, err := machine.ReadCPU(unquoted(raw))
	*c = cpu(milli)
	return err
}

// unquoted returns the text of a JSON string, and any other JSON unchanged.
func unquoted(raw []byte) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(raw)
}

// Load reads a souk.toml.
func (TOML) Load(name string, text []byte) (*Manifest, error) {
	d, err := parse(name, text)
	if err != nil {
		return nil, err
	}
	if err := d.value(d.tree, reflect.TypeFor[file](), nil); err != nil {
		return nil, err
	}
	raw, err := json.Marshal(d.tree)
	if err != nil {
		return nil, d.refuse(nil, "it holds a value that JSON cannot express: %v", err)
	}
	var f file
	if err := json.Unmarshal(raw, &f); err != nil {
		return nil, d.refuse(nil, "it cannot be read: %v", err)
	}
	if len(f.Groups) == 0 {
		return nil, d.refuse(nil, "it has no group, so there is nothing to run: add one, as in [groups.web] with an "+
			"image")
	}
	m := &Manifest{App: f.App, Release: api.NewRelease{Note: f.Note, ReleaseCommand: f.ReleaseCommand,
		ReleaseCommandGroup: f.ReleaseCommandGroup, ReleaseCommandTimeout: f.ReleaseCommandTimeout}}
	for _, name := range d.groups(&f) {
		g := f.Groups[name]
		if err := d.group(name, &g); err != nil {
			return nil, err
		}
		m.Release.Groups = append(m.Release.Groups, g.NewGroup)
	}
	return m, nil
}

// groups returns the names of the groups in the order in which the file has them.
func (d *document) groups(f *file) []string {
	names := make([]string, 0, len(f.Groups))
	for name := range f.Groups {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(d.at("groups", a).key, d.at("groups", b).key), strings.Compare(a, b))
	})
	return names
}

// group sets name, config and the short forms in a group's NewGroup.
func (d *document) group(name string, g *group) error {
	c := &g.Config
	g.NewGroup.Name, g.NewGroup.Config = name, c
	if c.Image == "" {
		c.Image = machine.HostImage
	}
	withKinds(c, machine.KindReadiness)
	if err := cmp.Or(d.command(name, g), d.mounts(name, g)); err != nil {
		return err
	}
	if g.Memory == nil && g.CPU == nil && g.CPUs == nil {
		return nil
	}
	if c.Size != "" {
		return d.refuse([]string{"groups", name, "size"}, "groups.%s.size is a preset, which does not go with memory, "+
			"cpu and cpus: say one of the two", name)
	}
	if g.CPU != nil && g.CPUs != nil {
		return d.refuse([]string{"groups", name, "cpu"}, "groups.%s has cpu and cpus, which both say how much CPU, "+
			"cpu in cores and cpus in CPUs of the kind: say one of them", name)
	}
	if c.Guest == nil {
		c.Guest = new(machine.Guest)
	}
	guest := c.Guest
	for key, both := range map[string]bool{"memory": g.Memory != nil && guest.MemoryMB != 0,
		"cpu":  g.CPU != nil && (guest.CPUMilli != 0 || guest.CPUs != 0),
		"cpus": g.CPUs != nil && (guest.CPUMilli != 0 || guest.CPUs != 0)} {
		if both {
			return d.refuse([]string{"groups", name, key}, "groups.%s.%s is said by groups.%s.guest, too: say it once",
				name, key, name)
		}
	}
	switch {
	case g.CPU != nil:
		guest.CPUMilli = int(*g.CPU)
	case g.CPUs != nil && *g.CPUs < 1:
		return d.refuse([]string{"groups", name, "cpus"}, "groups.%s.cpus is 1 or more, not %d", name, *g.CPUs)
	case g.CPUs != nil:
		guest.CPUs = *g.CPUs
	}
	if g.Memory != nil {
		guest.MemoryMB = int(*g.Memory)
	}
	return nil
}

// withKinds sets the kind of checks that have none. In a file the default is that requests and rollouts depend on a
// check, since a check in a file is meant to count. The API keeps the Machines API's default.
func withKinds(c *machine.Config, kind string) {
	checks := make(map[string]machine.CheckConfig, len(c.Checks))
	for name, ch := range c.Checks {
		if ch.Kind == nil || *ch.Kind == "" {
			ch.Kind = &kind
		}
		checks[name] = ch
	}
	if len(checks) > 0 {
		c.Checks = checks
	}
}

// mounts sets the mounts of a group's config.
func (d *document) mounts(name string, g *group) error {
	for i, m := range g.Mounts {
		at := []string{"groups", name, "mounts", strconv.Itoa(i)}
		switch {
		case m.Size == nil:
		case m.SizeGB != 0:
			return d.refuse(under(at, "size"), "%s.size and size_gb both say how large the volume is: say it once",
				text(at))
		case machine.ValidVolumeID(m.Volume):
			return d.refuse(under(at, "size"), "%s.size is for a volume by name, which a deploy makes where there is "+
				"none; %s is the id of one that is there: leave size out", text(at), m.Volume)
		default:
			m.SizeGB = int(*m.Size)
		}
		g.Config.Mounts = append(g.Config.Mounts, m.Mount)
	}
	return nil
}

// command sets what to run: the whole command for a program of the host, else the arguments of the image's program.
func (d *document) command(name string, g *group) error {
	init := &g.Config.Init
	switch {
	case len(g.Command) == 0:
	case len(init.Exec) > 0 || len(init.Cmd) > 0:
		return d.refuse([]string{"groups", name, "command"}, "groups.%s.command is said by groups.%s.init, too: say "+
			"it once", name, name)
	case machine.IsHostImage(g.Config.Image):
		init.Exec = g.Command
	default:
		init.Cmd = g.Command
	}
	return nil
}

// refuse returns an error with the position of a path of the file.
func (d *document) refuse(path []string, format string, args ...any) error {
	return d.wrong(d.at(path...).key, format, args...)
}

// wrong returns an error with the position of a byte of the file.
func (d *document) wrong(offset int, format string, args ...any) error {
	line, column := lineColumn(d.text, offset)
	return fault.New(fault.Invalid, api.CodeManifest,
		"%s:%d:%d: %s", d.name, line, column, fmt.Sprintf(format, args...))
}
