package index

// Stats is the size of an index.
type Stats struct {
	Workers int `json:"workers"`
	Cells   int `json:"cells"`   // of workers with about the same room, the empty ones too
	Filled  int `json:"filled"`  // of them, those that are not empty
	Unsound int `json:"unsound"` // workers whose amounts make no sense, which every decision looks at
	Classes int `json:"classes"`
	Sets    int `json:"sets"`   // of workers that match alike
	Scores  int `json:"scores"` // that are kept, of buckets for classes
}

// Stats tells how large the index is.
func (x *Index) Stats() Stats {
	s := Stats{Workers: len(x.byID), Cells: len(x.cells), Filled: x.filled, Unsound: len(x.unsound)}
	for _, b := range x.caches {
		s.Classes += len(b.classes)
		s.Sets += len(b.sets)
		for _, c := range b.classes {
			s.Scores += len(c.order.scores)
		}
	}
	return s
}
