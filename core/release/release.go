package release

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// Schema is the version of the format of releases and heads that this souk reads and writes.
const Schema = 1

// Bounds of a release.
const (
	MaxGroups  = 64
	MaxRelease = 256 << 10 // bytes of its JSON
	MaxKept    = 20        // releases, besides those in use
	maxText    = 200       // bytes of By and of Note
)

// Release describes the machines of a service. It never changes: its ID is a hash of it.
type Release struct {
	Schema  int     `json:"schema"`
	Groups  []Group `json:"groups"`            // with different names, in the order given
	Secrets uint64  `json:"secrets,omitempty"` // the version of the app's secrets when it was made
	// Keys is when each secret that its machines read was set, by name; secrets that no group reads are left out.
	Keys    map[string]time.Time `json:"keys,omitzero"`
	By      string               `json:"by,omitempty"` // who made it
	At      time.Time            `json:"at"`
	Note    string               `json:"note,omitempty"` // what it was made for
	Command *Command             `json:"command,omitempty"`
}

// Group is a set of machines with one config.
type Group struct {
	Name       string              `json:"name"`
	Replicas   int                 `json:"replicas"` // unless a head has another number
	Config     *machine.Config     `json:"config"`
	Scheduling *machine.Scheduling `json:"scheduling,omitempty"`
	Region     string              `json:"region,omitempty"`
	// OnLost is what happens to a replica whose worker cannot be reached: replace (another is made, so two may run
	// until the worker is reached again), never (the worker is waited for), or fenced (like replace; what the machines
	// write to refuses the older SOUK_FENCE). By default, never for a group with a mount or that is single, else
	// replace.
	OnLost OnLost `json:"on_lost,omitempty"`
	// LostAfter is how long the worker must be unreachable; by default 3s, or 10s at pace wan.
	LostAfter *machine.Duration `json:"lost_after,omitempty"`
	Update    *Update           `json:"update,omitempty"` // how its machines are replaced; nil: a rolling update
	After     []string          `json:"after,omitempty"`  // groups that must be as wanted before this one changes
	// StopAfter is how long a worker may hear no other member before it kills its machines of the group; nil: they
	// keep running. At most lost_after less a second, unless on_lost is never.
	StopAfter *machine.Duration `json:"stop_after,omitempty"`
	// Single allows at most one running machine at any time: at most 1 replica, on_lost is never, and the old machine
	// is removed before a new one is made.
	Single bool `json:"single,omitempty"`
	// Autoscale makes the service choose the number of machines by their load, beginning with Replicas.
	Autoscale *Autoscale `json:"autoscale,omitempty"`
	// Cron makes the group's machines run at times, a new one each time, which ends by itself; nil: its machines are
	// kept up.
	Cron *Cron `json:"cron,omitempty"`
}

// OnLost is what happens to a slot whose machine is at a worker that cannot be reached.
type OnLost string

// The values of OnLost.
const (
	Replace OnLost = "replace" // another machine is made: two may run until the worker is reached again
	Never   OnLost = "never"   // the worker is waited for
	Fenced  OnLost = "fenced"  // like Replace; what the machines write to refuses the older SOUK_FENCE
)

// Bounds of LostAfter.
const (
	DefaultLostAfter = 3 * time.Second
	leastLostAfter   = time.Second
	mostLostAfter    = 24 * time.Hour
)

// Lost returns what happens to the group's machines at a worker that cannot be reached. By default a machine with a
// volume or of a single group is waited for, and others are replaced.
func (g *Group) Lost() OnLost {
	switch {
	case g.OnLost != "":
		return g.OnLost
	case g.Single || len(g.Config.Mounts) > 0:
		return Never
	}
	return Replace
}

// LostWithin returns how long a worker must be unreachable before its machines of the group are lost. usual is the
// default of groups that do not set it; 0: DefaultLostAfter.
func (g *Group) LostWithin(usual time.Duration) time.Duration {
	return durationOr(g.LostAfter, cmp.Or(usual, DefaultLostAfter))
}

// durationOr returns a group's setting, or the default usual if it is nil.
func durationOr(said *machine.Duration, usual time.Duration) time.Duration {
	if said == nil {
		return usual
	}
	return said.Duration
}

// ID returns the release's ID: 32 hexadecimal digits of the hash of its JSON.
func (r *Release) ID() string { return hash(r) }

// Spec returns a hash of the specification of a group's machines: two groups with the same hash make the same
// machines. restarted is how often they were to be restarted (Head.Restarted).
func (r *Release) Spec(g *Group, restarted uint64) string {
	return g.spec(r.Reads(g), restarted)
}

// spec returns the hash for Spec.
func (g *Group) spec(keys map[string]time.Time, restarted uint64) string {
	return hash(struct {
		Config     *machine.Config
		Scheduling *machine.Scheduling
		Region     string
		Restarted  uint64
		StopAfter  *machine.Duration
		Keys       map[string]time.Time `json:",omitempty"` // omitempty: an empty map equals none
	}{g.Config, g.Scheduling, g.Region, restarted, g.StopAfter, keys})
}

// hash returns half of the SHA-256 of a value's JSON, in hexadecimal digits.
func hash(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		panic("release: plain data does not encode: " + err.Error())
	}
	return IDOf(raw)
}

// IDOf returns the ID of a release or head from raw, its JSON as encoding/json writes it. It is the same even if this
// souk does not know all fields of the value.
func IDOf(raw []byte) string {
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:16])
}

