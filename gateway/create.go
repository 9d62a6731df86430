package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/soukhq/souk/catalog"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/lifecycle"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/placement"
)

// IdempotencyHeader makes a repeated create answer the machine of the first.
const IdempotencyHeader = "Idempotency-Key"

// createTimeout ends a create that no worker answers. It goes on when the client is gone: its grant may be made already.
const createTimeout = 2 * time.Minute

// createMachine makes a machine, once: under an id that the client chose, or that its idempotency key is bound to, or a
// new one. A create that is repeated, after a lost answer or at the same time, finds the first one's machine.
func (g *Gateway) createMachine(w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), createTimeout)
	defer cancel()
	app, err := g.catalog.OpenApp(r.PathValue("app"))
	if err != nil {
		return err
	}
	launch, err := readLaunch(w, r)
	if err != nil {
		return err
	}
	key := r.Header.Get(IdempotencyHeader)
	fresh, claim, err := g.chooseID(app.Name, key, launch)
	if err != nil {
		return err
	}
	var m *machine.Machine
	defer func() { claim.End(m == nil && refused(err)) }()
	if fresh && key == "" {
		m, err = g.createNew(ctx, app.Name, launch) // nobody else has the id, so there can be no machine of it
	} else {
		m, err = g.createOnce(ctx, app.Name, launch, fresh)
	}
	if err != nil {
		return err
	}
	if err := g.stillThere(ctx, app, m); err != nil {
		return err
	}
	answer(w, http.StatusOK, m)
	return nil
}

// refused reports whether an error of a create says that no machine was made, and none is being made. Of other errors that
// is not sure: a machine whose program is not there is made, and fails.
func refused(err error) bool {
	return fault.Is(err, fault.Exhausted) || fault.CodeOf(err) == "name_taken"
}

// chooseID sets the launch's id, from the idempotency key when there is one. fresh reports whether it was drawn now.
func (g *Gateway) chooseID(app, key string, launch *machine.Launch) (fresh bool, claim *catalog.Claim, err error) {
	raw, err := json.Marshal(launch) // with the client's own id in it, if any
	if err != nil {
		return false, nil, fault.Wrap(err, fault.Internal, "launch", "the launch could not be written as JSON")
	}
	drawn := ""
	if launch.ID == "" {
		drawn = machine.NewID(g.rand)
		launch.ID = drawn
	}
	if key == "" {
		return drawn != "", nil, nil
	}
	sum := sha256.Sum256(raw)
	if claim, err = g.catalog.Claim(app, key, hex.EncodeToString(sum[:]), launch.ID); err != nil {
		return false, nil, err
	}
	launch.ID = claim.Machine
	return launch.ID == drawn, claim, nil
}

// createOnce makes the machine unless there is one of that id. One request at a time for each id. Of a fresh id it is no
// matter that a worker cannot be asked: a machine of it can only have been made here, while this waited.
func (g *Gateway) createOnce(ctx context.Context, app string, launch *machine.Launch, fresh bool) (*machine.Machine, error) {
	unlock, err := g.creates.lock(ctx, "id/"+app+"/"+launch.ID)
	if err != nil {
		return nil, err
	}
	defer unlock()
	switch old, err := g.find(ctx, app, launch.ID); {
	case err == nil:
		return g.again(ctx, old, app, launch)
	case fresh && fault.Is(err, fault.Unavailable):
	case !fault.Is(err, fault.NotFound):
		return nil, err
	}
	return g.createNew(ctx, app, launch)
}

// createNew makes the machine. One request at a time for each name.
func (g *Gateway) createNew(ctx context.Context, app string, launch *machine.Launch) (m *machine.Machine, err error) {
	defer func() { g.recent.add(m) }()
	launch = g.budgeted(app, launch)
	req, err := g.request(ctx, app, launch)
	if err != nil {
		return nil, err
	}
	defer func() { err = unpaid(err, &req) }()
	grant := lifecycle.Grant{Request: req, Launch: launch, Source: "user"}
	if launch.Name == "" {
		return g.placeUnnamed(ctx, req, grant)
	}
	unlockName, err := g.creates.lock(ctx, "name/"+app+"/"+launch.Name)
	if err != nil {
		return nil, err
	}
	defer unlockName()
	if err := g.nameFree(ctx, app, launch.Name); err != nil {
		return nil, err
	}
	return g.place(ctx, req, grant)
}

// again answers a create whose machine is there. The grant is repeated at its worker, which makes nothing, waits for the
// start as it did the first time, and knows the lease that the first answer told.
func (g *Gateway) again(ctx context.Context, old found, app string, launch *machine.Launch) (*machine.Machine, error) {
	if old.machine.State == machine.Destroyed {
		return old.machine, nil // it was made, and is over
	}
	grant := lifecycle.Grant{Request: placement.Request{App: app, Machine: launch.ID}, Launch: launch, Region: old.machine.Region, Source: "user"}
	return old.worker.Grant(ctx, grant)
}

