package cluster

import "time"

// Spending is what the machines of one namespace spend on one worker, in credits (package quota). That worker is its
// only writer: Spent and Lent only grow, over restarts too. What it says is as of At, but for Rate and LentRate, which
// are of now.
type Spending struct {
	Spent    float64   `json:"spent"`               // charged since the worker has known the namespace
	Lent     float64   `json:"lent,omitempty"`      // what its lent machines would have cost
	Owed     float64   `json:"owed,omitempty"`      // of Spent, what the budget has not made good yet
	Rate     float64   `json:"rate,omitempty"`      // being charged, per hour
	LentRate float64   `json:"lent_rate,omitempty"` // not charged, per hour
	Used     Resources `json:"used,omitzero"`       // what its machines occupy
	Machines int       `json:"machines,omitempty"`  // that occupy something
	At       time.Time `json:"at,omitzero"`
}
