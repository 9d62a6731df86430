// Package needs skips tests whose host lacks a program or feature, and says how to install it. With CI=true, where
// everything is installed, they fail instead.
package needs

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// packages lists the Debian packages of programs that a bare Debian lacks. "make test" installs from the same list.
//
//go:embed packages
var packages string

// Programs skips a test if one of these programs is not on the PATH, or fails it in CI.
//
// t must be the test's own, not its parent's: testing lets no test skip another, and panics.
func Programs(t testing.TB, names ...string) {
	t.Helper()
	if err := Lacks(names...); err != nil {
		Skip(t, err)
	}
}

// Lacks says which of these programs are not on the PATH, and how to install them; nil: all are installed.
func Lacks(names ...string) error {
	var missing, from []string
	for _, name := range names {
		if _, err := exec.LookPath(name); err != nil {
			missing = append(missing, name)
			from = append(from, Packages()[name]...)
		}
	}
	switch {
	case len(missing) == 0:
		return nil
	case len(from) == 0:
		return fmt.Errorf("this needs %s", strings.Join(missing, ", "))
	}
	return fmt.Errorf("this needs %s (Debian: apt-get install %s)", strings.Join(missing, ", "),
		strings.Join(from, " "))
}

// Skip skips a test for a reason, or fails it in CI.
func Skip(t testing.TB, why error) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(why)
	}
	t.Skip(why)
}

// Packages returns the Debian packages of each program that a bare Debian lacks.
func Packages() map[string][]string {
	all := map[string][]string{}
	for line := range strings.Lines(packages) {
		if words := strings.Fields(line); len(words) > 1 && words[0] != "#" {
			all[words[0]] = words[1:]
		}
	}
	return all
}
