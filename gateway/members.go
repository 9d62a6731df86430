package gateway

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/fleet/find"
	"github.com/soukhq/souk/mesh/gossip"
	"github.com/soukhq/souk/mesh/pki"
	"github.com/soukhq/souk/mesh/wire"
)

func (a *membersAPI) listMembers(w http.ResponseWriter, _ *http.Request) error {
	out := api.MemberList{Members: []cluster.Member{}}
	if a.cluster != nil {
		out.Members = append(out.Members, a.cluster.Members()...)
	}
	answerJSON(w, http.StatusOK, out)
	return nil
}

func (a *membersAPI) listDoors(w http.ResponseWriter, _ *http.Request) error {
	out := api.DoorList{Doors: []cluster.Door{}}
	if a.cluster != nil {
		doors, mark := a.cluster.Doors()
		out.Doors, out.Mark = append(out.Doors, doors...), mark
	}
	answerJSON(w, http.StatusOK, out)
	return nil
}

// Cluster is the member that a gateway is part of.
type Cluster interface {
	Members() []cluster.Member
	// Doors lists where members serve this API for other hosts, and a mark of the list for cheap comparison.
	Doors() (doors []cluster.Door, mark string)
	// Parts returns the age of each worker's last report.
	Parts() []gossip.Part
	// LastMachines returns the machines that a worker last reported.
	LastMachines(worker cluster.WorkerID) []gossip.Machine
	// Hello asks another member for its identity.
	Hello(ctx context.Context, id cluster.WorkerID) (wire.Greeting, error)
	// Calls counts this member's calls to others over the wire, one round trip each, by method.
	Calls() map[string]uint64
	// Refused counts rejected gossip messages, by reason.
	Refused() map[string]int64
	// Expiry returns when this member's certificate and the roots expire.
	Expiry() []pki.Warning
	// Leave announces the leaving and ends the process. The machines go on running.
	Leave(ctx context.Context) error
	// Remove removes a member for good; it may only join again with a new certificate.
	Remove(r cluster.Removal, force bool) error
	Removed() []cluster.Removal
	// Unfit returns why this member must not be relied on; nil: it may.
	Unfit() error
	// Lives makes this member the only valid one of all copies with its id.
	Lives(ctx context.Context, by cluster.Removal) error
}

// membersAPI serves the cluster's members and their workers: listing, cordoning, removing.
type membersAPI struct {
	cluster   Cluster // nil: this souk is alone
	directory *directory
	proxy     Proxy  // nil: this process has none
	tokens    Tokens // nil: this souk is alone
}

func (a *membersAPI) opHandlers() handlers {
	return handlers{
		"GET /v1/souk/members":                    a.listMembers,
		"GET /v1/souk/doors":                      a.listDoors,
		"PUT /v1/souk/workers/{worker}/cordon":    a.cordonWorker,
		"DELETE /v1/souk/workers/{worker}/cordon": a.uncordonWorker,
		"POST /v1/souk/leave":                     a.leave,
		"POST /v1/souk/lives":                     a.lives,
		"GET /v1/souk/removed":                    a.listRemoved,
		"DELETE /v1/souk/members/{member}":        a.removeMember,
		"GET /v1/souk/top":                        a.top,
	}
}

func (a *membersAPI) cordonWorker(w http.ResponseWriter, r *http.Request) error {
	var in api.WorkerCordon
	if err := readJSON(w, r, &in, false); err != nil {
		return err
	}
	most := lifecycle.MaxCordon.Seconds()
	ttl := time.Duration(min(max(in.TTL, -1), most+1) * float64(time.Second))
	return a.cordon(w, r, lifecycle.CordonCommand{Owner: in.Owner, Reason: in.Reason, TTL: ttl, Drain: in.Drain,
		EndTasks: in.EndTasks})
}

func (a *membersAPI) uncordonWorker(w http.ResponseWriter, r *http.Request) error {
	return a.cordon(w, r, lifecycle.CordonCommand{End: true})
}

func (a *membersAPI) cordon(w http.ResponseWriter, r *http.Request, c lifecycle.CordonCommand) error {
	worker, err := a.directory.workerOf(r)
	if err != nil {
		return err
	}
	rec, err := worker.Cordon(r.Context(), c)
	if err != nil {
		return err
	}
	a.directory.Fleet.Refused(worker.ID(), rec) // so that the next list of workers shows it
	answerJSON(w, http.StatusOK, rec)
	return nil
}

// clusterOrError returns the cluster of this process, or an error if it is alone.
func (a *membersAPI) clusterOrError() (Cluster, error) {
	if a.cluster == nil {
		return nil, noMember()
	}
	return a.cluster, nil
}

func noMember() error {
	return fault.New(fault.Precondition, codeAlone,
		"this souk is alone and no member of a cluster; \"souk init\" makes one")
}

func (a *membersAPI) leave(w http.ResponseWriter, r *http.Request) error {
	c, err := a.clusterOrError()
	if err != nil {
		return err
	}
	if err := c.Leave(context.WithoutCancel(r.Context())); err != nil {
		return err
	}
	return answerOK(w)
}

func (a *membersAPI) lives(w http.ResponseWriter, r *http.Request) error {
	c, err := a.clusterOrError()
	if err != nil {
		return err
	}
	var in api.LivesRequest
	if err := readJSON(w, r, &in, false); err != nil {
		return err
	}
	by := cluster.Removal{By: clipText(in.By, 256), Reason: clipText(in.Reason, 256)}
	if err := c.Lives(r.Context(), by); err != nil {
		return err
	}
	return answerOK(w)
}

