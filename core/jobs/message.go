package jobs

import "github.com/soukhq/souk/cluster"

// Hello is a buyer's first message to a worker.
type Hello struct {
	Buyer cluster.WorkerID `json:"buyer"`          // its member
	Jobs  []string         `json:"jobs,omitempty"` // IDs of all its jobs
	// Epochs are the epochs of those jobs for which they are not 0: it has these from others.
	Epochs map[string]int `json:"epochs,omitempty"`
}

// Message is a report with the output of the tasks in its results.
type Message struct {
	Report
	Outputs [][]byte // of Results, in the same order; NDJSON of machine.LogLine
}
