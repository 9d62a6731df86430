package server

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// fileAliases are keys that a file may have beside the flags' names.
var fileAliases = map[string]string{"peers": "peer"}

// neverKept are the flags that a settings file may not have.
//
//nolint:gochecknoglobals // a constant
var neverKept = []string{"config", "help", "remove", "yes"}

// readFile sets the flags of a command that the file names and the command line does not: each key is the name of a
// flag, and a repeatable flag has a list. Attributes of both are merged. An unknown key or an invalid value is an error
// with its line.
func readFile(cmd *cobra.Command, file string) error {
	raw, err := os.ReadFile(file)
	if err != nil {
		return fault.Wrap(err, fault.Invalid, machine.CodeConfig, "the file %s cannot be read", file)
	}
	keys := map[string]any{}
	if err := toml.Unmarshal(raw, &keys); err != nil {
		if at, is := err.(*toml.DecodeError); is { //nolint:errorlint // it is returned as it is
			return cli.Usagef("%s cannot be read:\n%s", file, at.String())
		}
		return cli.Usagef("%s cannot be read: %v", file, err)
	}
	given := map[string]bool{}
	cmd.Flags().Visit(func(f *pflag.Flag) { given[f.Name] = true })
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		name := key
		if alias := fileAliases[key]; alias != "" {
			name = alias
		}
		f := cmd.Flags().Lookup(name)
		at := fmt.Sprintf("%s, line %d", file, lineOf(raw, key))
		if f == nil || slices.Contains(neverKept, name) || cmd.InheritedFlags().Lookup(name) != nil {
			text := fmt.Sprintf("%s: %s is no setting of souk agent", at, key)
			if near := cli.NearFlag(cmd.LocalFlags(), key); near != "" {
				text += "; did you mean " + near + "?"
			}
			return cli.Usagef("%s", text)
		}
		values, err := texts(keys[key])
		if err != nil {
			return cli.Usagef("%s: %s %v", at, key, err)
		}
		if given[name] && name != "attr" {
			continue
		}
		if err := setFlag(cmd, f, values); err != nil {
			return cli.Usagef("%s: %v", at, cli.WrongFlag(cmd, err))
		}
	}
	return nil
}

// setFlag sets a flag's values; a list keeps its earlier values, after the new ones.
func setFlag(cmd *cobra.Command, f *pflag.Flag, values []string) error {
	if list, is := f.Value.(pflag.SliceValue); is {
		if f.Changed {
			values = append(slices.Clone(values), list.GetSlice()...)
		}
		f.Changed = true
		return list.Replace(values)
	}
	if len(values) != 1 {
		return fmt.Errorf("--%s has one value, and no list", f.Name)
	}
	return cmd.Flags().Set(f.Name, values[0])
}

// texts returns a key's values as command-line texts.
func texts(value any) ([]string, error) {
	switch v := value.(type) {
	case []any:
		out := make([]string, 0, len(v))
		for _, x := range v {
			_, nested := x.([]any)
			one, err := texts(x)
			if err != nil || nested {
				return nil, fmt.Errorf("is a list of values, such as [\"a\", \"b\"]")
			}
			out = append(out, one...)
		}
		return out, nil
	case string, bool, int64, float64:
		return []string{fmt.Sprint(v)}, nil
	}
	return nil, fmt.Errorf("is a text, a number, true or false, or a list of them")
}

// lineOf returns the line of a key in the file.
func lineOf(raw []byte, key string) int {
	is := regexp.MustCompile(`^\s*(\[\[?\s*)?["']?` + regexp.QuoteMeta(key) + `\b`)
	for i, line := range strings.Split(string(raw), "\n") {
		if is.MatchString(line) {
			return i + 1
		}
	}
	return 1
}
