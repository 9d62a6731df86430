package client

import (
	"context"
	"time"

	"github.com/soukhq/souk/cluster"
)

// Usage is what one worker has, uses and does.
type Usage struct {
	Worker string          `json:"worker"`
	Member string          `json:"member,omitempty"` // alive, suspect, dead or left; none: that souk is alone
	AgeMS  float64         `json:"age_ms"`
	Record *cluster.Record `json:"record,omitempty"` // none: it cannot be heard
	Starts uint64          `json:"starts"`           // machines it has brought up since it started
	Stuck  int             `json:"stuck"`            // operations that make no progress
}

// Usages are those of all workers at one moment.
type Usages struct {
	At      time.Time `json:"at"`
	Workers []Usage   `json:"workers"`
}

// Top asks for them.
func (c *Client) Top(ctx context.Context) (u Usages, err error) {
	err = c.do(ctx, call{method: "GET", path: route("souk", "top")}, &u)
	return u, err
}