func (a *membersAPI) listRemoved(w http.ResponseWriter, _ *http.Request) error {
	out := api.RemovalList{Removed: []cluster.Removal{}}
	if a.cluster != nil {
		out.Removed = append(out.Removed, a.cluster.Removed()...)
	}
	answerJSON(w, http.StatusOK, out)
	return nil
}

func (a *membersAPI) removeMember(w http.ResponseWriter, r *http.Request) error {
	c, err := a.clusterOrError()
	if err != nil {
		return err
	}
	force, err := queryBool(r, "force")
	if err != nil {
		return err
	}
	forget, err := queryBool(r, "forget_machines")
	if err != nil {
		return err
	}
	end, err := queryBool(r, "end_tokens")
	if err != nil {
		return err
	}
	id := cluster.WorkerID(r.PathValue("member"))
	out := api.MemberRemoved{OK: true, Forgotten: a.lastMachines(id), Tokens: a.endingWith(id)}
	if len(out.Forgotten) > 0 && !forget {
		return keepsMachines(string(id), out.Forgotten, out.Tokens)
	}
	if len(out.Tokens) > 0 && !end {
		return fault.New(fault.Precondition, pki.CodeTokens,
			"to remove member %s is to end the tokens that were made at it: %s; make others at a member that stays "+
				"(souk token create), give them to their users, and send end_tokens (souk node rm --end-tokens)",
			clipText(string(id), 80), tokenNames(out.Tokens))
	}
	q := r.URL.Query()
	gone := cluster.Removal{Member: id, By: clipText(q.Get("by"), 256),
		Reason: clipText(q.Get("reason"), 256), At: time.Now().UTC()}
	if err := c.Remove(gone, force); err != nil {
		return err
	}
	answerJSON(w, http.StatusOK, out)
	return nil
}

// lastMachines lists the machines that a member last reported, by app and name.
func (a *membersAPI) lastMachines(id cluster.WorkerID) []api.ForgottenMachine {
	list := []api.ForgottenMachine{}
	for _, m := range a.cluster.LastMachines(id) {
		list = append(list, api.ForgottenMachine{App: m.App, Name: m.Name, ID: m.ID})
	}
	slices.SortFunc(list, func(x, y api.ForgottenMachine) int {
		return cmp.Or(strings.Compare(x.App, y.App), strings.Compare(x.Name, y.Name), strings.Compare(x.ID, y.ID))
	})
	return list
}

// maxKept bounds the machines that the refusal of a removal names.
const maxKept = 10

// keepsMachines refuses to remove a member whose machines would be forgotten, and names them.
func keepsMachines(member string, list []api.ForgottenMachine, tokens []api.Token) error {
	var names []string
	for _, m := range list {
		names = append(names, m.App+"/"+cmp.Or(m.Name, m.ID))
	}
	also := ""
	if len(tokens) > 0 {
		also = "; the tokens that were made at it end, too, which --end-tokens is for: " + tokenNames(tokens)
	}
	return fault.New(fault.Precondition, codeMachines,
		"to remove member %s is to forget its machines: %s; make those that are needed again elsewhere, and send "+
			"forget_machines (souk node rm --forget-machines)%s", clipText(member, 80), someOf(names), also)
}

// endingWith lists the tokens that become invalid when a member is removed.
func (a *membersAPI) endingWith(id cluster.WorkerID) []api.Token {
	if a.tokens == nil {
		return []api.Token{}
	}
	return append([]api.Token{}, a.tokens.EndingWith(id)...)
}

func tokenNames(tokens []api.Token) string {
	names := make([]string, len(tokens))
	for i, t := range tokens {
		names[i] = t.Name + " (" + string(t.Role) + ")"
	}
	return someOf(names)
}

// someOf lists the first names, and says how many more there are.
func someOf(names []string) string {
	more := ""
	if n := len(names) - maxKept; n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}
	return strings.Join(names[:min(len(names), maxKept)], ", ") + more
}

func (a *membersAPI) top(w http.ResponseWriter, r *http.Request) error {
	use, err := queryBool(r, "use")
	if err != nil {
		return err
	}
	out := api.UsageList{At: time.Now().UTC()}
	if a.proxy != nil {
		u := a.proxy.Usage()
		out.Proxy = &u
	}
	parts := map[cluster.WorkerID]gossip.Part{}
	if a.cluster != nil {
		for _, p := range a.cluster.Parts() {
			parts[p.Worker] = p
		}
	}
	known := a.directory.Fleet.Snapshot()
	out.Workers, _ = find.AskAll(a.directory.Workers(), func(k Worker) (api.WorkerUsage, error) {
		p := parts[k.ID()]
		u := api.WorkerUsage{Worker: k.ID(), Member: p.State, AgeMS: float64(p.Age) / float64(time.Millisecond)}
		x, told := known.Worker(k.ID())
		if !told || !x.Ready() {
			return u, nil
		}
		s := k.Stats() // counters, which the fleet does not have
		u.Record, u.Stuck, u.Host = x.Record, s.RunsStuck, s.Host
		if use {
			u.Use, _ = k.Use(r.Context()) // empty if the worker cannot measure it
		}
		for key, n := range s.RunsDone {
			op, outcome, _ := strings.Cut(key, "/")
			if outcome == "ok" && (op == "create" || op == "start") {
				u.Starts += n
			}
		}
		return u, nil
	})
	answerJSON(w, http.StatusOK, out)
	return nil
}
