package api

import "github.com/soukhq/souk/cluster"

// ServiceWhy says of each replica of a service why it is where it is, or why it is not ready and what would help.
type ServiceWhy struct {
	Service  ServiceStatus `json:"service"`
	Replicas []ReplicaWhy  `json:"replicas"`       // in the order of the service's groups and slots
	Jobs     []JobWhy      `json:"jobs,omitempty"` // in the order of the service's
	// Missing lists workers that could not be asked: of their machines what was known stands in.
	Missing []cluster.WorkerID `json:"missing,omitempty"`
}

// ReplicaWhy explains one replica, or a machine that is one too many.
type ReplicaWhy struct {
	Group    string           `json:"group"`
	Index    int              `json:"index"`
	Machine  string           `json:"machine,omitempty"`
	Worker   cluster.WorkerID `json:"worker,omitempty"`
	Release  string           `json:"release,omitempty"` // for which the machine was made
	AsWanted bool             `json:"as_wanted"`         // it is ready, or rests until a request wakes it
	Why      string           `json:"why"`               // where it is as wanted, why it is at its worker; else why it is not
	Help     []string         `json:"help"`              // what would help, the smallest change first; where it is as wanted, to be spread evenly
}

// JobWhy explains a group that runs at times.
type JobWhy struct {
	Group    string   `json:"group"`
	AsWanted bool     `json:"as_wanted"` // it is off; or it runs, or has room to, and was started when it was due last
	Why      string   `json:"why"`
	Help     []string `json:"help"` // what would help, the smallest change first
}
