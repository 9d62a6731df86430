package sim

import (
	"maps"
	"slices"

	core "github.com/soukhq/souk/core/backfill"
)

// SimulatedNames lists the names of the architectures that simulations has, sorted.
func SimulatedNames() []string { return slices.Sorted(maps.Keys(simulations())) }

// RigidMeans runs a case of rigid jobs, and returns the mean wait and the mean bounded slowdown.
func RigidMeans(dir string, c RigidCase, policy core.Policy, singly bool) (wait, bounded float64, err error) {
	m, err := runRigid(dir, c, policy, singly)
	return m.wait, m.bounded, err
}
