package gateway

import (
	"context"
	"net/http"
	goruntime "runtime"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/market"
	"github.com/soukhq/souk/placement"
)

func (g *Gateway) getVersion(w http.ResponseWriter, _ *http.Request) error {
	answer(w, http.StatusOK, api.ServerInfo{Version: g.version, Go: goruntime.Version(), Region: string(g.region), Workers: len(g.workers()), Started: g.started})
	return nil
}

func (g *Gateway) listWorkers(w http.ResponseWriter, r *http.Request) error {
	workers := g.workers()
	records, errs := fanOut(workers, func(k Worker) (cluster.Record, error) { return k.Record(r.Context()) })
	out := api.WorkerList{Workers: []cluster.Record{}, Unreachable: []api.UnreachableWorker{}}
	for i, k := range workers {
		if errs[i] != nil {
			out.Unreachable = append(out.Unreachable, api.UnreachableWorker{Worker: k.ID(), Error: errs[i].Error()})
			continue
		}
		out.Workers = append(out.Workers, records[i])
	}
	answer(w, http.StatusOK, out)
	return nil
}

func (g *Gateway) examine(w http.ResponseWriter, r *http.Request) error {
	workers := g.workers()
	found, _ := fanOut(workers, func(k Worker) ([]cluster.Finding, error) { return k.Examine(r.Context()), nil })
	out := api.Examinations{Workers: []api.Examination{}}
	for i, k := range workers {
		out.Workers = append(out.Workers, api.Examination{Worker: k.ID(), Findings: append([]cluster.Finding{}, found[i]...)})
	}
	answer(w, http.StatusOK, out)
	return nil
}

// quotes asks every worker what it would say to the request now.
func (g *Gateway) quotes(ctx context.Context, req placement.Request) []machine.Candidate {
	workers := g.workers()
	policy, err := g.policyFor(&req)
	if err != nil {
		policy = placement.Default() // the one that was chosen is gone
	}
	quotes, errs := fanOut(workers, func(k Worker) (market.Quote, error) { return k.Quote(ctx, req) })
	out := make([]machine.Candidate, 0, len(workers))
	for i, k := range workers {
		c := machine.Candidate{Worker: string(k.ID())}
		switch q := quotes[i]; {
		case errs[i] != nil:
			c.Failing = []machine.Clause{{Code: "unreachable", Wanted: "an answer", Had: errs[i].Error()}}
		case q.Verdict.Fits:
			v := policy.Judge(&req, &q.Record)
			if c.Fits, c.Failing = v.Fits, v.Failing; v.Fits {
				c.Score, c.Terms = policy.Score(req, q.Record)
				c.Notes = policy.Notes(&req, &q.Record)
			}
		default:
			c.Failing = q.Verdict.Failing
		}
		out = append(out, c)
	}
	return out
}

func (g *Gateway) livez(w http.ResponseWriter, _ *http.Request) error {
	return plainText(w, http.StatusOK, "ok\n")
}

const readyTimeout = 2 * time.Second

func (g *Gateway) readyz(w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
	defer cancel()
	if view := g.view(ctx); len(view.Workers) == 0 {
		return plainText(w, http.StatusServiceUnavailable, "no worker answers\n")
	}
	return plainText(w, http.StatusOK, "ok\n")
}

func plainText(w http.ResponseWriter, code int, text string) error {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	_, err := w.Write([]byte(text))
	return err
}
