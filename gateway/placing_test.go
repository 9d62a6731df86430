package gateway

import (
	"strings"
	"sync"
	"testing"

	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/machine"
)

// TestDeletedAppKeepsNoMachineInCreation: an app that is deleted while a machine of it is made, by whichever way, has none
// afterwards.
func TestDeletedAppKeepsNoMachineInCreation(t *testing.T) {
	config := `"config":{"image":"demo:1"}`
	for name, way := range map[string]struct{ path, body string }{
		"create": {"/v1/apps/a/machines", `{` + config + `}`},
		"gang":   {"/v1/souk/apps/a/gangs", `{"size":2,"launch":{` + config + `}}`},
		"bid":    {"/v1/souk/workers/w1/machines", `{"app":"a","launch":{` + config + `}}`},
		"move":   {"/v1/souk/apps/a/machines/%/move", ``},
	} {
		t.Run(name, func(t *testing.T) {
			w1, w2 := newMemWorker("w1", "local", room), newMemWorker("w2", "local", room)
			s := newShop(t, w1, w2).open()
			path := way.path
			if name == "move" {
				path = strings.Replace(path, "%", s.launch(hostLaunch).ID, 1)
			}
			var once sync.Once
			deleteApp := func(lifecycle.Grant) error {
				once.Do(func() {
					if err := s.catalog.Apps.MarkDeleting("a"); err != nil {
						t.Error(err)
					}
				})
				return nil
			}
			w1.after, w2.after = deleteApp, deleteApp
			if r := s.do("POST", path, way.body); r.code != 404 || !strings.Contains(r.raw, "app not found") {
				t.Errorf("%d %s", r.code, r.raw)
			}
			made := 0
			for _, w := range []*memWorker{w1, w2} {
				for _, m := range w.rows {
					if name == "move" && m.Config.Metadata["souk_moved_from"] == "" {
						continue // the one that was to be moved
					}
					if made++; m.State != machine.Destroyed {
						t.Errorf("machine %s of the app that is gone is %s", m.ID, m.State)
					}
				}
			}
			if made == 0 {
				t.Error("none was made, so nothing was tried")
			}
		})
	}
}

// TestNamesAreUniqueAcrossCreatesBidsAndGangs: of creates, bids and gangs that ask for one name at the same moment, one gets it.
func TestNamesAreUniqueAcrossCreatesBidsAndGangs(t *testing.T) {
	w1, w2 := newMemWorker("w1", "local", room), newMemWorker("w2", "local", room)
	s := newShop(t, w1, w2).open()
	started, proceed := make(chan struct{}, 16), make(chan struct{})
	wait := func(lifecycle.Grant) error {
		started <- struct{}{}
		<-proceed // so that all who do not wait for each other are here at once
		return nil
	}
	w1.before, w2.before = wait, wait
	config := `"name":"twin","config":{"image":"demo:1"}`
	ways := []struct{ path, body string }{
		{"/v1/souk/apps/a/gangs", `{"size":1,"launch":{` + config + `}}`},
		{"/v1/souk/apps/a/gangs", `{"size":1,"launch":{` + config + `}}`},
		{"/v1/apps/a/machines", `{` + config + `}`},
		{"/v1/souk/workers/w1/machines", `{"app":"a","launch":{` + config + `}}`},
	}
	codes := make([]int, len(ways))
	var all sync.WaitGroup
	for i, way := range ways {
		all.Go(func() { codes[i] = s.do("POST", way.path, way.body).code })
	}
	<-started
	close(proceed)
	all.Wait()
	made := 0
	for _, w := range []*memWorker{w1, w2} {
		for _, m := range w.rows {
			if m.Name == "twin" && m.State != machine.Destroyed {
				made++
			}
		}
	}
	if made != 1 {
		t.Errorf("%d machines have the name; answers %v", made, codes)
	}
}
