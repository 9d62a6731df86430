// Package offers is dominant resource fairness (Ghodsi et al., NSDI'11), the rule by which two-level schedulers choose
// whom to offer what is free: who has the least of what it has most of.
package offers

// Dominant returns the largest share that used is of capacity in any dimension. A dimension of which there is nothing
// counts only when something of it is used.
func Dominant(used, capacity []float64) float64 {
	share := 0.0
	for i, u := range used {
		if u > 0 {
			share = max(share, u/capacity[i])
		}
	}
	return share
}
