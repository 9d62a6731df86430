package gateway

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/broker"
	"github.com/soukhq/souk/broker/known"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/fleet/find"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/store/catalog"
)

// mibPerGB is the number of MiB in one GB of a volume.
const mibPerGB = 1024

// setIfGiven sets *to to *from unless from is nil.
func setIfGiven[T any](to *T, from *T) {
	if from != nil {
		*to = *from
	}
}

// volumesAPI serves volumes.
type volumesAPI struct {
	catalog   volumeCatalog
	broker    regionBroker
	chosen    known.Policies
	directory *directory
	rand      io.Reader
}

// volumeCatalog is what volumesAPI needs of the catalog.
type volumeCatalog interface {
	App(name string) (catalog.App, error)
	OpenApp(name string) (catalog.App, error)
	NamespaceOf(app string) (catalog.Namespace, error)
}

// regionBroker resolves region expressions.
type regionBroker interface {
	Regions(ctx context.Context, expr string) ([]cluster.Region, error)
}

func (a *volumesAPI) opHandlers() handlers {
	return handlers{
		"GET /v1/apps/{app}/volumes":                     a.listVolumes,
		"POST /v1/apps/{app}/volumes":                    a.createVolume,
		"GET /v1/apps/{app}/volumes/{volume}":            a.getVolume,
		"PUT /v1/apps/{app}/volumes/{volume}":            a.updateVolume,
		"DELETE /v1/apps/{app}/volumes/{volume}":         a.deleteVolume,
		"PUT /v1/apps/{app}/volumes/{volume}/extend":     a.extendVolume,
		"GET /v1/apps/{app}/volumes/{volume}/snapshots":  a.listSnapshots,
		"POST /v1/apps/{app}/volumes/{volume}/snapshots": a.createSnapshot,
	}
}

func (a *volumesAPI) listVolumes(w http.ResponseWriter, r *http.Request) error {
	app := r.PathValue("app")
	if _, err := a.catalog.App(app); err != nil {
		return err
	}
	list, silent, err := a.directory.Volumes(r.Context(), app)
	if err != nil {
		return err
	}
	a.directory.nameMissing(w, silent)
	answerJSON(w, http.StatusOK, list)
	return nil
}

// createVolume makes a volume on the worker with most room for it and for the machine that will use it. A copy of a
// volume is made at that volume's worker.
func (a *volumesAPI) createVolume(w http.ResponseWriter, r *http.Request) error {
	ctx := r.Context()
	app, err := a.catalog.OpenApp(r.PathValue("app"))
	if err != nil {
		return err
	}
	var in api.NewVolume
	if err := readJSON(w, r, &in, false); err != nil {
		return err
	}
	space, err := a.catalog.NamespaceOf(app.Name)
	if err != nil {
		return err
	}
	c := lifecycle.VolumeCommand{Verb: "create", App: app.Name, Volume: machine.NewVolumeID(a.rand),
		Namespace: space.Name}
	if c.Spec, err = in.Spec(); err != nil {
		return err
	}
	setIfGiven(&c.Snapshot, in.SnapshotID)
	setIfGiven(&c.SourceVol, in.SourceVolumeID)
	v, err := a.placeVolume(ctx, c, in)
	if err != nil {
		return err
	}
	if now, err := a.catalog.OpenApp(app.Name); err != nil || now.ID != app.ID {
		if _, err := a.doVolume(r.WithContext(context.WithoutCancel(ctx)),
			lifecycle.VolumeCommand{Verb: "destroy", App: app.Name, Volume: v.ID}); err != nil &&
			!fault.Is(err, fault.NotFound) {
			return err
		}
		return catalog.NoApp()
	}
	v.Warnings = machine.VolumeWarnings(&v)
	answerJSON(w, http.StatusOK, v)
	return nil
}

