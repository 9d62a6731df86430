package gateway

import (
	"context"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/decision"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/lifecycle"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/market"
	"github.com/soukhq/souk/placement"
)

// Bounds of a gang's request.
const (
	maxGangWait = time.Hour
	firstPort   = 20000 // of the range that MASTER_PORT is drawn from
	portRange   = 10000
)

// createGang places a gang, all or nothing.
func (g *Gateway) createGang(w http.ResponseWriter, r *http.Request) error {
	app, err := g.catalog.OpenApp(r.PathValue("app"))
	if err != nil {
		return err
	}
	var body api.GangRequest
	if err := readJSON(w, r, &body, false); err != nil {
		return err
	}
	if err := checkGang(&body); err != nil {
		return err
	}
	purchases, err := g.gangMembers(r.Context(), app.Name, &body)
	if err != nil {
		return err
	}
	a, err := g.buyGang(r.Context(), body, purchases)
	if err != nil {
		return unpaid(err, &purchases[0].req)
	}
	answer(w, http.StatusOK, a)
	return nil
}

func checkGang(b *api.GangRequest) error {
	switch {
	case b.Launch == nil || b.Launch.Config == nil:
		return fault.New(fault.Invalid, "gang", "a gang needs a launch: what each of its machines is to run")
	case b.Size < 1 || b.Size > market.MaxGang || b.Min < 0 || b.Min > b.Size:
		return fault.New(fault.Invalid, "gang", "a gang has 1 to %d machines, of which min (0 to size) must start; got size %d and min %d", market.MaxGang, b.Size, b.Min)
	case b.Same != "" && !cluster.ValidAttribute(b.Same):
		return fault.New(fault.Invalid, "gang", "same names an attribute of workers, such as rack; got %q", clip(b.Same, 60))
	case !(b.Wait >= 0 && b.Wait <= maxGangWait.Seconds()):
		return fault.New(fault.Invalid, "gang", "wait is 0 to %v seconds; got %v", maxGangWait.Seconds(), b.Wait)
	case len(b.Launch.Config.Mounts) > 0:
		return fault.New(fault.Invalid, "gang", "a volume can be mounted by one machine only, so the launch of a gang has no mounts")
	}
	return checkLaunch(b.Launch)
}

// gangMembers makes a purchase for each member.
func (g *Gateway) gangMembers(ctx context.Context, app string, b *api.GangRequest) ([]purchase, error) {
	out := make([]purchase, b.Size)
	for i := range out {
		l := b.Launch.Clone()
		l.ID = machine.NewID(g.rand)
		if l.Name != "" && b.Size > 1 {
			l.Name += "-" + strconv.Itoa(i)
		}
		if l.Name != "" {
			if err := g.nameFree(ctx, app, l.Name); err != nil {
				return nil, err
			}
		}
		req, err := g.request(ctx, app, l)
		if err != nil {
			return nil, err
		}
		if err := g.fund(ctx, &req, l, b.Size); err != nil { // what all of them take
			return nil, err
		}
		policy, err := g.policyFor(&req)
		if err != nil {
			return nil, err
		}
		out[i] = purchase{req: req, grant: lifecycle.Grant{Request: req, Launch: l, Source: "user"}, policy: policy, trail: &market.Purchase{Policy: policy}}
	}
	return out, nil
}

