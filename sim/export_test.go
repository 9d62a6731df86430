package sim

import core "github.com/soukhq/souk/core/backfill"

// RigidMeans runs a case of rigid jobs, and returns the mean wait and the mean bounded slowdown.
func RigidMeans(dir string, c RigidCase, policy core.Policy, singly bool) (wait, bounded float64, err error) {
	m, err := runRigid(dir, c, policy, singly)
	return m.wait, m.bounded, err
}
