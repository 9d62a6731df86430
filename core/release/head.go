package release

import (
	"cmp"
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
	WhyBack    = "rollback"
	WhyPause   = "pause"
	WhyResume  = "resume"
	WhyPromote = "promote"
	WhySecrets = "secrets"
	WhyMove    = "move"
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
	// Hand is the number of the head by which somebody last said how many machines a group has that has an autoscale.
	Hand map[string]uint64 `json:"hand,omitempty"`
	// Restarted counts how often the machines of the service were to be restarted: to be made anew as they are.
	Restarted uint64 `json:"restarted,omitempty"`

	Rollout  uint64   `json:"rollout,omitempty"`  // the number of the head that began the rollout
	Before   *Target  `json:"before,omitempty"`   // what was so before the rollout, and is again if it is undone; nil: nothing
	Promoted int      `json:"promoted,omitempty"` // how many steps of a canary somebody has let pass
	Paused   bool     `json:"paused,omitempty"`   // no further machine is replaced
	Booking  *Booking `json:"booking,omitempty"`  // that workers hold for its machines; nil: none
	Command  bool     `json:"command,omitempty"`  // the rollout begins with its release's command
	Moves    []MoveTo `json:"moves,omitempty"`    // machines that are to be at other workers; at most MaxMoves

	Past []Past `json:"past,omitempty"` // heads before it, newest first; at most MaxKept
}

// Target is what the machines of a service are to be.
type Target struct {
	Release   string `json:"release"`
	Restarted uint64 `json:"restarted,omitempty"`
}

// Target returns what a head wants.
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

// Change is what somebody wants changed of a service, as it goes from a client to Service.Resolve; and what that comes to:
// what a new head is to have else than its parent.
type Change struct {
	Why    string  // the verb: WhyDeploy and so on
	Parent *string // the id of the head that is to be followed, "" for none; nil: whichever stands
	By     string
	At     time.Time

	New     *Release       // of a deploy: what is to be made
	Release string         // "": the one that is in force
	Counts  map[string]int // by group; those that it leaves out stay
	Restart bool           // all machines are to be restarted
	Resume  bool           // a rollout that was paused or undone is tried again
	Pause   bool           // no further machine is to be replaced
	Promote int            // so many steps of a canary are over; 0: no more than before, asked for: one more
	All     bool           // of a promote that is asked for: all steps are over
	Booking *Booking       // that workers hold for the machines of Release; nil: none
	Moves   []MoveTo       // machines that are to be at other workers; others stay as they are
	// Stands reports, of a move that is asked for, whether there is a machine of an id.
	Stands func(id string) bool
}

// begins reports whether a change begins a rollout, though what is wanted may be the same.
func (c *Change) begins() bool { return c.Release != "" || c.Restart || c.Resume }

// Next returns the head that follows on h, which is nil for a service that has none. release is that of the new head,
// before that of h; nil where it is not known. p is how far the rollout of h is. A number of machines that somebody chose
// for a group stays over a deploy, unless the new release says another number of the group than the one before.
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

// aim sets what n wants, where it follows on h.
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
	if n.Target() == h.Target() && h.Before != nil { // what is tried again
		was = h.Before
	}
	if was != nil && *was != n.Target() {
		n.Before = was
	}
}

// Same reports whether h wants what its parent old does.
func (h *Head) Same(old *Head) bool {
	return h.Rollout == old.Rollout && h.Paused == old.Paused && h.Promoted == old.Promoted &&
		maps.Equal(h.Counts, old.Counts) && maps.Equal(h.Hand, old.Hand) && slices.Equal(h.Moves, old.Moves)
}

// InForce returns what the machines of the service are to be while its rollout is so far: that of the head, or what was
// before it once it is undone.
func (h *Head) InForce(p Progress) Target {
	if p.Of(h) && p.Undo && h.Before != nil {
		return *h.Before
	}
	return h.Target()
}

// proven returns what an undo of the next rollout returns to: what the head wants if its rollout has succeeded, else what
// was before it. nil: nothing has.
func (h *Head) proven(p Progress) *Target {
	if p.Of(h) && p.State == Done && !p.Undo && len(p.Failed) == 0 {
		t := h.Target()
		return &t
	}
	return h.Before
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