// nameFree refuses a name that a machine of the app has, on whichever worker.
func (g *Gateway) nameFree(ctx context.Context, app, name string) error {
	names, err := g.names(ctx, app)
	if id, made := g.recent.named(app, name); made && err == nil && names[name] == "" {
		// Its worker has not told of it yet, or has told that it is gone: only the worker knows which.
		if f, err := g.find(ctx, app, id); err == nil && f.machine.State != machine.Destroyed {
			names[name] = id
		}
	}
	if id, taken := names[name]; taken && err == nil {
		return &fault.Error{Kind: fault.Conflict, Code: "name_taken", Detail: id,
			Text: fmt.Sprintf("already_exists: unique machine name violation, machine ID %s already exists with name %q", id, name)}
	}
	return err
}

// stillThere looks once more whether the app goes on: one that was deleted while its machine was made may have been
// emptied before the machine was there, so the machine goes too.
func (g *Gateway) stillThere(ctx context.Context, app catalog.App, m *machine.Machine) error {
	now, err := g.catalog.OpenApp(app.Name)
	if err == nil && now.ID == app.ID {
		return nil
	}
	for _, w := range g.workers() {
		if w.ID() == m.Worker || m.Worker == "" {
			if err := destroy(ctx, w, app.Name, m.ID); err != nil {
				return err
			}
		}
	}
	return catalog.NoApp()
}

// request makes the placement request of a launch.
func (g *Gateway) request(ctx context.Context, app string, launch *machine.Launch) (placement.Request, error) {
	req := placement.Request{App: app, Machine: launch.ID, Image: launch.Config.Image, Start: !launch.SkipLaunch}
	req.Resources = machine.Resources(launch.Config)
	if g := launch.Config.Guest; g != nil {
		req.GPUKind = g.GPUKind
	}
	if launch.Scheduling != nil {
		req.Scheduling = *launch.Scheduling
		if err := checkStrategy(req.Scheduling.Strategy); err != nil {
			return req, err
		}
	}
	var err error
	if v := launch.MinSecretsVersion; v != nil {
		if err := g.catalog.SecretsReach(app, *v); err != nil {
			return req, err
		}
	}
	if req.Volumes, err = g.mountedVolumes(ctx, app, launch); err != nil {
		return req, err
	}
	req.Regions, err = g.regions(ctx, launch.Region)
	if len(req.Volumes) > 0 && launch.Region == "" {
		req.Regions = nil // the volume says where
	}
	if err != nil {
		return req, err
	}
	return req, g.fund(ctx, &req, launch, 1)
}

// mountedVolumes gives the ids of the volumes a launch mounts, which must be the app's own and free.
func (g *Gateway) mountedVolumes(ctx context.Context, app string, launch *machine.Launch) ([]string, error) {
	if len(launch.Config.Mounts) == 0 {
		return nil, nil
	}
	volumes, err := g.volumes(ctx, app)
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, m := range launch.Config.Mounts {
		i := slices.IndexFunc(volumes, func(v machine.Volume) bool { return v.ID == m.Volume })
		if i < 0 {
			return nil, fault.New(fault.NotFound, volumeMissing, "volume not found: this app has no volume %s; create it first", clip(m.Volume, 80))
		}
		if holder := volumes[i].AttachedMachine; holder != nil && *holder != launch.ID {
			return nil, fault.New(fault.Precondition, "volume_attached", "failed_precondition: volume %s is attached to machine %s; mount another, or destroy that machine first", m.Volume, *holder)
		}
		ids = append(ids, m.Volume)
	}
	return ids, nil
}

// placeUnnamed places a machine that is to be given a name. One worker alone sees to it that names differ; among several
// the gateway draws one that none of them has.
func (g *Gateway) placeUnnamed(ctx context.Context, req placement.Request, grant lifecycle.Grant) (*machine.Machine, error) {
	if len(g.workers()) > 1 {
		taken, err := g.names(ctx, req.App)
		if err != nil {
			return nil, err
		}
		for grant.Launch.Name == "" || taken[grant.Launch.Name] != "" { // ends: there are millions
			grant.Launch.Name = machine.NewName(entropy{g.rand})
		}
	}
	return g.place(ctx, req, grant)
}

// entropy draws numbers from a reader. It panics when the reader fails, as machine.NewID does.
type entropy struct{ r io.Reader }

// Uint64 draws 64 bits.
func (e entropy) Uint64() uint64 {
	var b [8]byte
	if _, err := io.ReadFull(e.r, b[:]); err != nil {
		panic("gateway: the source of chance failed: " + err.Error())
	}
	return binary.BigEndian.Uint64(b[:])
}

// regionOf gives the region of a worker as the view has it.
func regionOf(view cluster.View, id cluster.WorkerID) string {
	for _, r := range view.Workers {
		if r.Worker == id {
			return string(r.Region)
		}
	}
	return ""
}
