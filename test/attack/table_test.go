package attack

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/soukhq/souk/internal/wait/waittest"
)

// attack is one thing that a thief tries.
type attack struct {
	name string
	// works says that it succeeds before the removal, which is tried too: so it fails afterwards for no typo.
	works bool
	// in are the phases in which it must not succeed; none: after the removal.
	in []int
	// try tries it, and returns what shows from outside that it succeeded, "" as long as nothing does. nil: it was
	// refused as it was tried.
	try func(x *thief) (seen func() string)
}

// at once is what is known as soon as it was tried.
func atOnce(seen string) func() string { return func() string { return seen } }

// said is what an answer shows; an error shows nothing.
func said(what string, err error) func() string {
	if err != nil {
		return nil
	}
	return atOnce(what)
}

func (k attack) during(phase int) bool {
	if phase == before {
		return k.works
	}
	return len(k.in) == 0 || slices.Contains(k.in, phase)
}

// soon bounds how long the effect of a try may take where it is to be seen.
const soon = time.Minute

// all tries each in the phase that it is, and then looks at each once more: what comes late counts too.
func (x *thief) all(attacks []attack) (tried, worked int) {
	type shown struct {
		name string
		seen func() string
	}
	var shows []shown
	for _, k := range attacks {
		if !k.during(x.phase) || !strings.Contains(k.name, *only) {
			continue
		}
		tried++
		began := time.Now()
		seen := k.try(x)
		if took := time.Since(began); took > time.Second {
			x.t.Logf("%s took %v", k.name, took.Round(time.Millisecond))
		}
		if x.phase == before {
			if seen != nil && within(x.t, soon, func() bool { return seen() != "" }) {
				worked++
				if took := time.Since(began); took > time.Second {
					x.t.Logf("%s was seen after %v", k.name, took.Round(time.Millisecond))
				}
			} else {
				x.t.Errorf("%s: it does not succeed before the removal either, so that it fails later shows nothing",
					k.name)
			}
			continue
		}
		if seen != nil {
			shows = append(shows, shown{k.name, seen})
		}
	}
	for _, s := range shows {
		if what := s.seen(); what != "" {
			x.t.Errorf("%s: %s succeeded: %s", phases[x.phase], s.name, what)
		}
	}
	return tried, worked
}

// TestStolenDiskGrantsNothing: a thief has the whole disk of a member (certificate, keys, the key of gossip, tokens, catalog, the
// key of secrets, contexts), was in when it was removed, and tries what there is to try. Nothing succeeds.
func TestStolenDiskGrantsNothing(t *testing.T) {
	w := newTown(t)
	began := time.Now()
	lap := func(what string) { t.Logf("%s after %v", what, time.Since(began).Round(100*time.Millisecond)) }
	x := theft(t, w)
	lap("the disk is stolen")
	x.linger()
	attacks := slices.Concat(x.tokenAttacks(), x.wireAttacks(), x.gossipAttacks(), x.certificateAttacks(),
		x.sessionAttacks(), x.agentAttacks(), x.secretAttacks(), x.placeAttacks())
	tries, worked := x.all(attacks)
	names := make([]string, len(attacks))
	for i, k := range attacks {
		names[i] = k.name
	}

	// what the thief told of machines at c is c's word until then
	w.souk(x.a.env(), "node", "rm", "c", "--force", "--yes", "--end-tokens", "--forget-machines", "--reason", "stolen")
	x.phase = removed
	lap("all was tried before")
	waittest.Until(t, "both have heard of the removal", func() bool {
		return x.knownRemoved(x.a) && x.knownRemoved(x.b)
	})
	n, _ := x.all(attacks)
	tries += n
	lap("and after the removal")
	said := w.souk(x.a.env(), "node", "evict", "c", "--yes", "--reason", "stolen")
	if strings.Contains(said, "NOT SHUT") || !strings.Contains(said, "can still do: nothing") {
		t.Errorf("with two names of the thief's in gossip: %s", said)
	}
	x.phase = evicted
	lap("it is evicted")
	n, _ = x.all(attacks)
	tries += n
	lap("all was tried again")
	t.Logf("%d attacks, tried %d times; %d of them were seen to succeed before the removal", len(attacks), tries,
		worked)
	if len(attacks) < 40 {
		t.Errorf("only %d attacks: %v", len(attacks), names)
	}
}

func (x *thief) knownRemoved(at *agent) bool {
	return strings.Contains(at.text("/v1/souk/removed"), `"c"`)
}
