package gateway

import (
	"net/http"
	"strings"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/gossip"
)

func (g *membersAPI) top(w http.ResponseWriter, r *http.Request) error {
	out := api.UsageList{At: time.Now().UTC()}
	parts := map[cluster.WorkerID]gossip.Part{}
	if g.cluster != nil {
		for _, p := range g.cluster.Parts() {
			parts[p.Worker] = p
		}
	}
	out.Workers, _ = fanOut(g.directory.workers(), func(k Worker) (api.WorkerUsage, error) {
		p := parts[k.ID()]
		u := api.WorkerUsage{Worker: k.ID(), Member: p.State, AgeMS: float64(p.Age) / float64(time.Millisecond)}
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
