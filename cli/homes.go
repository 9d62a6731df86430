package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/soukhq/souk/fault"
)

// HomeWith returns the directory of a souk of this host, an agent or a souk dev, that contains piece (a file or
// directory, called what in messages): the given one, else the one that runs, else the first. If another could be
// meant, it prints a note.
func (c *Env) HomeWith(given, piece, what string) (string, error) {
	if given != "" {
		dir, err := c.DevDir(given)
		if err == nil && !has(dir, piece) {
			err = fault.New(fault.NotFound, fault.CodeDir,
				"%s has no %s: name the directory of a souk agent or a souk dev",
				dir, what)
		}
		return dir, err
	}
	return c.pick(c.Homes(), piece, what)
}

// pick is HomeWith without a given directory.
func (c *Env) pick(all []Home, piece, what string) (string, error) {
	homes := slices.DeleteFunc(slices.Clone(all), func(h Home) bool { return !has(h.Dir, piece) })
	if len(homes) == 0 {
		dirs := make([]string, len(all))
		for i, h := range all {
			dirs[i] = h.Dir
		}
		return "", fault.New(fault.NotFound, fault.CodeDir,
			"no souk of this host has a %s that this user can see, in %s: "+
				"name another directory with --dir", what, strings.Join(dirs, " or "))
	}
	at := max(0, slices.IndexFunc(homes, Home.answers))
	for i, h := range homes {
		if i != at {
			c.note(fmt.Sprintf("the %s of the %s of %s is taken; --dir %s takes the one of the %s", what,
				homes[at].Name, homes[at].Dir, h.Dir, h.Name), nil)
		}
	}
	return homes[at].Dir, nil
}

func has(dir, piece string) bool {
	_, err := os.Stat(filepath.Join(dir, piece))
	return err == nil
}
