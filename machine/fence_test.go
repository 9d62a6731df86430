package machine

import (
	"strconv"
	"testing"

	"pgregory.net/rapid"
)

// TestFenceIncreasesWithEachLife: with each life, and with each machine that takes another's place whatever that one's lives do.
func TestFenceIncreasesWithEachLife(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		epoch, attempt := rapid.Uint64Range(0, 1<<30).Draw(t, "epoch"), rapid.Uint64Range(1, 1<<31).Draw(t, "attempt")
		m := &Machine{Config: &Config{Metadata: map[string]string{MetadataEpoch: strconv.FormatUint(epoch, 10)}}}
		next := &Machine{Config: &Config{Metadata: map[string]string{MetadataEpoch: strconv.FormatUint(epoch+1, 10)}}}
		late := rapid.Uint64().Draw(t, "late")
		if Fence(m, attempt+1) <= Fence(m, attempt) || Fence(next, 1) <= Fence(m, late) {
			t.Fatal(epoch, attempt, late)
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		epoch := rapid.Uint64Range(0, MaxEpoch-1).Draw(t, "epoch")
		attempt := rapid.Uint64Range(1, 1<<23).Draw(t, "attempt")
		id := rapid.StringMatching("[0-9a-f]{14}")
		m := &Machine{ID: id.Draw(t, "id"), Replica: &Replica{Epoch: epoch}}
		next := &Machine{ID: id.Draw(t, "next"), Replica: &Replica{Epoch: epoch + 1}}
		late := rapid.Uint64().Draw(t, "late")
		if Fence(m, attempt+1) <= Fence(m, attempt) || Fence(next, 1) <= Fence(m, late) || Fence(next, late) > 1<<63-1 {
			t.Fatal(epoch, attempt, late)
		}
		twin := &Machine{ID: id.Draw(t, "twin"), Replica: &Replica{Epoch: epoch}}
		if m.ID[:2] < twin.ID[:2] && Fence(m, late) >= Fence(twin, 1) {
			t.Fatal(m.ID, twin.ID, late)
		}
	})
	for _, odd := range []string{"", "-1", "x", "99999999999999999999"} {
		if n := FenceEpoch(&Machine{Config: &Config{Metadata: map[string]string{MetadataEpoch: odd}}}); n != 0 {
			t.Errorf("%q: %d", odd, n)
		}
	}
}
