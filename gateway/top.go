package gateway

import (
	"net/http"
	"strings"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/gossip"
)

// Usage is one worker as `souk top` shows it.
type Usage struct {
	Worker cluster.WorkerID `json:"worker"`
	Member gossip.State     `json:"member,omitempty"` // of its member; none: this souk is alone
	AgeMS  float64          `json:"age_ms"`           // for how long it may have changed without this member's knowing
	Record *cluster.Record  `json:"record,omitempty"` // none: it cannot be heard
	Starts uint64           `json:"starts"`           // machines it has brought up since it started
	Stuck  int              `json:"stuck"`            // operations that make no progress
}

type usageList struct {
	At      time.Time `json:"at"`
	Workers []Usage   `json:"workers"`
}

func (g *membersAPI) top(w http.ResponseWriter, r *http.Request) error {
	out := usageList{At: time.Now().UTC()}
	parts := map[cluster.WorkerID]gossip.Part{}
	if g.cluster != nil {
		for _, p := range g.cluster.Parts() {
			parts[p.Worker] = p
		}
	}
	out.Workers, _ = fanOut(g.directory.workers(), func(k Worker) (Usage, error) {
		p := parts[k.ID()]
		u := Usage{Worker: k.ID(), Member: p.State, AgeMS: float64(p.Age) / float64(time.Millisecond)}
		rec, err := k.Record(r.Context())
		if err != nil {
			return u, err
		}
		s := k.Stats()
		u.Record, u.Stuck = &rec, s.RunsStuck
		for key, n := range s.RunsDone {
			op, outcome, _ := strings.Cut(key, "/")
			if outcome == "ok" && (op == "create" || op == "start") {
				u.Starts += n
			}
		}
		return u, nil
	})
	answer(w, http.StatusOK, out)
	return nil
}
