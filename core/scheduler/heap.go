package scheduler

// Heapify makes h a binary heap: no element is before its parent.
func Heapify[T any](h []T, before func(a, b *T) bool) {
	for i := len(h)/2 - 1; i >= 0; i-- {
		SiftDown(h, i, before)
	}
}

// SiftDown moves element i of a heap down to its place, after it has come to be later.
func SiftDown[T any](h []T, i int, before func(a, b *T) bool) {
	for {
		c := 2*i + 1
		if c >= len(h) {
			return
		}
		if c+1 < len(h) && before(&h[c+1], &h[c]) {
			c++
		}
		if !before(&h[c], &h[i]) {
			return
		}
		h[i], h[c] = h[c], h[i]
		i = c
	}
}
