package process_test

import (
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	"github.com/soukhq/souk/runtime"
)

// TestKillDoesNotReachTheNextLife: cgroups are used again, so a kill that is still at work when its life has ended must not
// find the life that has the group now.
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
	for w := range 8 {
		wg.Go(func() {
			for i := range 25 {
				id := fmt.Sprintf("w%dx%d", w, i)
				s := limited(id, 1, lasting...)
				s.Fresh = true
				if _, err := r.Start(t.Context(), s); err != nil {
					t.Error(err)
					return
				}
				// Two processes of the group beside it, one in a session of its own, make the kill take its time.
				if i%2 == 0 {
					go func() {
						_, _ = r.Exec(t.Context(), id, runtime.ExecRequest{Argv: []string{"/bin/sh", "-c", "setsid sleep 1000 & sleep 1000"}})
					}()
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