func (a *volumesAPI) placeVolume(ctx context.Context, c lifecycle.VolumeCommand,
	in api.NewVolume) (machine.Volume, error) {
	if c.Snapshot != "" || c.SourceVol != "" {
		source, size, err := a.volumeSource(ctx, c)
		if err != nil {
			return machine.Volume{}, err
		}
		if in.SizeGB == nil {
			c.Spec.SizeGB = size
		}
		return source.Volume(ctx, c)
	}
	req, err := a.volumeRequest(ctx, c, in)
	if err != nil {
		return machine.Volume{}, err
	}
	view := a.directory.View()
	policy, err := a.chosen.PolicyFor(&req)
	if err != nil {
		return machine.Volume{}, err
	}
	ranked := placement.Rank(req, view, policy)
	for _, cand := range ranked {
		if !cand.Fits {
			break
		}
		w, region := a.directory.WorkerAt(cluster.WorkerID(cand.Worker))
		if w == nil {
			continue // the worker has gone meanwhile
		}
		c.Spec.Region = region
		v, err := w.Volume(ctx, c)
		f := fault.As(err)
		switch {
		case f == nil:
			return v, nil
		case broker.NotAsked(err): // the worker was not reached, and has made nothing
			a.directory.Contact.Called(w.ID(), false)
		case f.Kind != fault.Exhausted || f.Scope == fault.ScopeQuota: // the quota is the same at every worker
			return v, err
		}
	}
	code, never := api.CodeNoVolumeCapacity, len(view.Workers) > 0
	for i := range view.Workers {
		never = never && policy.Judge(&req, &view.Workers[i]).Never
	}
	if never {
		code = api.CodeVolumeNeverFits
	}
	return machine.Volume{}, &fault.Error{Kind: fault.Exhausted, Code: code, Scope: fault.ScopeRegion,
		Resource: "disk", Detail: ranked,
		Text: fmt.Sprintf("no capacity: no worker of %s has room for a volume of %d GB%s; ask for less, or "+
			"delete some", placement.RegionText(req.Regions), c.Spec.SizeGB, fullDisk(ranked))}
}

// fullDisk returns a sentence on the first candidate whose disk is full; "": none is.
func fullDisk(ranked []machine.Candidate) string {
	for _, x := range ranked {
		for _, c := range x.Failing {
			if state, why, ok := strings.Cut(c.Had, ": "); ok && c.Code == placement.CodeState {
				return fmt.Sprintf("; %s is %s: %s", x.Worker, state, why)
			}
		}
	}
	return ""
}

func (a *volumesAPI) volumeRequest(ctx context.Context, c lifecycle.VolumeCommand,
	in api.NewVolume) (placement.Request, error) {
	req := placement.Request{App: c.App}
	var err error
	if req.Regions, err = a.broker.Regions(ctx, in.Region); err != nil {
		return req, err
	}
	if in.Compute != nil {
		if req.Resources, err = broker.GuestResources(in.Compute); err != nil {
			return req, err
		}
	}
	req.Resources.Disk += int64(c.Spec.SizeGB) * mibPerGB
	return req, nil
}

// volumeSource finds the worker with the volume or snapshot to copy.
func (a *volumesAPI) volumeSource(ctx context.Context, c lifecycle.VolumeCommand) (w Worker, sizeGB int, err error) {
	var silent []find.Unanswered
	for _, w := range a.directory.WithVolumes(c.App) {
		volumes, err := w.Volumes(ctx, c.App)
		if find.NoAnswer(err) {
			silent = append(silent, find.Unanswered{Worker: w.ID(), Err: err})
			continue
		}
		if err != nil {
			return nil, 0, err
		}
		for _, v := range volumes {
			if v.ID == c.SourceVol && c.Snapshot == "" {
				return w, v.SizeGB, nil
			}
			for _, s := range v.Snapshots {
				if c.Snapshot != "" && s.ID == c.Snapshot {
					return w, int(s.VolumeSize >> 30), nil
				}
			}
		}
	}
	if len(silent) > 0 {
		return nil, 0, a.directory.Nowhere(find.VolumeMissing, silent)
	}
	return nil, 0, fault.New(fault.NotFound, lifecycle.CodeSourceNotFound,
		"volume not found: this app has no volume or snapshot %q to copy", clipText(c.Snapshot+c.SourceVol, 60))
}

// doVolume sends a command to the volume's worker.
func (a *volumesAPI) doVolume(r *http.Request, c lifecycle.VolumeCommand) (machine.Volume, error) {
	return find.Owner(r.Context(), a.directory.Directory, c.App, c.Volume, find.VolumeMissing,
		func(w Worker) (machine.Volume, error) { return w.Volume(r.Context(), c) })
}

