package faults_test

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/machine"
)

// TestOwnerUpgradeFailsNoRequest: a member is upgraded in place, three times, while another member's proxy leads
// requests to its machine. Every one is answered, those that take seconds too.
func TestOwnerUpgradeFailsNoRequest(t *testing.T) {
	apart(t, func() {
		hosts, err := allHosts()
		if err != nil {
			t.Fatal(err)
		}
		ms := members(t, hosts[:2])
		if _, err := ms[0].Client().CreateApp(t.Context(), shop); err != nil {
			t.Fatal(err)
		}
		l := shopOf(ms[1], "web", false)
		l.Config.Init.Exec = []string{program(t)}
		l.Config.Env = map[string]string{envServe: fmt.Sprint(shopPort)}
		x, err := ms[0].Client().Launch(t.Context(), shop, l, client.LaunchOptions{})
		if err != nil || x.Worker != ms[1].Worker() {
			t.Fatalf("%+v, %v", x, err)
		}
		var load clients
		load.begin(t, ms[0])
		defer load.wait()
		for i := range 3 {
			load.answeredMore(t, 200)
			before := ms[1].Ready()
			ms[1].Signal("agent", syscall.SIGUSR2)
			waittest.Until(t, "it is upgraded", func() bool { return ms[1].Ready() > before })
			load.answeredMore(t, 200)
			t.Logf("upgrade %d: %d requests are answered", i+1, load.answered.Load())
		}
		load.wait()
		if got, err := ms[1].Client().Machine(t.Context(), shop, x.ID); err != nil || got.State != machine.Started {
			t.Errorf("%+v, %v", got, err)
		}
	})
}
