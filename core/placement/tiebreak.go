package placement

import (
	"cmp"
	"slices"

	"github.com/soukhq/souk/cluster"
)

// TieBreak returns the number by which workers of one score are put in order for a machine: lowest first. It depends on
// the two ids only, so that buyers with the same view put different workers first, and each of them always the same.
func TieBreak(machineID, worker string) uint64 {
	const prime = 1099511628211 // FNV-1a
	h := uint64(14695981039346656037)
	for i := range len(machineID) {
		h = (h ^ uint64(machineID[i])) * prime
	}
	h *= prime // a 0 between
	for i := range len(worker) {
		h = (h ^ uint64(worker[i])) * prime
	}
	return h
}

// Precedes reports whether worker a goes before worker b for a machine: by score, then by TieBreak, then by id, as Rank
// has it.
func Precedes(machineID string, a cluster.WorkerID, scoreOfA float64, b cluster.WorkerID, scoreOfB float64) bool {
	switch {
	case scoreOfA != scoreOfB:
		return cmp.Compare(scoreOfA, scoreOfB) > 0
	case a == b:
		return false
	}
	x, y := TieBreak(machineID, string(a)), TieBreak(machineID, string(b))
	return x < y || (x == y && a < b)
}

// SortByTieBreak puts workers in an order that depends on the machine's id only, whatever they score.
func SortByTieBreak[T any](list []T, machineID string, worker func(*T) string) {
	if len(list) < 2 {
		return
	}
	slices.SortFunc(list, func(a, b T) int {
		x, y := worker(&a), worker(&b)
		return cmp.Or(cmp.Compare(mixBits(TieBreak(machineID, x)), mixBits(TieBreak(machineID, y))), cmp.Compare(x, y))
	})
}

// mixBits spreads what the low bits of a tie break say over all (the last steps of MurmurHash3): FNV leaves ids that
// differ in their last digit close together.
func mixBits(h uint64) uint64 {
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}
