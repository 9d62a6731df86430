package stalls

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/runtime/reaper/proc"
)

// TestBegunStopSurvivesKills: while the reaper stands still a destroy and a stop are answered that they have begun.
// Then souk is killed, and the reaper, and souk is started again: both become so.
func TestBegunStopSurvivesKills(t *testing.T) {
	t.Parallel()
	s := start(t, haste)
	if a := s.ask("POST", "", map[string]any{"app_name": app, "org_slug": "personal"}, clientTime); !a.yes() {
		t.Fatal(&a)
	}
	ids := map[string]string{}
	for _, name := range []string{"destroy", "stop"} {
		if ids[name] = s.run(name, false); look(t, ids[name]).processes != 1 {
			t.Fatalf("%s has another number of processes than one", name)
		}
	}
	reaper := s.reaper()
	if err := syscall.Kill(reaper, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for name, ask := range map[string]func(path string) answer{
		"destroy": func(p string) answer { return s.ask("DELETE", p+"?kill=true", nil, clientTime) },
		"stop":    func(p string) answer { return s.ask("POST", p+"/stop", map[string]any{}, clientTime) },
	} {
		if a := ask("/" + app + "/machines/" + ids[name]); !a.yes() || a.body.Begun == nil {
			t.Fatalf("%s: %v", name, &a)
		}
	}
	if err := errors.Join(s.cmd.Process.Kill(), syscall.Kill(reaper, syscall.SIGKILL)); err != nil {
		t.Fatal(err)
	}
	_ = s.cmd.Wait() // it was killed
	waittest.Until(t, "the reaper has ended", func() bool {
		st, err := proc.Read(reaper)
		return errors.Is(err, fs.ErrNotExist) || st.State == 'Z'
	})
	s.begin()
	waittest.Succeed(t, "one is destroyed and one stopped", func() error {
		gone := s.ask("GET", "/"+app+"/machines/"+ids["destroy"], nil, clientTime)
		stopped := s.ask("GET", "/"+app+"/machines/"+ids["stop"], nil, clientTime)
		_, err := os.Stat(filepath.Join(s.dir, "run", "machines", ids["destroy"]))
		said := (gone.code == http.StatusNotFound || gone.body.State == "destroyed") && stopped.body.State == "stopped"
		runs := look(t, ids["destroy"]).processes + look(t, ids["stop"]).processes
		if said && runs == 0 && errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return fmt.Errorf("%v, %s; %v, %s; %d run; %w", &gone, gone.body.State, &stopped, stopped.body.State, runs, err)
	})
}
