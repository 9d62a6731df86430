package wire

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/core/market"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/mesh/pki"
)

// The paths of the calls.
const (
	pathHello  = "/wire/hello"
	pathPull   = "/wire/pull"
	pathJoin   = "/wire/join"
	pathRenew  = "/wire/renew"
	pathBundle = "/wire/bundle"
	pathTokens = "/wire/tokens"
	pathKeys   = "/wire/keys"

	pathRecord    = "/wire/record"
	pathQuote     = "/wire/quote"
	pathHold      = "/wire/hold"
	pathRelease   = "/wire/release"
	pathGrant     = "/wire/grant"
	pathDo        = "/wire/do"
	pathLease     = "/wire/lease"
	pathLeaseNow  = "/wire/lease-now"
	pathMachine   = "/wire/machine"
	pathKeyed     = "/wire/keyed"
	pathMachines  = "/wire/machines"
	pathVersions  = "/wire/versions"
	pathWatch     = "/wire/watch"
	pathEvents    = "/wire/events"
	pathExec      = "/wire/exec"
	pathDial      = "/wire/dial"
	pathProcesses = "/wire/processes"
	pathLogs      = "/wire/logs"
	pathCopyOut   = "/wire/copy-out"
	pathCopyIn    = "/wire/copy-in"
	pathVolumes   = "/wire/volumes"
	pathVolume    = "/wire/volume"
	pathExamine   = "/wire/examine"
	pathStats     = "/wire/stats"
	pathUse       = "/wire/use"
	pathTasks     = "/wire/tasks"
	pathImages    = "/wire/images"
)

// checked are arguments that can be validated; check returns the defect.
type checked interface{ check() error }

// maxName bounds names and tokens in arguments, in bytes; maxPath bounds paths.
const (
	maxName = 256
	maxPath = 4096
)

func checkLengths(names ...string) error {
	for _, n := range names {
		if len(n) > maxName {
			return fault.New(fault.Invalid, fault.CodeName, "a name or token has %d bytes; at most %d", len(n), maxName)
		}
	}
	return nil
}

type none struct{}

type ref struct {
	App     string `json:"app"`
	Machine string `json:"machine"`
}

func (a *ref) check() error { return checkLengths(a.App, a.Machine) }

type listArgs struct {
	App       string `json:"app"`
	Destroyed bool   `json:"destroyed,omitempty"`
}

func (a *listArgs) check() error { return checkLengths(a.App) }

type keyedArgs struct {
	App  string `json:"app"`
	Hash string `json:"hash"`
}

func (a *keyedArgs) check() error { return checkLengths(a.App, a.Hash) }

type holdArgs struct {
	Request placement.Request `json:"request"`
	Token   string            `json:"token"`
	TTL     time.Duration     `json:"ttl,omitempty"`
	Want    bool              `json:"want,omitempty"` // an older worker, which does not know it, makes a hold
}

func (a *holdArgs) check() error { return checkLengths(a.Token, a.Request.App, a.Request.Machine) }

type logArgs struct {
	ref
	Cursor string `json:"cursor,omitempty"`
	Tail   *int   `json:"tail,omitempty"`
	Follow bool   `json:"follow,omitempty"`
	Hold   bool   `json:"hold,omitempty"`
}

func (a *logArgs) check() error { return checkLengths(a.App, a.Machine, a.Cursor) }

type pathArgs struct {
	ref
	Path string `json:"path"`
}

func (a *pathArgs) check() error {
	if len(a.Path) > maxPath {
		return fault.New(fault.Invalid, fault.CodePath, "a path has %d bytes; at most %d", len(a.Path), maxPath)
	}
	return checkLengths(a.App, a.Machine)
}

type commandArgs struct{ lifecycle.Command }

func (a *commandArgs) check() error {
	return cmp.Or(checkLengths(a.App, a.Machine, a.Nonce, a.Expect, a.Signal, a.Source), a.Check())
}

type leaseArgs struct{ lifecycle.LeaseCommand }

func (a *leaseArgs) check() error { return checkLengths(a.App, a.Machine, a.Nonce, a.Owner) }

type volumeArgs struct{ lifecycle.VolumeCommand }