func volumeCommand(r *http.Request, verb string) lifecycle.VolumeCommand {
	return lifecycle.VolumeCommand{Verb: verb, App: r.PathValue("app"), Volume: r.PathValue("volume")}
}

func (a *volumesAPI) oneVolume(r *http.Request) (machine.Volume, error) {
	app, id := r.PathValue("app"), r.PathValue("volume")
	ask := func(w Worker) (machine.Volume, error) {
		volumes, err := w.Volumes(r.Context(), app)
		if err != nil {
			return machine.Volume{}, err
		}
		for _, v := range volumes {
			if v.ID == id {
				return v, nil
			}
		}
		return machine.Volume{}, fault.New(fault.NotFound, find.VolumeMissing, "volume not found")
	}
	return find.Owner(r.Context(), a.directory.Directory, app, id, find.VolumeMissing, ask)
}

func (a *volumesAPI) getVolume(w http.ResponseWriter, r *http.Request) error {
	v, err := a.oneVolume(r)
	if err != nil {
		return err
	}
	answerJSON(w, http.StatusOK, v)
	return nil
}

func (a *volumesAPI) updateVolume(w http.ResponseWriter, r *http.Request) error {
	var in api.VolumeUpdate
	if err := readJSON(w, r, &in, false); err != nil {
		return err
	}
	old, err := a.oneVolume(r)
	if err != nil {
		return err
	}
	c := volumeCommand(r, "update")
	c.Spec.SnapshotRetention, c.Spec.AutoBackupEnabled = old.SnapshotRetention, old.AutoBackupEnabled
	setIfGiven(&c.Spec.SnapshotRetention, in.SnapshotRetention)
	setIfGiven(&c.Spec.AutoBackupEnabled, in.AutoBackupEnabled)
	if in.SnapshotRetention != nil {
		if err := api.CheckRetention(c.Spec.SnapshotRetention); err != nil {
			return err
		}
	}
	v, err := a.doVolume(r, c)
	if err != nil {
		return err
	}
	answerJSON(w, http.StatusOK, v)
	return nil
}

func (a *volumesAPI) deleteVolume(w http.ResponseWriter, r *http.Request) error {
	v, err := a.doVolume(r, volumeCommand(r, "destroy"))
	if err != nil {
		return err
	}
	answerJSON(w, http.StatusOK, v)
	return nil
}

func (a *volumesAPI) extendVolume(w http.ResponseWriter, r *http.Request) error {
	var in api.ExtendRequest
	if err := readJSON(w, r, &in, false); err != nil {
		return err
	}
	if in.SizeGB < 1 || in.SizeGB > api.MaxVolumeGB {
		return fault.New(fault.Invalid, api.CodeSizeGB,
			"a volume has from 1 to %d GB, not %d", api.MaxVolumeGB, in.SizeGB)
	}
	c := volumeCommand(r, "extend")
	c.Spec.SizeGB = in.SizeGB
	v, err := a.doVolume(r, c)
	if err != nil {
		return err
	}
	v.Warnings = machine.VolumeWarnings(&v)
	answerJSON(w, http.StatusOK, api.Extended{Volume: v, NeedsRestart: v.NeedsRestart})
	return nil
}

func (a *volumesAPI) listSnapshots(w http.ResponseWriter, r *http.Request) error {
	v, err := a.oneVolume(r)
	if err != nil {
		return err
	}
	answerJSON(w, http.StatusOK, append([]machine.Snapshot{}, v.Snapshots...))
	return nil
}

// createSnapshot makes a snapshot, and answers with the newest one, which is the one just made.
func (a *volumesAPI) createSnapshot(w http.ResponseWriter, r *http.Request) error {
	v, err := a.doVolume(r, volumeCommand(r, "snapshot"))
	if err != nil {
		return err
	}
	var newest machine.Snapshot
	for _, s := range v.Snapshots {
		if newest.ID == "" || s.CreatedAt.After(newest.CreatedAt) {
			newest = s
		}
	}
	answerJSON(w, http.StatusOK, newest)
	return nil
}
