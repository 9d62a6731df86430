package api

import "github.com/soukhq/souk/cluster"

// ServiceWhy explains each replica of a service: why it is where it is, or why it is not ready and what would help.
type ServiceWhy struct {
	Service  ServiceStatus `json:"service"`
	Replicas []ReplicaWhy  `json:"replicas"`       // in the order of the service's groups and slots
	Jobs     []JobWhy      `json:"jobs,omitempty"` // in the order of the service's
	// Missing lists workers that could not be asked: for their machines the last known state is used.
	Missing []cluster.WorkerID `json:"missing,omitempty"`
}

// ReplicaWhy explains one replica, or a surplus machine.
type ReplicaWhy struct {
	Group    string           `json:"group"`
	Index    int              `json:"index"`
	Machine  string           `json:"machine,omitempty"`
	Worker   cluster.WorkerID `json:"worker,omitempty"`
	Release  string           `json:"release,omitempty"` // the release that the machine was made for
	AsWanted bool             `json:"as_wanted"`         // it is ready, or rests until a request wakes it
	Why      string           `json:"why"`               // why it is at its worker, or why not as wanted
	Help     []string         `json:"help"`              // changes that would help, smallest first
}

// JobWhy explains a scheduled group.
type JobWhy struct {
	Group    string   `json:"group"`
	AsWanted bool     `json:"as_wanted"` // off; or running, or with room to run, and its last due run was started
	Why      string   `json:"why"`
	Help     []string `json:"help"` // what would help, smallest change first
}