func (a *volumeArgs) check() error {
	return cmp.Or(checkLengths(a.Verb, a.App, a.Volume, a.Snapshot, a.SourceVol, a.Spec.Name), a.Check())
}

// allRoutes returns every call of a server, with the role that may make it.
func allRoutes() map[string]route {
	all := map[string]route{
		pathHello:   {serve: (*Server).hello},
		pathPull:    {serve: (*Server).pull},
		pathJoin:    {serve: (*Server).join, open: true},
		pathRenew:   {serve: (*Server).renew},
		pathBundle:  {serve: (*Server).bundle},
		pathTokens:  {serve: (*Server).tokens},
		pathKeys:    {role: pki.Issuer, serve: (*Server).keys},
		pathClaim:   {role: pki.Gateway, serve: (*Server).claim},
		pathSteward: {role: pki.Gateway, serve: (*Server).steward},
		pathAgree:   {role: pki.Gateway, serve: (*Server).agree},

		pathChallenge:   {role: pki.Gateway, serve: (*Server).challenge},
		pathCertificate: {role: pki.Gateway, class: stream, serve: (*Server).certificate},
	}
	maps.Copy(all, workerVerbs())
	maps.Copy(all, workerStreams())
	maps.Copy(all, taskRoutes())
	maps.Copy(all, heirVerbs())
	maps.Copy(all, jobVerbs())
	maps.Copy(all, accountVerbs())
	maps.Copy(all, copyVerbs())
	return all
}

// workerVerbs are the worker's calls with a single answer.
func workerVerbs() map[string]route {
	return map[string]route{
		pathRecord: unaryVerb(read, func(ctx context.Context, k Served,
			_ none) (cluster.Record, error) {
			return k.Record(ctx)
		}),
		pathQuote: unaryVerb(read, func(ctx context.Context, k Served,
			r placement.Request) (market.Quote, error) {
			return k.Quote(ctx, r)
		}),
		pathHold: unaryBy(change, func(ctx context.Context, k Served, by Peer, a holdArgs) (time.Time, error) {
			return k.Hold(ctx, lifecycle.HoldCommand{Request: a.Request, Token: a.Token, TTL: a.TTL,
				By: cluster.WorkerID(by.ID), Want: a.Want})
		}),
		pathRelease: unaryVerb(read, func(ctx context.Context, k Served, a holdArgs) (none, error) {
			// never refused as busy: it frees room
			return none{}, k.Release(ctx, a.Token)
		}),
		pathCordon: unaryVerb(read, func(ctx context.Context, k Served, c lifecycle.CordonCommand) (cluster.Record,
			error) {
			return k.Cordon(ctx, c) // never refused as busy: it frees room
		}),
		pathTerm: unaryVerb(read, func(ctx context.Context, k Served, a termArgs) (termAnswer, error) {
			// never refused as busy: load must not keep a previous steward's orders in force
			has, err := k.Obey(ctx, a.App, a.Term)
			return termAnswer{has}, err
		}),
		pathGrant: {role: pki.Gateway, class: change, serve: (*Server).grant},
		pathDo: unaryVerb(change, func(ctx context.Context, k Served, a commandArgs) (lifecycle.Outcome, error) {
			return k.Do(ctx, a.Command)
		}),
		pathLease: unaryVerb(change, func(ctx context.Context, k Served, a leaseArgs) (machine.Lease, error) {
			return k.Lease(ctx, a.LeaseCommand)
		}),
		pathLeaseNow: unaryVerb(read, func(ctx context.Context, k Served, a ref) (machine.Lease, error) {
			return k.CurrentLease(ctx, a.App, a.Machine)
		}),
		pathMachine: unaryVerb(read, func(ctx context.Context, k Served, a ref) (*machine.Machine, error) {
			return k.Machine(ctx, a.App, a.Machine)
		}),
		pathKeyed: unaryVerb(read, func(ctx context.Context, k Served, a keyedArgs) (*machine.Machine, error) {
			return k.Keyed(ctx, a.App, a.Hash)
		}),
		pathVersions: unaryVerb(read, func(ctx context.Context, k Served, a ref) ([]machine.Version, error) {
			return k.Versions(ctx, a.App, a.Machine)
		}),
		pathProcesses: unaryVerb(read, func(ctx context.Context, k Served, a ref) ([]machine.Process, error) {
			return k.Processes(ctx, a.App, a.Machine)
		}),
		pathVolume: unaryVerb(change, func(ctx context.Context, k Served, a volumeArgs) (machine.Volume, error) {
			return k.Volume(ctx, a.VolumeCommand)
		}),
		pathExamine: unaryVerb(read, func(ctx context.Context, k Served,
			_ none) ([]cluster.Finding, error) {
			return k.Examine(ctx), nil
		}),
		pathStats: unaryVerb(read, func(_ context.Context, k Served, _ none) (lifecycle.Stats, error) {
			return k.Stats(),
				nil
		}),
	}
}

