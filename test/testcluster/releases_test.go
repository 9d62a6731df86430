package testcluster_test

import (
	"crypto/rand"
	"encoding/base64"
	"testing"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/machine"
)

// TestLargeReleaseReachesEveryMember: a release that is larger than an object, and that nothing makes smaller, is at all members
// whole, also at one that was down when it was made.
func TestLargeReleaseReachesEveryMember(t *testing.T) {
	t.Parallel()
	c := begin(t, 3)
	c.Kill(2)
	raw := make([]byte, 150<<10)
	_, _ = rand.Read(raw)
	text := base64.StdEncoding.EncodeToString(raw)
	in := api.NewRelease{Groups: []api.NewGroup{{Group: release.Group{Name: "web",
		Config: &machine.Config{Image: "souk/host",
			Init:  machine.Init{Exec: []string{"/bin/sleep", "60"}},
			Files: []machine.File{{GuestPath: "/data", RawValue: &text}}}}}}}
	made, err := c.Client(0).Deploy(t.Context(), app, in)
	if err != nil {
		t.Fatal(err)
	}
	whole := func(i int) bool {
		r, err := c.Client(i).Release(t.Context(), app, made.Release)
		return err == nil && r.ID == made.Release && *r.Groups[0].Config.Files[0].RawValue == text
	}
	c.Until("the other member has it", func() bool { return whole(0) && whole(1) })
	c.Restart(2)
	c.Until("the one that was down has it", func() bool { return whole(2) })
	s, err := c.Client(2).Service(t.Context(), app)
	if err != nil || s.Why != "" || s.Head.ID != made.Head.ID || s.Groups[0].Wanted != 1 {
		t.Fatalf("%+v, %v", s, err)
	}
	more := release.Change{Why: release.WhyScale, Counts: map[string]int{"web": 2}, Parent: &made.Head.ID}
	if _, err := c.Client(2).Change(t.Context(), app, more); err != nil {
		t.Fatal(err)
	}
	c.Until("all want two", func() bool {
		for i := range 3 {
			s, err := c.Client(i).Service(t.Context(), app)
			if err != nil || len(s.Groups) != 1 || s.Groups[0].Wanted != 2 {
				return false
			}
		}
		return true
	})
}
