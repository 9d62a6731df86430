package rollout

import (
	"maps"
	"slices"
	"time"

	"github.com/soukhq/souk/fault"
)

// What a head was written for.
const (
	WhyDeploy  = "deploy"
	WhyScale   = "scale"
	WhyRestart = "restart"
)

// Head says what is wanted of a service now. It is replaced whole, and names the head that it was made from.
type Head struct {
	Schema  int            `json:"schema"`
	Number  uint64         `json:"number"` // its parent's and one; from 1
	Parent  string         `json:"parent,omitempty"`
	Release string         `json:"release"`
	Counts  map[string]int `json:"counts,omitempty"` // of groups that are to have another number than the release says
	Why     string         `json:"why"`
	By      string         `json:"by,omitempty"`
	At      time.Time      `json:"at"`
	// Restarted counts how often the machines of the service were to be restarted: to be made anew as they are.
	Restarted uint64 `json:"restarted,omitempty"`
	Past      []Past `json:"past,omitempty"` // heads before it, newest first; at most MaxKept
}

// Past is a head that another has replaced.
type Past struct {
	ID      string         `json:"id"`
	Number  uint64         `json:"number"`
	Release string         `json:"release"`
	Counts  map[string]int `json:"counts,omitempty"`
	Why     string         `json:"why"`
	By      string         `json:"by,omitempty"`
	At      time.Time      `json:"at"`
}

// ID returns the head's name, a hash of it.
func (h *Head) ID() string { return hash(h) }

// Change says what a new head is to have else than its parent.
type Change struct {
	Release string         // "": the parent's
	Counts  map[string]int // by group; those that it leaves out stay
	Restart bool           // all machines are to be restarted
	Why, By string
	At      time.Time
}

// Next returns the head that follows on h, which is nil for a service that has none. release is that of the new head,
// before that of h; nil where it is not known. A number of machines that somebody chose for a group stays over a deploy,
// unless the new release says another number of the group than the one before.
func (h *Head) Next(c Change, release, before *Release) (*Head, error) {
	n := &Head{Schema: Schema, Number: 1, Release: c.Release, Counts: map[string]int{}, Why: c.Why, By: c.By,
		At: c.At.UTC()}
	if h != nil {
		n.Number, n.Parent, n.Restarted = h.Number+1, h.ID(), h.Restarted
		if n.Release == "" {
			n.Release = h.Release
		}
		for group, count := range h.Counts {
			if g := release.Group(group); !renumbered(g, before, group) && g.checkCount(count) == nil {
				n.Counts[group] = count
			}
		}
		n.Past = append([]Past{h.past()}, h.Past[:min(len(h.Past), MaxKept-1)]...)
	}
	for group, count := range c.Counts {
		if release.Group(group) == nil {
			return nil, release.noGroup(group)
		}
		if err := release.Group(group).checkCount(count); err != nil {
			return nil, err
		}
		n.Counts[group] = count
	}
	maps.DeleteFunc(n.Counts, func(group string, count int) bool {
		g := release.Group(group)
		return g == nil || g.Replicas == count
	})
	if c.Restart {
		n.Restarted++
	}
	return n, n.Check()
}

// renumbered reports whether a release says another number of a group than the one before did.
func renumbered(g *Group, before *Release, group string) bool {
	if g == nil || before == nil {
		return g == nil
	}
	old := before.Group(group)
	return old == nil || old.Replicas != g.Replicas
}

func (h *Head) past() Past {
	return Past{ID: h.ID(), Number: h.Number, Release: h.Release, Counts: h.Counts, Why: h.Why, By: h.By, At: h.At}
}

// Check refuses a head that cannot be kept.
func (h *Head) Check() error {
	switch {
	case h.Schema != Schema:
		return schemaError("head", h.Schema)
	case h.Release == "" || len(h.Release) > maxText || len(h.Parent) > maxText || len(h.Why) > maxText ||
		len(h.By) > maxText || len(h.Past) > MaxKept || len(h.Counts) > MaxGroups:
		return fault.New(fault.Invalid, "head", "the head of a service names its release, has at most %d heads before "+
			"it and %d groups, and texts of at most %d bytes", MaxKept, MaxGroups, maxText)
	}
	for group, n := range h.Counts {
		if err := checkCount(group, n); err != nil {
			return err
		}
	}
	return nil
}

// Follows reports whether h was made knowing of the head of an id, as far as is still kept.
func (h *Head) Follows(id string) bool {
	return h.Parent == id || slices.ContainsFunc(h.Past, func(p Past) bool { return p.ID == id })
}

// Overtakes reports whether h replaces old, or is replaced by it, without either having known of the other: two members
// wrote at the same time, or on two sides of a cut. It is not sure where one is more than MaxKept heads behind.
func (h *Head) Overtakes(old *Head) bool {
	id, oldID := h.ID(), old.ID()
	return id != oldID && !h.Follows(oldID) && !old.Follows(id) && h.Number < old.Number+MaxKept
}

// Count returns how many machines of a group of its release are wanted.
func (h *Head) Count(g *Group) int {
	if n, said := h.Counts[g.Name]; said {
		return n
	}
	return g.Replicas
}

// Kept lists the releases that are still of use: those of the newest heads.
func (h *Head) Kept() []string {
	out := []string{h.Release}
	for _, p := range h.Past {
		if !slices.Contains(out, p.Release) && len(out) < MaxKept {
			out = append(out, p.Release)
		}
	}
	return out
}
