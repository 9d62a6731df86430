package faults_test

import (
	"flag"
	"slices"
	"testing"
	"time"

	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/test/netns"
)

var badFor = flag.Duration("bad-for", 10*time.Second, "how long TestBadNetworkReplacesNoMachine has a bad network") //nolint:gochecknoglobals

// TestBadNetworkReplacesNoMachine: a service's machines stay while each host loses a tenth of its packets, and, at pace wan, while
// each packet takes 300 ms there and back: no other is made in the place of one whose host lives.
//
// Ten minutes of each: go test ./test/faults -run TestBadNetworkReplacesNoMachine -v -args -bad-for 10m
func TestBadNetworkReplacesNoMachine(t *testing.T) {
	t.Parallel()
	for _, bad := range []struct {
		name  string
		flags []string
		do    func(*netns.Host) error
	}{
		{"loss", nil, func(h *netns.Host) error { return h.Lose(10) }},
		{"delay", []string{"--pace", "wan"}, func(h *netns.Host) error { return h.Delay(150 * time.Millisecond) }},
	} {
		t.Run(bad.name, func(t *testing.T) {
			t.Parallel()
			apart(t, func() {
				k := newKept(t, 9, bad.flags...)
				k.whole(9, 0, 1, 2)
				before := k.machines(0)
				for _, h := range k.hosts {
					if err := bad.do(h); err != nil {
						t.Fatal(err)
					}
				}
				waittest.Pass(*badFor)
				if err := k.hosts.Heal(); err != nil {
					t.Fatal(err)
				}
				k.whole(9, 0, 1, 2)
				if now := k.machines(0); !slices.Equal(now, before) {
					t.Errorf("the machines were %v, and are %v", before, now)
				}
				t.Logf("none of 9 machines was made anew in %v", *badFor)
			})
		})
	}
}