// workerStreams are the worker's calls that answer piece by piece.
func workerStreams() map[string]route {
	return map[string]route{
		pathMachines: listVerb(func(ctx context.Context, k Served, a listArgs) ([]*machine.Machine, error) {
			return k.Machines(ctx, a.App, a.Destroyed)
		}),
		pathUse: listVerb(func(ctx context.Context, k Served, _ none) ([]machine.Use, error) {
			return k.Use(ctx)
		}),
		pathTasks: listVerb(func(ctx context.Context, k Served, _ none) ([]lifecycle.Task, error) {
			return k.RunningTasks(ctx)
		}),
		pathVolumes: listVerb(func(ctx context.Context, k Served, a listArgs) ([]machine.Volume, error) {
			return k.Volumes(ctx, a.App)
		}),
		pathWatch: streamVerb(func(ctx context.Context, k Served, a ref, emit func(*machine.Machine) error) error {
			var sent error
			err := k.Watch(ctx, a.App, a.Machine, func(m *machine.Machine) bool {
				sent = emit(m)
				return sent == nil
			})
			if sent != nil {
				return sent
			}
			return err
		}),
		pathEvents: streamVerb(func(ctx context.Context, k Served, a listArgs, emit func(machine.EventOf) error) error {
			return k.Events(ctx, a.App, emit)
		}),
		pathLogs: streamVerb(func(ctx context.Context, k Served, a logArgs, emit func(machine.LogLine) error) error {
			return k.Logs(ctx, a.App, a.Machine,
				machine.LogQuery{Cursor: a.Cursor, Tail: a.Tail, Follow: a.Follow, Hold: a.Hold}, emit)
		}),
		pathExec:    {role: pki.Gateway, class: stream, serve: (*Server).exec},
		pathDial:    {role: pki.Gateway, class: stream, serve: (*Server).dial},
		pathCopyOut: {role: pki.Gateway, class: stream, serve: (*Server).copyOut},
		pathCopyIn:  {role: pki.Gateway, class: stream, serve: (*Server).copyIn},
		pathImages:  {role: pki.Gateway, class: stream, serve: (*Server).images},
	}
}

// unaryVerb is a verb of the worker with one answer.
func unaryVerb[In, Out any](c class, f func(ctx context.Context, k Served, in In) (Out, error)) route {
	return unaryBy(c, func(ctx context.Context, k Served, _ Peer, in In) (Out, error) { return f(ctx, k, in) })
}

// unaryBy is unaryVerb for a verb that needs the caller.
func unaryBy[In, Out any](c class, f func(ctx context.Context, k Served, by Peer, in In) (Out, error)) route {
	return unaryOf(c, func(ctx context.Context, s *Server, by Peer, in In) (Out, error) {
		return f(ctx, s.o.Worker, by, in)
	})
}

// unaryOf is a verb for members with the role gateway, with one answer.
func unaryOf[In, Out any](c class, f func(ctx context.Context, s *Server, by Peer, in In) (Out, error)) route {
	return route{role: pki.Gateway, class: c, serve: func(s *Server, w http.ResponseWriter, r *http.Request,
		by Peer) error {
		var in In
		if err := s.readArgs(w, r, &in); err != nil {
			return err
		}
		if c == change {
			g := s.gates[change]
			if !g.enterCaller(by.ID) {
				return busyError(fault.Exhausted, string(s.o.Worker.ID()))
			}
			defer g.leaveCaller(by.ID)
		}
		out, err := f(r.Context(), s, by, in)
		if err != nil {
			return err
		}
		return s.answerJSON(w, out)
	}}
}
