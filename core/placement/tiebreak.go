package placement

import (
	"cmp"
	"slices"

	"github.com/soukhq/souk/cluster"
)

// TieBreak returns the number by which workers of one score are put in order for a machine: lowest first. It depends
// on the two ids only, so that different machines prefer different workers, and each machine always the same one.
func TieBreak(machineID, worker string) uint64 {
	const prime = 1099511628211 // FNV-1a
	h := uint64(14695981039346656037)
	for i := range len(machineID) {
		h = (h ^ uint64(machineID[i])) * prime
	}
	h *= prime // a 0 byte between the two
	for i := range len(worker) {
		h = (h ^ uint64(worker[i])) * prime
	}
	return h
}

// Precedes reports whether worker a ranks before worker b for a machine: by score, then by TieBreak, then by ID, as in
// Rank.
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

// SortByTieBreak sorts workers by TieBreak alone, whatever their scores.
func SortByTieBreak[T any](list []T, machineID string, worker func(*T) string) {
	if len(list) < 2 {
		return
	}
	slices.SortFunc(list, func(a, b T) int {
		x, y := worker(&a), worker(&b)
		return cmp.Or(cmp.Compare(mixBits(TieBreak(machineID, x)), mixBits(TieBreak(machineID, y))), cmp.Compare(x, y))
	})
}

// mixBits spreads the low bits of a tie break over all bits (the last steps of MurmurHash3): FNV's hashes of IDs that
// differ in the last digit are close together.
func mixBits(h uint64) uint64 {
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}
