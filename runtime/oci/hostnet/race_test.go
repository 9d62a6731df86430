package hostnet_test

import (
	"runtime"
	"testing"

	"github.com/soukhq/souk/runtime/oci/hostnet"
	"github.com/soukhq/souk/runtime/oci/hostnet/netplan"
)

// TestMendDuringFlushes: rules that somebody removes while it is looked whether they stand are laid again, and that is
// no error.
func TestMendDuringFlushes(t *testing.T) {
	h := apart(t)
	n := hostnet.New("souk-t")
	a := inner(t)
	p := plan("a", "a")
	p.Publish = []netplan.Port{{Host: 8080, To: 80}}
	_, err := n.Attach(a.pid, "a", p)
	must(t, err)
	a.serve(80, "a")
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		s := &space{t: t, ns: h.ns}
		runtime.LockOSThread() // and ends with it
		for {
			select {
			case <-stop:
				return
			default:
				_, _ = s.try("nft", "flush", "ruleset")
			}
		}
	}()
	for range 200 {
		if _, err := n.Mend(); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	<-done
	if _, err := n.Mend(); err != nil {
		t.Error(err)
	}
	if got, err := h.get("127.0.0.1:8080"); got != "a" {
		t.Errorf("%q, %v", got, err)
	}
}
