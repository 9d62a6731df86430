package gateway

import (
	"context"
	"net/http"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/gossip"
	"github.com/soukhq/souk/lifecycle"
	"github.com/soukhq/souk/pki"
	"github.com/soukhq/souk/wire"
)

// Cluster is the member that a gateway is part of.
type Cluster interface {
	Members() []cluster.Member
	// Parts says how old what is known of each worker is.
	Parts() []gossip.Part
	// Told gives the machines that a worker has told all of.
	Told(worker cluster.WorkerID) []gossip.Machine
	// Hello asks another member who it is.
	Hello(ctx context.Context, id cluster.WorkerID) (wire.Greeting, error)
	// Calls counts what this member has asked others over the wire, a round trip each, by what was asked.
	Calls() map[string]uint64
	// Expiry tells when this member's certificate and the roots end.
	Expiry() []pki.Warning
	// Leave says goodbye and has the process end. The machines go on running.
	Leave(ctx context.Context) error
	// Remove makes a member one that may not come back, unless it joins anew.
	Remove(r cluster.Removal, force bool) error
	Removed() []cluster.Removal
}

// Cordoner is a worker that can be told to take nothing new.
type Cordoner = wire.Cordoner

// membersAPI serves the members of the cluster and their workers: who is there, who is to take nothing new, who goes.
type membersAPI struct {
	cluster   Cluster // nil: this souk is alone
	members   func() []cluster.Member
	directory *directory
}

// handlers returns what it serves.
func (g *membersAPI) handlers() handlers {
	return handlers{
		"GET /v1/souk/members":                    g.listMembers,
		"PUT /v1/souk/workers/{worker}/cordon":    g.cordonWorker,
		"DELETE /v1/souk/workers/{worker}/cordon": g.uncordonWorker,
		"POST /v1/souk/leave":                     g.leave,
		"GET /v1/souk/removed":                    g.listRemoved,
		"DELETE /v1/souk/members/{member}":        g.removeMember,
		"GET /v1/souk/top":                        g.top,
	}
}

func (g *membersAPI) cordonWorker(w http.ResponseWriter, r *http.Request) error {
	var in api.WorkerCordon
	if err := readJSON(w, r, &in, false); err != nil {
		return err
	}
	most := lifecycle.MaxCordon.Seconds()
	ttl := time.Duration(min(max(in.TTL, -1), most+1) * float64(time.Second))
	return g.cordon(w, r, lifecycle.CordonCommand{Owner: in.Owner, Reason: in.Reason, TTL: ttl, Drain: in.Drain})
}

func (g *membersAPI) uncordonWorker(w http.ResponseWriter, r *http.Request) error {
	return g.cordon(w, r, lifecycle.CordonCommand{End: true})
}

func (g *membersAPI) cordon(w http.ResponseWriter, r *http.Request, c lifecycle.CordonCommand) error {
	worker, err := g.directory.workerOf(r)
	if err != nil {
		return err
	}
	k, ok := worker.(Cordoner)
	if !ok {
		return fault.New(fault.Unimplemented, "cordon", "worker %s cannot be cordoned", worker.ID())
	}
	rec, err := k.Cordon(r.Context(), c)
	if err != nil {
		return err
	}
	answer(w, http.StatusOK, rec)
	return nil
}

// member gives the cluster that this process is a member of.
func (g *membersAPI) member() (Cluster, error) {
	if g.cluster == nil {
		return nil, fault.New(fault.Precondition, "alone", "this souk is alone and no member of a cluster; \"souk init\" makes one")
	}
	return g.cluster, nil
}

func (g *membersAPI) leave(w http.ResponseWriter, r *http.Request) error {
	c, err := g.member()
	if err != nil {
		return err
	}
	if err := c.Leave(context.WithoutCancel(r.Context())); err != nil {
		return err
	}
	return answerOK(w)
}

func (g *membersAPI) listRemoved(w http.ResponseWriter, _ *http.Request) error {
	out := api.RemovalList{Removed: []cluster.Removal{}}
	if g.cluster != nil {
		out.Removed = append(out.Removed, g.cluster.Removed()...)
	}
	answer(w, http.StatusOK, out)
	return nil
}

func (g *membersAPI) removeMember(w http.ResponseWriter, r *http.Request) error {
	c, err := g.member()
	if err != nil {
		return err
	}
	force, err := queryBool(r, "force")
	if err != nil {
		return err
	}
	q := r.URL.Query()
	gone := cluster.Removal{Member: cluster.WorkerID(r.PathValue("member")), By: clip(q.Get("by"), 256), Reason: clip(q.Get("reason"), 256), At: time.Now().UTC()}
	if err := c.Remove(gone, force); err != nil {
		return err
	}
	return answerOK(w)
}
