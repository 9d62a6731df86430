// Package offers implements dominant resource fairness (Ghodsi et al., NSDI'11), by which two-level schedulers choose
// the framework to offer free resources to: the one with the smallest dominant share.
package offers

// Dominant returns the largest share that used is of capacity in any dimension. A dimension without capacity counts
// only if some of it is used.
func Dominant(used, capacity []float64) float64 {
	share := 0.0
	for i, u := range used {
		if u > 0 {
			share = max(share, u/capacity[i])
		}
	}
	return share
}
