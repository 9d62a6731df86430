package api

import (
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/quota"
)

// Namespace describes a namespace: its apps, its budget, and what it spends.
type Namespace struct {
	Name   string        `json:"name"`
	Apps   []string      `json:"apps"`
	Budget *quota.Budget `json:"budget"` // null: no limit
	Weight float64       `json:"weight"` // weight of its fair share
	// Max is how much it may occupy at once: cores (cpu), GiB of memory and disk, GPUs (gpu), extras by their names.
	Max      quota.Caps        `json:"max,omitempty"`
	Balance  *float64          `json:"balance"`
	Owed     float64           `json:"owed"`  // spent, and not covered by the budget yet
	Spent    float64           `json:"spent"` // total, as counted by this cluster's workers
	Lent     float64           `json:"lent"`  // total that its lent machines would have cost
	Rate     float64           `json:"rate"`  // credits an hour, now
	LentRate float64           `json:"lent_rate"`
	Used     cluster.Resources `json:"used"`
	Machines int               `json:"machines"` // machines that occupy something
	Workers  []WorkerSpending  `json:"workers"`  // where it spends
}

// WorkerSpending is what a namespace spends on one worker.
type WorkerSpending struct {
	Worker cluster.WorkerID `json:"worker"`
	cluster.Spending
}

// NamespaceList lists namespaces.
type NamespaceList struct {
	Namespaces []Namespace `json:"namespaces"`
}

// NewNamespace is the request to create a namespace.
type NewNamespace struct {
	Name string `json:"name"`
}

// QuotaRequest sets a namespace's quota; a null budget means no limit.
type QuotaRequest struct {
	Budget *quota.Budget `json:"budget"`
	Weight *float64      `json:"weight,omitempty"` // null: unchanged
	Max    *quota.Caps   `json:"max,omitempty"`    // null: unchanged; {}: none
}

// AppNamespace is the namespace that pays for an app's machines.
type AppNamespace struct {
	Namespace string `json:"namespace"`
}
