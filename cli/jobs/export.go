package jobs

import (
	"maps"
	"slices"
	"strings"

	"github.com/soukhq/souk/cli"
)

// notExported lists variables that ALL leaves out: those of this shell alone, what opens souk here, and those that a worker
// sets as a login there does.
func notExported() []string {
	return []string{"_", "HOME", "LOGNAME", "OLDPWD", "PWD", "SHELL", "SHLVL", "SOUK_ADDR", "SOUK_TOKEN", "USER"}
}

// exported returns the variables that --export sends, of an environment of NAME=VALUE. Its text is ALL, NONE, or a list of
// NAME and NAME=VALUE, which may begin with ALL.
func exported(text string, environ []string) (map[string]string, error) {
	out := map[string]string{}
	if text == "" || text == "NONE" {
		return out, nil
	}
	here := map[string]string{}
	for _, kv := range environ {
		if name, value, _ := strings.Cut(kv, "="); name != "" {
			here[name] = value
		}
	}
	for i, part := range strings.Split(text, ",") {
		name, value, given := strings.Cut(part, "=")
		switch there := false; {
		case i == 0 && part == "ALL":
			maps.Copy(out, here)
			maps.DeleteFunc(out, func(name, _ string) bool { return slices.Contains(notExported(), name) })
			continue
		case name == "" || part == "ALL" || part == "NONE":
			return nil, cli.Usagef("--export is ALL, NONE, or NAME and NAME=VALUE with commas between them, which ALL "+
				"may come before, not %q", text)
		case !given:
			if value, there = here[name]; !there {
				continue // unset here, unset there
			}
		}
		out[name] = value
	}
	return out, nil
}
