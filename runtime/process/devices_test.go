package process_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/devices/devicestest"
	"github.com/soukhq/souk/runtime/process"
)

// opened is a script that names those of the devices of devicestest that it can open.
func opened() string {
	var b strings.Builder
	for name, path := range devicestest.Paths() {
		b.WriteString("(: <" + path + ") 2>/dev/null && echo " + name + "; ")
	}
	return b.String() + "(: </dev/null) && echo null"
}

// TestProgramOpensOnlyItsDevices: a program opens the devices that its machine holds, and root itself no others; a command in it
// neither, with a terminal neither; and so it stays when the reaper is killed, when souk is another, and when a group is
// used again by a machine that holds others, or none.
func TestProgramOpensOnlyItsDevices(t *testing.T) {
	asRoot(t)
	o := options(filepath.Join(t.TempDir(), "process"))
	o.AllowRoot, o.Devices = true, devicestest.Gadgets(t)
	t.Cleanup(func() { stopReaper(t, o) })
	r := reopen(t, o)
	holds := map[string][]string{"none": nil, "fuse": {"fuse"}, "loop": {"loop"}, "both": {"fuse", "full"}}
	spec := func(id string, attempt uint64) runtime.Spec {
		s := runtime.Spec{Machine: id, Attempt: attempt, Fresh: true, User: "root", SwapMB: -1,
			Argv: []string{"/bin/sh", "-c", opened() + "; exec sleep 1000"}, Env: []string{"PATH=/usr/bin:/bin"}}
		s.Resources.CPU, s.Resources.Memory = 500, 64
		for _, name := range holds[id] {
			s.Devices = append(s.Devices, devicestest.Gadget(name))
		}
		return s
	}
	check := func(when string) {
		t.Helper()
		for id, held := range holds {
			want := slices.Concat(held, []string{"null"})
			slices.Sort(want)
			got := strings.Fields(said(t, r, id, opened()))
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Errorf("%s, a command in the machine that holds %v opens %v", when, held, got)
			}
		}
	}
	for attempt := range uint64(3) {
		for id := range holds {
			if _, err := r.Start(t.Context(), spec(id, attempt+1)); err != nil {
				t.Fatal(err)
			}
		}
		check("when it was started")
		if attempt == 1 {
			killReaper(t, o.Dir)
			waittest.Succeed(t, "another reaper", func() error { return r.Ping(t.Context()) })
			check("after the death of the reaper")
			if err := r.Close(); err != nil {
				t.Fatal(err)
			}
			r = reopen(t, o)
			check("of another souk")
		}
		if env := said(t, r, "fuse", "env"); !strings.Contains(env, "GADGET_FUSE=yes") ||
			strings.Contains(env, "GADGET_LOOP") {
			t.Errorf("its environment is %s", env)
		}
		for id := range holds {
			if err := r.Kill(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		}
		for range holds {
			x := <-r.Exits()
			if err := r.Ack(t.Context(), x.Machine, x.Attempt); err != nil {
				t.Fatal(err)
			}
		}
		holds["none"], holds["fuse"], holds["loop"] = holds["loop"], holds["none"], holds["fuse"]
		holds["fuse"] = []string{"fuse"}
	}
	for id := range holds {
		for _, line := range texts(t, r, id) {
			if line != "null" && !slices.Contains([]string{"fuse", "loop", "full"}, line) {
				t.Errorf("%s wrote %q", id, line)
			}
		}
	}
}

// TestResizeKeepsDevices: a resize gives no device away.
func TestResizeKeepsDevices(t *testing.T) {
	asRoot(t)
	r := open(t, func(o *process.Options) { o.AllowRoot, o.Devices = true, devicestest.Gadgets(t) })
	s := runtime.Spec{Machine: "m", User: "root", Env: []string{"PATH=/usr/bin:/bin"}, SwapMB: -1}
	s.Resources.CPU, s.Resources.Memory = 500, 64
	launch(t, r, s)
	s.Attempt, s.Resources.CPU = 1, 1000
	if err := r.Resize(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(said(t, r, "m", opened())); got != "null" {
		t.Errorf("it opens %q", got)
	}
	for _, f := range r.Examine(t.Context()) {
		if strings.Contains(f.Name, "device") && !f.OK {
			t.Errorf("souk doctor says %+v", f)
		}
	}
}
