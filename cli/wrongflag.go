package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/soukhq/souk/machine"
)

// WrongFlag rewrites a flag's error for command-line users.
func WrongFlag(cmd *cobra.Command, err error) error {
	text := err.Error()
	if e, is := errors.AsType[*pflag.InvalidValueError](err); is {
		f := e.GetFlag()
		switch kind := f.Value.Type(); {
		case f.Name == "cpus" && strings.Contains(e.GetValue(), ".") && cmd.Flags().Lookup("cpu") != nil:
			text = fmt.Sprintf("--cpus is a whole number, not %q; a part of a core is --cpu, such as --cpu 0.3",
				e.GetValue())
		case strings.HasPrefix(kind, "int"), strings.HasPrefix(kind, "uint"):
			text = fmt.Sprintf("--%s is a whole number, not %q", f.Name, e.GetValue())
		case strings.HasPrefix(kind, "float"):
			text = fmt.Sprintf("--%s is a number, not %q", f.Name, e.GetValue())
		case kind == "duration":
			text = fmt.Sprintf("--%s is a time such as 30s, 10m or 2h, not %q", f.Name, e.GetValue())
		case kind == "bool":
			text = fmt.Sprintf("--%s is on or off, --%s or --%s=false, not %q", f.Name, f.Name, f.Name, e.GetValue())
		case kind == "cores":
			text = fmt.Sprintf("--%s is in cores, at least %s and in thousandths, such as 0.3 or 2, not %q", f.Name,
				Cores(machine.MinCPUMilli), e.GetValue())
		case kind == PortsKind:
			text = fmt.Sprintf("--%s is written HOST:PORT or HOST:PORT/udp, a port of the worker's host and one of "+
				"the machine, such as 8080:80, or with an IP address of the host, such as 127.0.0.1:8080:80, not %q",
				f.Name, e.GetValue())
		case kind == LinesKind:
			text = fmt.Sprintf("--%s is a number of lines, 0 or more, not %q", f.Name, e.GetValue())
		case kind == "size":
			text = fmt.Sprintf("--%s is whole MiB, such as 512m or 2g, not %q", f.Name, e.GetValue())
		}
	}
	if e, is := errors.AsType[*pflag.NotExistError](err); is {
		switch name := e.GetSpecifiedName(); {
		case cmd.Name() == "exec" && name == "t":
			text += ": there is no terminal to be had yet; without -t a shell reads its commands from stdin"
		case name == "port" && cmd.Flags().Lookup("publish") != nil:
			text += ": a port of the worker's host that leads to one of the machine is --publish HOST:PORT"
		case len(name) > 1:
			if near := NearFlag(cmd.Flags(), name); near != "" {
				text += fmt.Sprintf("; did you mean --%s?", near)
			}
		}
	}
	return Usagef("%s; see \"%s --help\"", text, cmd.CommandPath())
}

// LinesKind is the kind of a flag that counts lines.
const LinesKind = "lines"

// PortsKind is the kind of a flag of ports.
const PortsKind = "ports"

// NearFlag returns the flag of a set whose name is at most two slips away from what was typed, the nearest; or "".
func NearFlag(of *pflag.FlagSet, typed string) string {
	near, least := "", 3
	of.VisitAll(func(f *pflag.Flag) {
		if d := slips(typed, f.Name); d < least && !f.Hidden {
			near, least = f.Name, d
		}
	})
	return near
}

// slips counts the insertions, deletions, changes and swaps of neighbours that turn a into b (optimal string alignment;
// Damerau 1964).
func slips(a, b string) int {
	before, last := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := 1
			if a[i-1] == b[j-1] {
				change = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}
