package image

import (
	"slices"
	"strings"
	"time"
)

// candidate is an image that a collection may remove.
type candidate struct {
	digest string
	used   time.Time
	fixed  bool     // pinned, or in use by an operation
	parts  []string // the parts of the store that it needs
}

// planCollection returns the images and parts to remove so that at most budget bytes are left: first parts that no
// image needs, then images, the least recently used first, with the parts that only they need. It removes neither fixed
// images nor parts for which kept returns true.
func planCollection(all []candidate, sizes map[string]int64, kept func(part string) bool, budget int64) (images,
	parts []string) {
	needed, total := map[string]int{}, int64(0)
	for _, c := range all {
		for _, p := range sortUnique(c.parts) {
			needed[p]++
		}
	}
	for p, size := range sizes {
		if needed[p] == 0 && !kept(p) {
			parts = append(parts, p)
			continue
		}
		total += size
	}
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b candidate) int {
		if c := a.used.Compare(b.used); c != 0 {
			return c
		}
		return strings.Compare(a.digest, b.digest)
	})
	for _, c := range all {
		if total <= budget {
			break
		}
		if c.fixed {
			continue
		}
		images = append(images, c.digest)
		for _, p := range sortUnique(c.parts) {
			needed[p]--
			if size, there := sizes[p]; there && needed[p] == 0 && !kept(p) {
				parts = append(parts, p)
				total -= size
			}
		}
	}
	slices.Sort(parts)
	return images, parts
}

func sortUnique(parts []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(parts)))
}
