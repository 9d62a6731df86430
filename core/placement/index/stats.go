package index

// Stats is the size of an index.
type Stats struct {
	Workers int `json:"workers"`
	Cells   int `json:"cells"`   // cells of workers with about the same room, including empty ones
	Filled  int `json:"filled"`  // cells that are not empty
	Unsound int `json:"unsound"` // workers with impossible amounts, which every decision looks at
	Classes int `json:"classes"`
	Sets    int `json:"sets"`   // sets of workers that match the same requests
	Scores  int `json:"scores"` // cached scores of buckets for classes
}

// Stats returns the size of the index.
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
