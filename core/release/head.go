package release

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/soukhq/souk/fault"
)

// The reasons for which a head is written.
const (
	WhyDeploy  = "deploy"
	WhyScale   = "scale"
	WhyRestart = "restart"
	WhyBack    = "rollback"
	WhyPause   = "pause"
	WhyResume  = "resume"
	WhyPromote = "promote"
	WhySecrets = "secrets"
	WhyMove    = "move"
)

// Head is the wanted state of a service. It is replaced as a whole, and names its parent, the head that it was made
// from.
type Head struct {
	Schema  int            `json:"schema"`
	Number  uint64         `json:"number"` // its parent's plus one; from 1
	Parent  string         `json:"parent,omitempty"`
	Release string         `json:"release"`
	Counts  map[string]int `json:"counts,omitempty"` // of groups with another number than in the release
	Why     string         `json:"why"`
	By      string         `json:"by,omitempty"`
	At      time.Time      `json:"at"`
	// Hand is, for each group with an autoscale, the number of the head by which a person last set its count.
	Hand map[string]uint64 `json:"hand,omitempty"`
	// Restarted counts the restarts of the service: each replaces all machines by equal ones.
	Restarted uint64 `json:"restarted,omitempty"`

	Rollout  uint64   `json:"rollout,omitempty"`  // number of the head that began the rollout
	Before   *Target  `json:"before,omitempty"`   // the target before the rollout, which an undo restores; nil: none
	Promoted int      `json:"promoted,omitempty"` // how many canary steps were promoted by hand
	Paused   bool     `json:"paused,omitempty"`   // no further machine is replaced
	Booking  *Booking `json:"booking,omitempty"`  // room that workers hold for its machines; nil: none
	Command  bool     `json:"command,omitempty"`  // the rollout begins with its release's command
	Moves    []MoveTo `json:"moves,omitempty"`    // machines to move to other workers; at most MaxMoves

	Past []Past `json:"past,omitempty"` // earlier heads, newest first; at most MaxKept
}

// Target is what the machines of a service are to run.
type Target struct {
	Release   string `json:"release"`
	Restarted uint64 `json:"restarted,omitempty"`
}

// Target returns what the head wants.
func (h *Head) Target() Target { return Target{h.Release, h.Restarted} }

// Past is a head that another has replaced.
type Past struct {
	ID      string         `json:"id"`
	Number  uint64         `json:"number"`
	Release string         `json:"release"`
	Counts  map[string]int `json:"counts,omitempty"`
	Why     string         `json:"why"`
	By      string         `json:"by,omitempty"`
	At      time.Time      `json:"at"`
	Undone  string         `json:"undone,omitempty"` // why its rollout was undone; "": it was not
}

// mostUndone bounds Past.Undone, in bytes.
const mostUndone = 160

// ID returns the head's name, a hash of it.
func (h *Head) ID() string { return hash(h) }

// Change is a requested change of a service, as a client passes it to Service.Resolve, and the result of Resolve: how
// a new head differs from its parent.
type Change struct {
	Why    string  // the verb: WhyDeploy and so on
	Parent *string // ID of the head to follow, "" for none; nil: the present one
	By     string
	At     time.Time

	New     *Release       // of a deploy: the release to make
	Release string         // "": the present one
	Counts  map[string]int // by group; other groups keep theirs
	Restart bool           // restart all machines
	Resume  bool           // retry a rollout that was paused or undone
	Pause   bool           // replace no further machines
	Promote int            // number of canary steps that are over; 0: unchanged, in a request: one more
	All     bool           // in a promote request: all steps are over
	Booking *Booking       // room that workers hold for machines of Release; nil: none
	Moves   []MoveTo       // machines to move to other workers; others stay
	// Stands reports, for a requested move, whether a machine with this ID exists.
	Stands func(id string) bool
}

// begins reports whether a change begins a rollout, even if the target stays the same.
func (c *Change) begins() bool { return c.Release != "" || c.Restart || c.Resume }

