package mincost

// offer is an edge and the cost of a unit over it when it was last computed.
type offer struct {
	cost int64
	name int32
}

// offers is a heap, cheapest first. An edge may be in it twice.
type offers []offer

func (h *offers) pushOffer(o offer) {
	s := append(*h, o)
	*h = s
	for i := len(s) - 1; i > 0; {
		up := (i - 1) / 2
		if s[up].cost <= s[i].cost {
			return
		}
		s[up], s[i] = s[i], s[up]
		i = up
	}
}

// dropFirst removes the first.
func (h *offers) dropFirst() {
	s := *h
	s[0] = s[len(s)-1]
	*h = s[:len(s)-1]
	h.siftDown()
}

// siftDown moves the first to its place, after its cost rose.
func (h *offers) siftDown() {
	s := *h
	for i, k := 0, 1; k < len(s); k = 2*i + 1 {
		if k+1 < len(s) && s[k+1].cost < s[k].cost {
			k++
		}
		if s[i].cost <= s[k].cost {
			return
		}
		s[i], s[k] = s[k], s[i]
		i = k
	}
}
