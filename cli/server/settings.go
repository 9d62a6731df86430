package server

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/pelletier/go-toml/v2"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// settingsFile is what the agent's unit names with --config.
const settingsFile = "/etc/souk/agent.toml"

const settingsHelp = "where settings for \"souk agent --config\" are written, unless they are there (default: " +
	settingsFile + " for root without --dir, else nowhere)"

// settingsOf returns the settings file for a new member: the user's choice, or the unit's for the default directory;
// "": none.
func settingsOf(given, dirGiven string) (string, error) {
	switch {
	case given != "":
		file, err := filepath.Abs(given)
		if err != nil {
			return "", fault.Wrap(err, fault.Invalid, machine.CodeConfig, "%q is no file", given)
		}
		return file, nil
	case dirGiven == "" && os.Geteuid() == 0:
		return settingsFile, nil
	}
	return "", nil
}

const settingsText = `# Settings of "souk agent --config". Each key is the flag of that name: souk agent --help.
dir = %s
#host   = "10.0.0.7"    # where the others reach this host; its first address, unless said
#region = "fra"
#attr   = ["zone=a"]
#pace   = "wan"         # over slow links, at every member
#dns    = "127.0.0.1:4253"
`

// writeSettings writes the settings of the member in dir, unless the file exists or is "", and returns a message about
// it.
func writeSettings(file, dir string) (string, error) {
	if file == "" {
		return "", nil
	}
	raw, err := os.ReadFile(file)
	if err == nil {
		var is struct {
			Dir string `toml:"dir"`
		}
		if err := toml.NewDecoder(bytes.NewReader(raw)).Decode(&is); err != nil || is.Dir != dir {
			return fmt.Sprintf("%s is left as it was; see that it says: dir = %s", file, tomlString(dir)), nil
		}
		return file + ", which was there", nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(filepath.Dir(file), 0o755); err == nil {
			err = cli.WriteWhole(file, fmt.Sprintf(settingsText, tomlString(dir)), 0o644)
		}
	}
	if err != nil {
		return "", fault.Wrap(err, fault.Unavailable, machine.CodeConfig,
			"the member is made, but its settings cannot be written to %s: write dir = %s into that file, or start "+
				"the member with souk agent --dir %s", file, tomlString(dir), dir)
	}
	return file, nil
}

// tomlString quotes a string for TOML.
func tomlString(s string) string {
	raw, err := toml.Marshal(map[string]string{"s": s})
	if err != nil { // the path is not UTF-8
		return fmt.Sprintf("%q", s)
	}
	_, value, _ := bytes.Cut(bytes.TrimSpace(raw), []byte("= "))
	return string(value)
}
