package manifest

import (
	"bytes"
	"encoding/json"

	"github.com/pelletier/go-toml/v2"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// Write prints a release of an app as a souk.toml that says the same. Groups are in the order of their names.
func Write(app string, r *api.NewRelease) ([]byte, error) {
	f := file{App: app, Note: r.Note, Groups: map[string]group{}, ReleaseCommand: r.ReleaseCommand,
		ReleaseCommandGroup: r.ReleaseCommandGroup, ReleaseCommandTimeout: r.ReleaseCommandTimeout}
	for _, g := range r.Groups {
		one := group{NewGroup: g}
		if g.Config != nil {
			one.Config = *g.Config
			for _, m := range g.Config.Mounts {
				one.Mounts = append(one.Mounts, mount{Mount: m})
			}
			withKinds(&one.Config, machine.KindInformational)
		}
		one.NewGroup.Name, one.NewGroup.Config = "", nil
		f.Groups[g.Name] = one
	}
	raw, err := json.Marshal(f)
	if err != nil {
		return nil, fault.Wrap(err, fault.Invalid, api.CodeManifest, "the release of %s cannot be written as TOML", app)
	}
	var tree map[string]any
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	if err := decoder.Decode(&tree); err != nil {
		return nil, fault.Wrap(err, fault.Invalid, api.CodeManifest, "the release of %s cannot be written as TOML", app)
	}
	groups, _ := tree["groups"].(map[string]any)
	for _, g := range groups {
		g, _ := g.(map[string]any)
		for key := range elsewhere() {
			delete(g, key)
		}
		if init, _ := g["init"].(map[string]any); len(init) == 0 {
			delete(g, "init")
		}
	}
	return toml.Marshal(machine.TOMLValue(tree))
}
