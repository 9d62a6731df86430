package sbatch

import (
	"maps"
	"slices"
	"strings"

	"github.com/soukhq/souk/fault"
)

// Option is an option with its value.
type Option struct {
	Name  string // the long name
	Value string
	Given bool // it has a value, which may be ""
	At    Word
}

// takes says whether an option has a value.
type takes uint8

const (
	value    takes = iota // always
	nothing               // never
	optional              // only behind =
)

// known are the options that sbatch has and that Options reads, by long name, with their letters.
type known struct {
	letter byte // 0: none
	takes  takes
}

func options() map[string]known {
	return map[string]known{
		"account": {'A', value}, "array": {'a', value}, "begin": {'b', value}, "chdir": {'D', value},
		"comment": {0, value}, "constraint": {'C', value}, "cpus-per-task": {'c', value}, "deadline": {0, value},
		"dependency": {'d', value}, "error": {'e', value}, "exclude": {'x', value}, "exclusive": {0, optional},
		"export": {0, value}, "gpus": {'G', value}, "gpus-per-node": {0, value}, "gpus-per-task": {0, value},
		"gres": {0, value}, "hold": {'H', nothing}, "input": {'i', value}, "job-name": {'J', value},
		"kill-on-invalid-dep": {0, value}, "licenses": {'L', value}, "mail-type": {0, value}, "mail-user": {0, value},
		"mem": {0, value}, "mem-per-cpu": {0, value}, "nice": {0, optional}, "no-requeue": {0, nothing},
		"nodelist": {'w', value}, "nodes": {'N', value}, "ntasks": {'n', value}, "ntasks-per-node": {0, value},
		"open-mode": {0, value}, "output": {'o', value}, "parsable": {0, nothing}, "partition": {'p', value},
		"prefer": {0, value}, "priority": {0, value}, "qos": {'q', value}, "quiet": {'Q', nothing},
		"requeue": {0, nothing}, "reservation": {0, value}, "signal": {0, value}, "time": {'t', value},
		"verbose": {'v', nothing}, "wait": {'W', nothing}, "wrap": {0, value},
	}
}

// Letter returns the letter of an option; "": it has none.
func Letter(name string) string {
	if k := options()[name]; k.letter != 0 {
		return string(k.letter)
	}
	return ""
}

// Names lists the options that are known, in order.
func Names() []string { return slices.Sorted(maps.Keys(options())) }

// Options reads the words of a #SBATCH line or of a command line as options: up to the first word that is none, which
// is at rest. An option of sbatch that is not known here is an error.
func Options(words []Word) (out []Option, rest []Word, err error) {
	all := options()
	for len(words) > 0 {
		w := words[0]
		switch {
		case w.Text == "--":
			return out, words[1:], nil
		case w.Text == "-" || !strings.HasPrefix(w.Text, "-"):
			return out, words, nil
		}
		words = words[1:]
		var o Option
		if strings.HasPrefix(w.Text, "--") {
			if o, err = longOption(all, w); err != nil {
				return nil, nil, err
			}
		} else if o, words, err = letterOption(all, w, words); err != nil {
			return nil, nil, err
		}
		if all[o.Name].takes == value && !o.Given {
			if len(words) == 0 {
				return nil, nil, wrong(w, "%s wants a value", w.Text)
			}
			o.Value, o.Given, words = words[0].Text, true, words[1:]
		}
		out = append(out, o)
	}
	return out, nil, nil
}

// longOption reads --name or --name=value.
func longOption(all map[string]known, w Word) (o Option, err error) {
	o = Option{At: w}
	o.Name, o.Value, o.Given = strings.Cut(w.Text[2:], "=")
	k, is := all[o.Name]
	switch {
	case !is:
		return o, wrong(w, "--%s is not known here; options are those of \"souk sbatch --help\", written out", o.Name)
	case k.takes == nothing && o.Given:
		return o, wrong(w, "--%s has no value", o.Name)
	}
	return o, nil
}

// letterOption reads -x, -xVALUE, or the first of several letters without values, as in -HW.
func letterOption(all map[string]known, w Word, words []Word) (Option, []Word, error) {
	for name, k := range all {
		if k.letter == 0 || k.letter != w.Text[1] {
			continue
		}
		o := Option{Name: name, At: w}
		switch {
		case len(w.Text) == 2:
		case k.takes == nothing:
			next := Word{"-" + w.Text[2:], w.Line, w.Col + 1}
			words = slices.Insert(slices.Clone(words), 0, next)
		default:
			o.Value, o.Given = w.Text[2:], true
		}
		return o, words, nil
	}
	return Option{}, nil, wrong(w, "-%c is not known here; options are those of \"souk sbatch --help\"", w.Text[1])
}

// Wrong returns an error about an option, with its place.
func (o *Option) Wrong(format string, args ...any) error { return wrong(o.At, format, args...) }

func wrong(w Word, format string, args ...any) error {
	e := fault.New(fault.Invalid, fault.CodeJob, format, args...)
	if w.Line == 0 {
		return e
	}
	return fault.New(fault.Invalid, fault.CodeJob, "line %d, column %d: %s", w.Line, w.Col, e)
}
