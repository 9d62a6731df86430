package api

// SchedulerDefault is the scheduler of jobs that name none, in a namespace or the cluster.
type SchedulerDefault struct {
	Namespace string `json:"namespace,omitempty"` // "": the cluster
	Scheduler string `json:"scheduler"`           // which such a job gets; market is souk's own auction
	// From is where it is set: namespace, cluster, or souk where it is set nowhere
	From string `json:"from"`
}

// SchedulerDefaultList lists the cluster's default scheduler, and then those of the namespaces by name.
type SchedulerDefaultList struct {
	Defaults []SchedulerDefault `json:"defaults"`
}

// SchedulerChoice names the scheduler that becomes a default: NAME or NAME:N of "souk schedulers".
type SchedulerChoice struct {
	Scheduler string `json:"scheduler"`
}