// buyGang drives a market.GangBuyer. When the caller goes away between two tries, nothing is held and nothing is left.
func (g *Gateway) buyGang(ctx context.Context, b api.GangRequest, members []purchase) (*api.Gang, error) {
	begin, work := time.Now(), context.WithoutCancel(ctx)
	takings := make([]*taking, len(members))
	for i := range takings {
		takings[i] = g.taken(decision.Create)
	}
	req := market.GangRequest{ID: g.holdToken(), Min: b.Min, Same: b.Same, Until: begin.Add(time.Duration(b.Wait * float64(time.Second)))}
	view, byID := g.view(ctx)
	fleet := g.resolve(ctx, members[0].req, view).Fleet // the members are alike
	for i := range members {
		members[i].planned(fleet)
		members[i].trail.Request, members[i].trail.View = members[i].req, view
		req.Members = append(req.Members, members[i].req)
	}
	g.watchGang(req, members, view)
	buyer, err := market.NewGangBuyer(req, view, members[0].policy, rand.New(rand.NewPCG(entropy{g.rand}.Uint64(), 0)))
	if err != nil {
		return nil, err
	}
	made := make([]*machine.Machine, len(members))
	turn := buyer.Step(time.Now(), nil)
	for !turn.Done {
		if err := pause(ctx, turn.After); err != nil && turn.Refresh {
			return nil, fault.New(fault.Unavailable, "cancelled", "the caller went away before there was room for the gang")
		}
		if turn.Refresh {
			view, byID = g.view(work)
			buyer.SetView(view)
			for i := range members { // an id that was undone is used up
				id := machine.NewID(g.rand)
				members[i].grant.Launch.ID, members[i].req.Machine = id, id
				members[i].trail.View = view
				members[i].know(members[i].req)
				buyer.Rename(i, id)
			}
			g.watchGang(req, members, view)
		}
		turn = buyer.Step(time.Now(), g.askGang(work, turn.Asks, gangTurn{buyer, members, takings, made, view, byID, req.ID}))
	}
	g.metrics.scheduled(gangStrategy, turn.Err, time.Since(begin))
	if err := g.gangTaken(takings, members, buyer.Placed(), view, turn.Err); err != nil {
		return nil, err
	}
	tries, refusals := buyer.Tries()
	a := &api.Gang{Gang: req.ID, Size: len(members), Tries: tries, Refusals: refusals}
	for i, home := range buyer.Placed() {
		if home != "" {
			a.Machines = append(a.Machines, made[i])
		}
	}
	return a, nil
}

// gangTaken logs a decision for each member that was placed, or one for all that were not, and gives the error that whoever
// asked is told.
func (g *Gateway) gangTaken(takings []*taking, members []purchase, homes []cluster.WorkerID, view cluster.View, err error) error {
	if err != nil {
		p, t := &members[0], takings[0]
		t.viewed = view.At
		p.unplaced(view)
		d := decision.From(t.taken(*p.trail, gangStrategy, err))
		if d.Shadow = p.shadow; d.Outcome == decision.Refused {
			d.Reason = fault.As(err).Text
			if d.Fitting > 0 { // for itself it would have had a place
				d.Pending = decision.WaitingForGang
			}
		}
		return t.told(d, p.req, err)
	}
	if g.decisions == nil {
		return nil
	}
	placed := 0
	for _, home := range homes {
		if home != "" {
			placed++
		}
	}
	for i, home := range homes {
		if home == "" {
			continue
		}
		p, t := &members[i], takings[i]
		t.viewed = view.At
		trail := *p.trail
		trail.Ranked, trail.Consent = placement.Rank(trail.Request, view, p.policy), ofGang(placed)
		d := decision.From(t.taken(trail, gangStrategy, nil))
		d.Shadow = p.shadow
		g.noteDecision(d)
	}
	return nil
}

// gangStrategy names in the log how a gang is placed: market.GangBuyer.
const gangStrategy = "gang"

func ofGang(n int) string { return fmt.Sprintf("one of a gang of %d that started together", n) }

// watchGang says for each member where the policy that only watches would have placed it, with the others; "" where it finds
// no room for the gang.
func (g *Gateway) watchGang(gang market.GangRequest, members []purchase, view cluster.View) {
	list := make([]*purchase, len(members))
	for i := range members {
		list[i] = &members[i]
	}
	g.watch(list, func(reqs []placement.Request, watcher placement.Policy) []cluster.WorkerID {
		gang.Members = reqs
		homes, ok := market.PlanGang(gang, view, watcher)
		if !ok {
			return make([]cluster.WorkerID, len(reqs))
		}
		return homes
	})
}

// gangTurn is what the asks of a turn need to know.
type gangTurn struct {
	buyer   *market.GangBuyer
	members []purchase
	takings []*taking
	made    []*machine.Machine
	view    cluster.View
	byID    map[cluster.WorkerID]Worker
	id      string
}