// Group returns the group of a name, nil where there is none.
func (r *Release) Group(name string) *Group {
	i := slices.IndexFunc(r.Groups, func(g Group) bool { return g.Name == name })
	if i < 0 {
		return nil
	}
	return &r.Groups[i]
}

// Check refuses an invalid release. The code that accepts a release checks its configs.
func (r *Release) Check() error {
	switch {
	case r.Schema != Schema:
		return schemaError("release", r.Schema)
	case len(r.Groups) < 1 || len(r.Groups) > MaxGroups:
		return invalid("a release has 1 to %d groups; got %d", MaxGroups, len(r.Groups))
	case len(r.By) > maxText || len(r.Note) > maxText:
		return invalid("who makes a release and what for are said in at most %d bytes each", maxText)
	}
	seen := map[string]bool{}
	for i := range r.Groups {
		g := &r.Groups[i]
		switch {
		case !machine.ValidGroup(g.Name):
			return invalid("%q cannot name a group; use 1 to 48 lower-case letters, digits and dashes, with no dash "+
				"at the ends", fault.Clip(g.Name, 80))
		case seen[g.Name]:
			return invalid("the release has two groups %s; give each a name of its own", g.Name)
		case g.Config == nil:
			return invalid("group %s has no config: say at least the image of its machines", g.Name)
		}
		seen[g.Name] = true
		if err := cmp.Or(g.checkCount(g.Replicas), g.keepable(), g.checkLost(), g.checkSingle(), g.checkApart(),
			g.checkUpdate(), g.checkAutoscale(), g.checkCron()); err != nil {
			return err
		}
	}
	if err := cmp.Or(r.checkAfter(), r.checkCommand()); err != nil {
		return err
	}
	if raw, err := json.Marshal(r); err != nil || len(raw) > MaxRelease {
		return fault.New(fault.Invalid, codeReleaseSize, "the release has %d bytes, and %d are the most: fetch large "+
			"files at start, or put them into the image", len(raw), MaxRelease)
	}
	return nil
}

// keepable refuses a group whose machines cannot be kept as it asks.
func (g *Group) keepable() error {
	switch {
	case g.Config.AutoDestroy:
		return invalid("group %s has auto_destroy, so its machines go when they end, and are made again: run it with "+
			"souk run, or leave auto_destroy out", g.Name)
	case g.Config.Schedule != "":
		return invalid("group %s has a schedule: its machines are kept up, not started at a time; leave it out, "+
			"or say cron", g.Name)
	case slices.ContainsFunc(g.Config.Services, func(s machine.Service) bool {
		return s.CreateUpTo != nil && *s.CreateUpTo > 0 || s.Warm != nil && *s.Warm > 0
	}):
		return invalid("group %s has services[].create_up_to or services[].warm, by which more machines are made than "+
			"its replicas: leave them out, and say as many replicas as requests may wake", g.Name)
	}
	return nil
}

func (g *Group) checkLost() error {
	switch after := g.LostWithin(0); {
	case !slices.Contains([]OnLost{"", Replace, Never, Fenced}, g.OnLost):
		return invalid("group %s says on_lost = %q; use %s, %s or %s", g.Name,
			fault.Clip(string(g.OnLost), 40), Replace, Never, Fenced)
	case after < leastLostAfter || after > mostLostAfter:
		return invalid("group %s says lost_after = %v; %v to %v are possible", g.Name, after, leastLostAfter,
			mostLostAfter)
	case g.OnLost == Fenced && len(g.Config.Mounts) > 0, g.OnLost == Replace && len(g.Config.Mounts) > 0:
		return invalid("group %s has a volume, which is at one worker, so no other can replace its machine: say "+
			"on_lost = never, or leave it out", g.Name)
	}
	return nil
}

func checkCount(group string, n int) error {
	if n < 0 || n > machine.MaxReplicas {
		return invalid("group %s is to have %d replicas; 0 to %d are possible", group, n, machine.MaxReplicas)
	}
	return nil
}

func invalid(format string, args ...any) error {
	return fault.New(fault.Invalid, fault.CodeRelease, format, args...)
}

// schemaError returns the error for a value that another version of souk has written.
func schemaError(what string, schema int) error {
	if schema > Schema {
		return fault.New(fault.Precondition, fault.CodeSchema,
			"the %s has schema %d and this souk knows %d: a newer souk wrote it, so upgrade this one", what, schema,
			Schema)
	}
	return fault.New(fault.Invalid, fault.CodeSchema,
		"the %s has schema %d; this souk reads %d: send it anew", what, schema,
		Schema)
}

// Named returns the names of the groups, sorted.
func (r *Release) Named() []string {
	names := make([]string, len(r.Groups))
	for i := range r.Groups {
		names[i] = r.Groups[i].Name
	}
	slices.Sort(names)
	return names
}

// noGroup returns the error for a missing group, with the groups that exist.
func (r *Release) noGroup(name string) error {
	return fault.New(fault.NotFound, codeGroup, "the service has no group %s; it has %s", fault.Clip(name, 80),
		strings.Join(r.Named(), ", "))
}

// Short returns the first digits of a release's ID, for people.
func Short(id string) string { return id[:min(8, len(id))] }

// Fences reports whether machines of the release are made only once all workers obey the steward's term.
func (r *Release) Fences() bool {
	return r.Command != nil ||
		slices.ContainsFunc(r.Groups, func(g Group) bool { return g.Lost() == Never || g.Cron != nil })
}

// Wakeable reports whether a request starts a machine of the group that is down.
func (g *Group) Wakeable() bool {
	return slices.ContainsFunc(g.Config.Services, func(s machine.Service) bool {
		return s.Autostart == nil || *s.Autostart
	})
}
