package release

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// canaryOf is a release of one group with a canary of some steps.
func canaryOf(image string, steps ...CanaryStep) *Release {
	r := releaseOf(image, map[string]int{"web": 4})
	r.Groups[0].Update = &Update{Strategy: Canary, Steps: steps}
	return r
}

// rolled is a head whose rollout replaces release one by r.
func rolled(t *testing.T, r *Release) *Head {
	t.Helper()
	one := releaseOf("one", map[string]int{"web": 4})
	h := next(t, nil, Change{Release: one.ID(), Why: WhyDeploy, At: time.Unix(100, 0)}, one, nil)
	done := Progress{Rollout: h.Rollout, Release: h.Release, State: Done}
	n, err := h.Next(Change{Release: r.ID(), Why: WhyDeploy, By: "ann", At: time.Unix(200, 0)}, r, one, done)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// follow is a head that follows on h with a change.
func follow(t *testing.T, h *Head, c Change, r *Release, p Progress) *Head {
	t.Helper()
	n, err := h.Next(c, r, r, p)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestTellDescribesTheRolloutState: what a rollout has come to, of the head, its release and what its steward wrote.
func TestTellDescribesTheRolloutState(t *testing.T) {
	hour := machine.Duration{Duration: time.Hour}
	plain := releaseOf("two", map[string]int{"web": 4})
	canary := canaryOf("two", CanaryStep{Percent: 10}, CanaryStep{Percent: 50, For: &hour})
	long := canaryOf("two", CanaryStep{Percent: 10, For: &hour}, CanaryStep{Percent: 50})
	began := time.Unix(200, 0).UTC()
	at := time.Unix(300, 0).UTC()
	for _, tt := range []struct {
		name     string
		r        *Release
		p        Progress // without its rollout
		pause    bool
		promoted int
		fresh    int
		want     Story
	}{
		{name: "begun", r: plain, want: Story{State: RolledRunning, Since: began}},
		{name: "done", r: plain, p: Progress{State: Done, At: at}, want: Story{State: RolledDone, Since: at}},
		{name: "undoing", r: plain, p: Progress{Undo: true, Why: "it dies", At: at},
			want: Story{State: RolledUndoing, Why: "it dies", Since: at}},
		{name: "undone", r: plain, p: Progress{Undo: true, State: Done, Why: "it dies", At: at},
			want: Story{State: RolledUndone, Why: "it dies", Since: at}},
		{name: "failed", r: plain, p: Progress{State: Paused, Why: "it dies", At: at},
			want: Story{State: RolledPaused, Why: "it dies", Since: at}},
		{name: "the undo failed", r: plain, p: Progress{Undo: true, State: Paused, Why: "it dies", At: at},
			want: Story{State: RolledPaused, Why: "it dies", Since: at}},
		{name: "asked to pause", r: plain, pause: true,
			want: Story{State: RolledPaused, Asked: true, By: "bob", Since: time.Unix(250, 0).UTC()}},
		{name: "asked to pause, and done", r: plain, pause: true, p: Progress{State: Done, At: at},
			want: Story{State: RolledDone, Since: at}},
		{name: "the step comes", r: canary, want: Story{State: RolledRunning, Steps: 2, Since: began}},
		{name: "waiting", r: canary, fresh: 1, want: Story{State: RolledWaiting, Steps: 2, Since: began}},
		{name: "promoted", r: canary, promoted: 1, fresh: 1, want: Story{State: RolledRunning, Steps: 2, Since: began}},
		{name: "the step that lasts", r: canary, fresh: 4, p: Progress{Step: 1, At: at}, promoted: 1,
			want: Story{State: RolledRunning, Step: 1, Steps: 2, Since: at}},
		{name: "the last step comes", r: long, p: Progress{Step: 1, At: at}, fresh: 1,
			want: Story{State: RolledRunning, Step: 1, Steps: 2, Since: at}},
		{name: "the last step waits", r: long, fresh: 2, p: Progress{Step: 1, At: at},
			want: Story{State: RolledWaiting, Step: 1, Steps: 2, Since: at}},
		{name: "all steps are over", r: long, fresh: 4, p: Progress{Step: 2, At: at},
			want: Story{State: RolledRunning, Step: 2, Steps: 2, Since: at}},
		{name: "no steps", r: canaryOf("two"), fresh: 1, want: Story{State: RolledWaiting, Steps: 1, Since: began}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := rolled(t, tt.r)
			if tt.promoted > 0 {
				h = follow(t, h, Change{Promote: tt.promoted, Why: WhyPromote, At: time.Unix(260, 0)}, tt.r, Progress{})
			}
			if tt.pause {
				h = follow(t, h, Change{Pause: true, Why: WhyPause, By: "bob", At: time.Unix(250, 0)}, tt.r, Progress{})
				h = follow(t, h, Change{Counts: map[string]int{"web": 7}, Why: WhyScale, By: "eve"}, tt.r, Progress{})
			}
			p := tt.p
			if !p.At.IsZero() {
				p.Rollout, p.Release = h.Rollout, h.Release
			}
			r := Service{Head: h, Release: tt.r, Before: releaseOf("one", map[string]int{"web": 4}),
				Tenure: Tenure{Notes: Notes{Progress: p}}}
			got := r.Tell(func(string) int { return tt.fresh })
			want := tt.want
			want.Number, want.Release, want.Before = 2, tt.r.ID(), h.Before.Release
			if want.InForce = want.Release; p.Undo {
				want.InForce = want.Before
			}
			if !got.same(&want) {
				t.Errorf("\n got %+v\nwant %+v", got, want)
			}
		})
	}
	fresh := Service{Head: next(t, nil, Change{Release: canary.ID()}, canary, nil), Release: canary}
	if s := fresh.Tell(nil); s.Steps != 0 || s.Before != "" {
		t.Errorf("the first release has a canary: %+v", s)
	}
}

func (s *Story) same(o *Story) bool {
	return s.Number == o.Number && s.Release == o.Release && s.Before == o.Before && s.InForce == o.InForce &&
		s.State == o.State &&
		s.Asked == o.Asked && s.By == o.By && s.Step == o.Step && s.Steps == o.Steps && s.Why == o.Why &&
		s.Since.Equal(o.Since)
}

// TestRolloutVerbsChangeOrRefuse: what each verb changes of a rollout that is so far, and what it refuses.
func TestRolloutVerbsChangeOrRefuse(t *testing.T) {
	two := canaryOf("two", CanaryStep{Percent: 10}, CanaryStep{Percent: 50})
	plain := releaseOf("three", map[string]int{"web": 4})
	one := releaseOf("one", map[string]int{"web": 4})
	h, g := rolled(t, two), rolled(t, plain)
	restarted := follow(t, g, Change{Restart: true}, plain, Progress{Rollout: 2, Release: plain.ID(), State: Done})
	turned := follow(t, h, Change{Release: h.Before.Release, Why: WhyBack}, one, Progress{})
	at := func(h *Head, p Progress) Progress {
		p.Rollout, p.Release, p.At = h.Rollout, h.Release, time.Unix(300, 0)
		return p
	}
	done, undone := Progress{State: Done}, Progress{State: Done, Undo: true, Why: "it dies"}
	first := h.Before.Release
	rollback := func(release string) func(*Service) (Change, error) {
		return func(r *Service) (Change, error) { return r.Rollback(release) }
	}
	promote := func(n int, all bool) func(*Service) (Change, error) {
		return func(r *Service) (Change, error) { return r.Promote(n, all) }
	}
	pause := func(r *Service) (Change, error) { return r.Pause() }
	resume := func(r *Service) (Change, error) { return r.Resume(), nil }
	for _, tt := range []struct {
		name string
		h    *Head
		r    *Release
		p    Progress
		do   func(*Service) (Change, error)
		want Change
		code fault.Code
	}{
		{"back", h, two, Progress{}, rollback(""), Change{Release: first, Why: WhyBack}, ""},
		{"back, done", h, two, done, rollback(""), Change{Release: first, Why: WhyBack}, ""},
		{"back, undone", h, two, undone, rollback(""), Change{}, "no_earlier_release"},
		{"back of a restart", restarted, plain, Progress{}, rollback(""), Change{}, "no_earlier_release"},
		{"back of a rollback of what was not done", turned, one, Progress{}, rollback(""), Change{},
			"no_earlier_release"},
		{"to what is wanted", h, two, done, rollback(two.ID()), Change{}, ""},
		{"to what was undone", h, two, undone, rollback(two.ID()), Change{Release: two.ID(), Why: WhyBack}, ""},
		{"to what an undo returned to", h, two, undone, rollback(first), Change{Release: first, Why: WhyBack}, ""},
		{"pause", h, two, Progress{}, pause, Change{Pause: true, Why: WhyPause}, ""},
		{"pause what failed", h, two, Progress{State: Paused}, pause, Change{}, ""},
		{"pause, done", h, two, done, pause, Change{}, "rollout_over"},
		{"pause, undone", h, two, undone, pause, Change{}, "rollout_over"},
		{"resume", h, two, Progress{State: Paused}, resume, Change{Resume: true, Why: WhyResume}, ""},
		{"resume, undone", h, two, undone, resume, Change{Resume: true, Why: WhyResume}, ""},
		{"resume what could not be undone", h, two, Progress{State: Paused, Undo: true}, resume,
			Change{Resume: true, Why: WhyResume}, ""},
		{"promote what could not be undone", h, two, Progress{State: Paused, Undo: true}, promote(0, false), Change{},
			"rollout_over"},
		{"resume what runs", h, two, Progress{}, resume, Change{}, ""},
		{"resume, done", h, two, done, resume, Change{}, ""},
		{"promote", h, two, Progress{}, promote(0, false), Change{Promote: 1, Why: WhyPromote}, ""},
		{"promote on", h, two, Progress{Step: 1}, promote(0, false), Change{Promote: 2, Why: WhyPromote}, ""},
		{"promote at the end", h, two, Progress{Step: 2}, promote(0, false), Change{Promote: 2, Why: WhyPromote}, ""},
		{"promote all", h, two, Progress{}, promote(0, true), Change{Promote: 2, Why: WhyPromote}, ""},
		{"promote too far", h, two, Progress{}, promote(3, false), Change{}, "steps"},
		{"promote below", h, two, Progress{}, promote(-1, false), Change{}, "steps"},
		{"promote both", h, two, Progress{}, promote(1, true), Change{}, "steps"},
		{"promote, done", h, two, done, promote(0, false), Change{}, "rollout_over"},
		{"promote, undone", h, two, undone, promote(0, false), Change{}, "rollout_over"},
		{"promote no canary", g, plain, Progress{}, promote(0, false), Change{}, "no_canary"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := tt.do(&Service{App: "shop", Head: tt.h, Release: tt.r, Before: one,
				Tenure: Tenure{Notes: Notes{Progress: at(tt.h, tt.p)}}})
			if fault.CodeOf(err) != tt.code && err != nil || err == nil && tt.code != "" ||
				got.Release != tt.want.Release || got.Pause != tt.want.Pause || got.Resume != tt.want.Resume ||
				got.Promote != tt.want.Promote || got.Why != tt.want.Why {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
	fresh := Service{App: "shop", Head: next(t, nil, Change{Release: plain.ID()}, plain, nil), Release: plain}
	if _, err := fresh.Rollback(""); fault.CodeOf(err) != "no_earlier_release" {
		t.Error("back from the first release:", err)
	}
}

// TestRepeatedRolloutVerbChangesNothing: a verb repeated in any state of the rollout changes nothing.
func TestRepeatedRolloutVerbChangesNothing(t *testing.T) {
	two := canaryOf("two", CanaryStep{Percent: 10}, CanaryStep{Percent: 50})
	rapid.Check(t, func(rt *rapid.T) {
		h := rolled(t, two)
		p := Progress{Rollout: h.Rollout, Release: h.Release, Undo: rapid.Bool().Draw(rt, "undo"),
			State: rapid.SampledFrom([]State{"", Done, Paused}).Draw(rt, "state"),
			Step:  rapid.IntRange(0, 2).Draw(rt, "step"), At: time.Unix(300, 0)}
		verb := rapid.SampledFrom([]string{WhyBack, WhyPause, WhyResume, WhyPromote}).Draw(rt, "verb")
		do := func(h *Head, of *Release) (Change, error) {
			r := Service{App: "shop", Head: h, Release: of, Before: releaseOf("one", map[string]int{"web": 4}),
				Tenure: Tenure{Notes: Notes{Progress: p}}}
			switch verb {
			case WhyBack:
				return r.Rollback(h.Before.Release)
			case WhyPause:
				return r.Pause()
			case WhyResume:
				return r.Resume(), nil
			}
			return r.Promote(1, false)
		}
		c, err := do(h, two)
		if err != nil {
			return
		}
		r := two
		if c.Release != "" {
			r = releaseOf("one", map[string]int{"web": 4})
		}
		n := follow(t, h, c, r, p)
		if verb == WhyBack {
			if n.Release != h.Before.Release {
				rt.Fatalf("went back to %s", n.Release)
			}
			again, err := (&Service{Head: n, Release: r, Tenure: Tenure{Notes: Notes{Progress: p}}}).Rollback(n.Release)
			if err != nil || again.Why != "" {
				rt.Fatalf("%+v, %v", again, err)
			}
			return
		}
		again, err := do(n, r)
		if err != nil {
			rt.Fatal(err)
		}
		if m := follow(t, n, again, r, p); !m.Same(n) {
			rt.Fatalf("%s twice: %+v, then %+v", verb, n, m)
		}
	})
}
