package process_test

import (
	"fmt"
	"path/filepath"
	"sync"
	"testing"
)

// TestKillDoesNotReachTheNextLife: cgroups are used again, so a kill that is still at work when its life has ended must
// not find the life that has the group now.
func TestKillDoesNotReachTheNextLife(t *testing.T) {
	o := options(filepath.Join(t.TempDir(), "process"))
	t.Cleanup(func() { stopReaper(t, o) })
	r := reopen(t, o)
	go func() {
		for x := range r.Exits() {
			_ = r.Ack(t.Context(), x.Machine, x.Attempt)
		}
	}()
	var wg sync.WaitGroup
	for w := range 32 {
		wg.Go(func() {
			for i := range 15 {
				id := fmt.Sprintf("w%dx%d", w, i)
				s := limited(id, 1, lasting...)
				s.Fresh = true
				if _, err := r.Start(t.Context(), s); err != nil {
					t.Error(err)
					return
				}
				if i > 0 {
					if err := r.Kill(t.Context(), fmt.Sprintf("w%dx%d", w, i-1)); err != nil {
						t.Error(err)
					}
				}
				all, err := r.List(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				for _, st := range all {
					if st.Machine == id && !st.Running {
						t.Errorf("%s was killed: %+v", id, st.Exit)
					}
				}
			}
		})
	}
	wg.Wait()
}
