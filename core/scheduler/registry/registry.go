// Package registry lists the scheduling architectures by name, and makes a scheduler.Strategy of a name. An
// architecture is written NAME, or NAME:N where it takes a number, such as sparrow:4 for four probes per task.
package registry

import (
	"slices"
	"strconv"
	"strings"

	"github.com/soukhq/souk/core/scheduler"
	"github.com/soukhq/souk/fault"
)

// maxNumber bounds N.
const maxNumber = 100_000

// About describes an architecture.
type About struct {
	Name        string `json:"name"`
	Paper       string `json:"paper"`              // and its sections, where they are known
	Number      string `json:"number,omitempty"`   // what N means in NAME:N; "": the architecture takes no number
	LeftOut     string `json:"left_out,omitempty"` // what of the paper is not implemented
	Constraints bool   `json:"-"`                  // tasks run only on workers of their job's kind (scheduler.Job.Kind)
}

// Options are what all architectures are built with, beyond the fleet and N.
type Options struct {
	Compat bool // reproduce the quirks of Eagle's simulator
}

// Names lists the names of the architectures, souk's own first.
func Names() []string {
	var names []string
	for _, a := range architectures() {
		names = append(names, a.Name)
	}
	return names
}

// Abouts describes the architectures, in the order of Names.
func Abouts() []About {
	var out []About
	for _, a := range architectures() {
		out = append(out, a.About)
	}
	return out
}

// Parse reads NAME or NAME:N, in lower case. N is from 1 to 100,000, and 0 if name has none: the architecture then has its
// default. The error is Invalid with scheduler.CodeScheduler: there is no such name, the architecture takes
// no number, or N is out of range.
func Parse(name string) (About, int, error) {
	a, n, err := lookUp(name)
	return a.About, n, err
}

// New builds the architecture NAME or NAME:N for a fleet. Its errors are those of Parse, and of the architecture's
// constructor.
func New(name string, fleet scheduler.Fleet, o Options) (scheduler.Strategy, error) {
	a, n, err := lookUp(name)
	if err != nil {
		return nil, err
	}
	return a.build(params{fleet, o, n})
}

// ParseList validates a list of NAME or NAME:N in any case, and returns them in lower case; "all" alone is Names. Its
// errors are those of Parse, and an empty list is Invalid, too.
func ParseList(names []string) ([]string, error) {
	if slices.Equal(names, []string{"all"}) {
		return Names(), nil
	}
	if len(names) == 0 {
		return nil, fault.New(fault.Invalid, scheduler.CodeScheduler, "no scheduler is named; there are %s",
			strings.Join(Names(), ", "))
	}
	out := make([]string, len(names))
	for i, name := range names {
		out[i] = strings.ToLower(strings.TrimSpace(name))
		if _, _, err := lookUp(out[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// lookUp finds the architecture of NAME or NAME:N, and N.
func lookUp(name string) (architecture, int, error) {
	base, number, has := strings.Cut(name, ":")
	all := architectures()
	i := slices.IndexFunc(all, func(a architecture) bool { return a.Name == base })
	if i < 0 {
		return architecture{}, 0, fault.New(fault.Invalid, scheduler.CodeScheduler,
			"no scheduler is named %q; there are %s", base, strings.Join(Names(), ", "))
	}
	a := all[i]
	if !has {
		return a, 0, nil
	}
	if a.Number == "" {
		return architecture{}, 0, fault.New(fault.Invalid, scheduler.CodeScheduler,
			"%s takes no number, and %q has one", base, name)
	}
	n, err := strconv.Atoi(number)
	if err != nil || n < 1 || n > maxNumber {
		return architecture{}, 0, fault.New(fault.Invalid, scheduler.CodeScheduler,
			"%q must end with the number of %s, from 1 to %d", name, a.Number, maxNumber)
	}
	return a, n, nil
}
