package jobs

import (
	"slices"
	"testing"

	"github.com/soukhq/souk/core/sbatch"
)

// TestEveryOptionOfSbatchIsKeptOrRefused: none that is read is dropped without a word.
func TestEveryOptionOfSbatchIsKeptOrRefused(t *testing.T) {
	for _, name := range sbatch.Names() {
		is := func(o option) bool { return o.name == name }
		kept := slices.ContainsFunc(honoured(), is) || slices.ContainsFunc(switches(), is)
		if refuses := refused()[name] != ""; kept == refuses {
			t.Errorf("--%s is kept: %t; is refused: %t", name, kept, refuses)
		}
	}
}