// askGang carries out a turn's asks side by side.
func (g *Gateway) askGang(ctx context.Context, asks []market.Ask, t gangTurn) []market.Answer {
	got := make([]replied, len(asks))
	var all sync.WaitGroup
	var crew *crew
	if len(asks) > 0 && asks[0].Act == market.ActGrant {
		crew = crewOf(t)
	}
	for i, a := range asks {
		p := t.members[a.Member]
		p.planned(a.Fleet)
		if a.Act == market.ActGrant {
			p.grant.Region = regionOf(t.view, a.Worker)
			p.grant.Launch = crew.launch(p.grant.Launch, a.Member)
			alone := p
			alone.trail = nil // it is ranked again for the log, when all are placed: the rankings of all at once would be many
			p.grant.Placement = explained(&alone, t.view, a.Worker, ofGang(len(crew.rank)))
		}
		all.Go(func() {
			got[i] = g.carryOut(ctx, t.byID[a.Worker], a, p)
			if got[i].m != nil {
				t.made[a.Member] = got[i].m
			}
		})
	}
	all.Wait()
	answers := make([]market.Answer, len(asks))
	for i, a := range asks {
		t.members[a.Member].asked(t.takings[a.Member], a, got[i])
		answers[i] = got[i].in
		g.metrics.conflict(gangStrategy, got[i].in.Refused != nil && a.Act != market.ActRelease)
	}
	return answers
}

// crew is a gang whose homes are known: who runs where, in the order of ranks.
type crew struct {
	id    string
	rank  map[int]int // of members that are placed
	hosts []string    // by rank
	local []int       // by rank: how many ranks before it are on the same host
}

func crewOf(t gangTurn) *crew {
	c := &crew{id: t.id, rank: map[int]int{}}
	on := map[string]int{}
	for m, home := range t.buyer.Homes() {
		if home == "" {
			continue
		}
		c.rank[m] = len(c.hosts)
		host := addressOf(t.view, home)
		c.hosts = append(c.hosts, host)
		c.local = append(c.local, on[host])
		on[host]++
	}
	return c
}

// AddressAttribute names the attribute by which a worker tells at what address its machines are reached.
const AddressAttribute = "address"

func addressOf(view cluster.View, w cluster.WorkerID) string {
	for i := range view.Workers {
		if view.Workers[i].Worker == w {
			if v, ok := view.Workers[i].Attributes[AddressAttribute]; ok {
				return v.String()
			}
		}
	}
	return "127.0.0.1"
}

// HostFile is the file, below a gang's machine's directory, that lists the host of each rank, one a line, as MPI reads it.
const HostFile = "hostfile"

// launch gives a member what torchrun's and MPI's programs expect in their environment, beside souk's own names.
func (c *crew) launch(base *machine.Launch, member int) *machine.Launch {
	l, rank := base.Clone(), c.rank[member]
	if l.Config.Env == nil {
		l.Config.Env = map[string]string{}
	}
	port := firstPort
	for _, b := range []byte(c.id) {
		port = firstPort + (port*31+int(b))%portRange
	}
	for name, value := range map[string]string{
		"RANK": strconv.Itoa(rank), "WORLD_SIZE": strconv.Itoa(len(c.hosts)), "LOCAL_RANK": strconv.Itoa(c.local[rank]),
		"MASTER_ADDR": c.hosts[0], "MASTER_PORT": strconv.Itoa(port),
		"SOUK_GANG": c.id, "SOUK_INDEX": strconv.Itoa(rank), "SOUK_COUNT": strconv.Itoa(len(c.hosts)), "SOUK_PEERS_FILE": HostFile,
		"OMPI_MCA_orte_default_hostfile": HostFile,
	} {
		if _, own := l.Config.Env[name]; !own { // what the user set stays
			l.Config.Env[name] = value
		}
	}
	list := base64.StdEncoding.EncodeToString([]byte(strings.Join(c.hosts, "\n") + "\n"))
	l.Config.Files = append(l.Config.Files, machine.File{GuestPath: "/" + HostFile, RawValue: &list})
	return l
}
