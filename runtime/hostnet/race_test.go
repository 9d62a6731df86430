package hostnet_test

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/vishvananda/netns"

	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/runtime/hostnet"
	"github.com/soukhq/souk/runtime/hostnet/netplan"
)

// TestRepairToleratesConcurrentFlushes: rules that somebody removes while it is looked whether they stand are laid again, and that is
// no error.
func TestRepairToleratesConcurrentFlushes(t *testing.T) {
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

// TestConcurrentSweepsSucceed: the souks of one host all remove what leads to containers that are gone, and one that finds some
// of it gone already gives a container its network all the same.
func TestConcurrentSweepsSucceed(t *testing.T) {
	h := apart(t)
	const souks, rounds = 4, 8
	ports := func(from int) (out []netplan.Port) {
		for i := range 10 {
			out = append(out, netplan.Port{Host: uint16(from + i), To: 80})
		}
		return out
	}
	attach := func(n *hostnet.Net, s *space, name string, from int) error {
		p := plan("a", name)
		p.Publish = ports(from)
		_, err := n.Attach(s.pid, name, p)
		return err
	}
	var nets [souks]*hostnet.Net
	for i := range nets {
		nets[i] = hostnet.New(fmt.Sprint("souk-", i))
	}
	var spaces [souks]*space
	for round := range rounds {
		for i, s := range spaces {
			if s != nil {
				s.stop()
			}
			spaces[i] = inner(t)
		}
		waittest.See(t, "no device of a container is left", func() string { return h.run("ip", "-o", "link") },
			func(links string) bool { return strings.Count(links, ": sk") == 0 })
		var all sync.WaitGroup
		for i, n := range nets {
			one := func() {
				if err := attach(n, spaces[i], fmt.Sprint(i, "-", round), 8000+1000*(round%2)+100*i); err != nil {
					t.Errorf("round %d: %v", round, err)
				}
			}
			// Their rules are laid one after the other, as google/nftables counts sets in a variable of its package.
			if round == 0 {
				one()
				continue
			}
			all.Go(func() {
				runtime.LockOSThread() // and ends with it
				if err := netns.Set(h.ns); err != nil {
					t.Error(err)
					return
				}
				one()
			})
		}
		all.Wait()
	}
}
