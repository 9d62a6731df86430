package server

import (
	"strings"
	"testing"

	"github.com/soukhq/souk/cli"
)

// More memory than the host has may be offered, and that is said.
func TestOfferingMoreMemoryThanTheHostHasWarns(t *testing.T) {
	t.Parallel()
	has, err := cli.MemInfo("MemTotal")
	if err != nil {
		t.Fatal(err)
	}
	for offered, said := range map[int64]bool{0: false, 512: false, has: false, has + 1: true, 64 * has: true} {
		var errs strings.Builder
		warnMemory(&cli.Env{Err: &errs}, cli.Size(offered))
		if strings.Contains(errs.String(), "this host has") != said {
			t.Errorf("of %d MiB, on a host with %d, it says %q", offered, has, errs.String())
		}
	}
}
