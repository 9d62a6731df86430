// Package offers implements dominant resource fairness (Ghodsi et al., NSDI'11), by which two-level schedulers choose
// the framework to offer free resources to: the one with the smallest dominant share.
package offers

import "slices"

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

// Allocator keeps what clients use of resources that they share, and says which of them goes next: progressive filling by
// weighted dominant shares (sections 4.1 and 4.3 of the paper). All amounts have the dimensions of its capacity, in its
// order and units.
type Allocator struct {
	capacity []float64
	clients  []client
}

type client struct {
	used   []float64
	weight float64
}

// NewAllocator makes an allocator of resources, without clients.
func NewAllocator(capacity ...float64) *Allocator {
	return &Allocator{capacity: slices.Clone(capacity)}
}

// Grow adds to the capacity.
func (a *Allocator) Grow(by ...float64) {
	for i, x := range by {
		a.capacity[i] += x
	}
}

// Add adds a client that uses nothing, and returns its number: 0, 1 and so on. A weight that is not above 0 is 1. A client
// with twice the weight is due twice the dominant share.
func (a *Allocator) Add(weight float64) int {
	if !(weight > 0) {
		weight = 1
	}
	a.clients = append(a.clients, client{make([]float64, len(a.capacity)), weight})
	return len(a.clients) - 1
}

// Use counts amounts as used by a client.
func (a *Allocator) Use(client int, amounts ...float64) {
	for i, x := range amounts {
		a.clients[client].used[i] += x
	}
}

// Release ends what Use counted. No use falls below 0.
func (a *Allocator) Release(client int, amounts ...float64) {
	used := a.clients[client].used
	for i, x := range amounts {
		used[i] = max(0, used[i]-x)
	}
}

// Used returns what a client uses; nobody changes it.
func (a *Allocator) Used(client int) []float64 { return a.clients[client].used }

// Share returns a client's dominant share, by its weight.
func (a *Allocator) Share(client int) float64 {
	c := &a.clients[client]
	return Dominant(c.used, a.capacity) / c.weight
}

// Next returns the client with the least Share of those that may is true for, and of equal ones the first; -1: there is
// none.
func (a *Allocator) Next(may func(client int) bool) int {
	next, least := -1, 0.0
	for i := range a.clients {
		if !may(i) {
			continue
		}
		if s := a.Share(i); next < 0 || s < least {
			next, least = i, s
		}
	}
	return next
}