// Next returns the head that follows h, which is nil for a service without a head. release is that of the new head,
// before that of h; nil if unknown. p is the progress of h's rollout. A count that a person set for a group survives a
// deploy, unless the new release has another number for the group than the one before.
func (h *Head) Next(c Change, release, before *Release, p Progress) (*Head, error) {
	n := &Head{Schema: Schema, Number: 1, Release: c.Release, Counts: map[string]int{}, Why: c.Why, By: c.By,
		At: c.At.UTC(), Booking: c.Booking}
	if h != nil {
		n.Number, n.Parent = h.Number+1, h.ID()
		n.aim(h, &c, p)
		n.Moves = h.moved(&c)
		for group, count := range h.Counts {
			if g := release.Group(group); !renumbered(g, before, group) && g.checkCount(count) == nil {
				n.Counts[group] = count
			}
		}
		n.Hand = maps.Clone(h.Hand)
		was := h.past()
		if p.Of(h) && p.Undo {
			was.Undone = fault.Clip(cmp.Or(p.Why, "its rollout failed"), mostUndone)
		}
		n.Past = append([]Past{was}, h.Past[:min(len(h.Past), MaxKept-1)]...)
	} else {
		n.Rollout = n.Number
	}
	n.Command = n.runsCommand(h, &c, release, p)
	for group, count := range c.Counts {
		if release.Group(group) == nil {
			return nil, release.noGroup(group)
		}
		g := release.Group(group)
		if err := cmp.Or(g.checkCount(count), g.checkHand(count)); err != nil {
			return nil, err
		}
		if n.Counts[group] = count; g.Autoscale != nil {
			if n.Hand == nil {
				n.Hand = map[string]uint64{}
			}
			n.Hand[group] = n.Number
		}
	}
	maps.DeleteFunc(n.Hand, func(group string, _ uint64) bool { return release.Group(group) == nil })
	maps.DeleteFunc(n.Counts, func(group string, count int) bool {
		g := release.Group(group)
		return g == nil || g.Replicas == count
	})
	return n, n.Check()
}

// aim sets the target of n, which follows h.
func (n *Head) aim(h *Head, c *Change, p Progress) {
	in := h.InForce(p)
	if c.Resume {
		in = h.Target()
	}
	n.Release, n.Restarted = cmp.Or(c.Release, in.Release), in.Restarted
	if c.Restart {
		n.Restarted = h.Restarted + 1
	}
	if !c.begins() && n.Target() == h.Target() {
		n.Rollout, n.Before, n.Promoted, n.Paused = h.Rollout, h.Before, max(h.Promoted, c.Promote), h.Paused || c.Pause
		return
	}
	n.Rollout, n.Promoted = n.Number, c.Promote
	if n.Target() == h.Target() {
		n.Promoted = max(n.Promoted, h.Promoted)
	}
	was := h.proven(p)
	if n.Target() == h.Target() && h.Before != nil { // the same target again
		was = h.Before
	}
	if was != nil && *was != n.Target() {
		n.Before = was
	}
}

// Same reports whether h wants the same as its parent old.
func (h *Head) Same(old *Head) bool {
	return h.Rollout == old.Rollout && h.Paused == old.Paused && h.Promoted == old.Promoted &&
		maps.Equal(h.Counts, old.Counts) && maps.Equal(h.Hand, old.Hand) && slices.Equal(h.Moves, old.Moves)
}

// InForce returns the present target of the service's machines: the head's, or the one before once the rollout is
// undone.
func (h *Head) InForce(p Progress) Target {
	if p.Of(h) && p.Undo && h.Before != nil {
		return *h.Before
	}
	return h.Target()
}

// proven returns the target that an undo of the next rollout restores: the head's if its rollout has succeeded, else
// the one before. nil: none has succeeded.
func (h *Head) proven(p Progress) *Target {
	if p.Of(h) && p.State == Done && !p.Undo && len(p.Failed) == 0 {
		t := h.Target()
		return &t
	}
	return h.Before
}

// renumbered reports whether a release has another number for a group than the release before.
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

// Check refuses an invalid head.
func (h *Head) Check() error {
	switch {
	case h.Schema != Schema:
		return schemaError("head", h.Schema)
	case h.Release == "" || len(h.Release) > maxText || len(h.Parent) > maxText || len(h.Why) > maxText ||
		len(h.By) > maxText || len(h.Past) > MaxKept || len(h.Counts) > MaxGroups || len(h.Hand) > MaxGroups:
		return fault.New(fault.Invalid, codeHead,
			"the head of a service names its release, has at most %d heads before "+
				"it and %d groups, and texts of at most %d bytes", MaxKept, MaxGroups, maxText)
	}
	for group, n := range h.Counts {
		if err := checkCount(group, n); err != nil {
			return err
		}
	}
	return cmp.Or(h.checkMoves(), h.Booking.check())
}

// Follows reports whether h descends from the head with an ID, as far as heads are kept.
func (h *Head) Follows(id string) bool {
	return h.Parent == id || slices.ContainsFunc(h.Past, func(p Past) bool { return p.ID == id })
}

// Overtakes reports whether h and old were written independently, and one replaces the other: two members wrote at the
// same time, or on two sides of a network partition. It cannot tell if one is more than MaxKept heads behind.
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

// Kept lists the releases that are still needed: those of the newest heads.
func (h *Head) Kept() []string {
	out := []string{h.Release}
	if h.Before != nil && h.Before.Release != h.Release {
		out = append(out, h.Before.Release)
	}
	for _, p := range h.Past {
		if !slices.Contains(out, p.Release) && len(out) < MaxKept {
			out = append(out, p.Release)
		}
	}
	return out
}
