package cluster

import "time"

// Spending is what the machines of one namespace spend on one worker, in credits (package quota). That worker is its
// only writer: Spent and Lent only grow, over restarts too. The amounts are as of At; Rate and LentRate are current.
type Spending struct {
	Spent    float64   `json:"spent"`               // charged since the worker has known the namespace
	Lent     float64   `json:"lent,omitempty"`      // what its lent machines would have cost
	Owed     float64   `json:"owed,omitempty"`      // the part of Spent that the budget has not covered yet
	Rate     float64   `json:"rate,omitempty"`      // current charge, per hour
	LentRate float64   `json:"lent_rate,omitempty"` // current uncharged rate, per hour
	Used     Resources `json:"used,omitzero"`       // what its machines occupy
	Machines int       `json:"machines,omitempty"`  // machines that occupy something
	At       time.Time `json:"at,omitzero"`
}
