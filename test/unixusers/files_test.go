package unixusers

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/soukhq/souk/internal/wait/waittest"
)

// TestFilesOfAUsersJob: what she sends is at every worker that runs her tasks, once; what they leave is fetched at any
// member; and they start, read and write where she says, with her rights alone.
func TestFilesOfAUsersJob(t *testing.T) {
	hosts := openHosts(t)
	h1, h2 := hosts[0], hosts[1]
	root := filepath.Dir(h1.dir)
	hers, his := ownDir(t, filepath.Join(root, "of-alice"), aliceID), ownDir(t, filepath.Join(root, "of-bob"), bobID)

	prog := filepath.Join(hers, "prog")
	const script = "#!/bin/sh\n{ id -u; cat data; ls -l data; } > out-$SOUK_INDEX\nsleep 0.3\n"
	if err := os.WriteFile(prog, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(hers, "data"), []byte("hers alone\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"prog", "data"} {
		if err := os.Chown(filepath.Join(hers, name), aliceID, aliceID); err != nil {
			t.Fatal(err)
		}
	}
	id := h1.submit("alice", "--name", "sweep", "--array", "1-24", "--send", prog, "--send", filepath.Join(hers,
		"data"),
		"--out", "out-*", "--", "./prog")
	h1.want(0, "alice", "job", "wait", id)
	tasks := h1.want(0, "alice", "job", "tasks", id, "--json")
	if !strings.Contains(tasks, `"worker":"h1"`) || !strings.Contains(tasks, `"worker":"h2"`) {
		t.Fatalf("they did not run on both hosts: %s", tasks)
	}
	for _, h := range []*host{h1, h2} {
		trees, err := filepath.Glob(filepath.Join(h.dir, "sent/trees/*/*"))
		if err != nil || len(trees) != 2 {
			t.Errorf("%s has unpacked %q, %v", h.net.Name, trees, err)
		}
	}
	to := filepath.Join(hers, "fetched")
	h2.want(0, "alice", "job", "fetch", id, "--to", to)
	for i := 1; i <= 24; i++ {
		p := filepath.Join(to, fmt.Sprint(i), fmt.Sprintf("out-%d", i))
		got := string(h1.read(p))
		if !strings.HasPrefix(got, fmt.Sprintf("%d\nhers alone\n-r--r--r--", aliceID)) {
			t.Fatalf("task %d left %q", i, got)
		}
		if st, err := os.Stat(p); err != nil || st.Sys().(*syscall.Stat_t).Uid != aliceID {
			t.Fatalf("%s: %v, %v", p, st, err)
		}
	}
	// bob has no right to it: neither to what was sent, whose digest he knows, nor to what was left.
	out := h1.want(denied, "bob", "job", "fetch", id, "--to", filepath.Join(his, "x"))
	if !strings.Contains(out, "alice") {
		t.Error(out)
	}
	h1.want(denied, "bob", "submit", "--app", "unix-alice", "--", "true")
	digests, err := filepath.Glob(filepath.Join(h1.dir, "sent/archives/unix-alice/*"))
	if err != nil || len(digests) != 2 {
		t.Fatalf("%q, %v", digests, err)
	}
	// the second member has a copy before the job is accepted
	at := h1.want(0, "alice", "job", "status", id, "--json")
	if !strings.Contains(at, `"at":["h1","h`) {
		t.Errorf("what was sent is at one member alone: %s", at)
	}

	// her directory, which the test's hosts share, with her rights; bob's tasks cannot enter it, and wait and say why.
	h1.want(0, "alice", "submit", "--array", "1-4", "-D", hers, "-i", "data", "-o", "o-%a-%u", "--wait", "--", "cat")
	st, err := os.Stat(filepath.Join(hers, "o-3-alice"))
	if err != nil || st.Sys().(*syscall.Stat_t).Uid != aliceID || string(h1.read(filepath.Join(hers, "o-3-alice"))) !=
		"hers alone\n" {
		t.Errorf("%v, %v", st, err)
	}
	spy := h1.submit("bob", "-D", hers, "--", "cat", "data")
	waittest.Until(t, "it is said why bob's job waits", func() bool {
		out := h1.want(0, "bob", "job", "status", spy)
		return strings.Contains(out, "directory "+hers) && strings.Contains(out, "may not enter")
	})
	h1.want(0, "bob", "job", "cancel", spy)
	out = h1.want(127, "bob", "submit", "-o", filepath.Join(hers, "his"), "--wait", "--", "true")
	if !strings.Contains(out, "may not") {
		t.Error(out)
	}
	if _, err := os.Stat(filepath.Join(hers, "his")); err == nil {
		t.Error("bob's task made a file in her directory")
	}
}
