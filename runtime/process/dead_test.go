package process_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/deadfs"
	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/runtime"
)

// TestProgramsThatCannotBeReadHoldUpNobody: more of one user than start at once, on a file system that does not answer;
// and a command in a directory there. Others start meanwhile; and so does that user, when it answers.
func TestProgramsThatCannotBeReadHoldUpNobody(t *testing.T) {
	asRoot(t)
	pub := public(t)
	dead := filepath.Join(pub, "dead")
	if err := os.Mkdir(dead, 0o755); err != nil {
		t.Fatal(err)
	}
	_, abort := deadfs.Mount(t, dead, 54321) // before the reaper begins, which sees what is mounted then at least
	prog := filepath.Join(pub, "prog")
	write := func(text string) { // a new file: what is being executed cannot be written to
		t.Helper()
		if err := os.WriteFile(prog+".new", []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(prog+".new", prog); err != nil {
			t.Fatal(err)
		}
	}
	write("#!" + dead + "/sh\n")
	r := open(t, nil)
	defer abort()
	const many = 6
	stuck := make(chan error, many)
	of := func(id string) runtime.Spec {
		s := limited(id, 1, prog)
		s.As, s.Fresh = submitter(0o027), true
		return s
	}
	for i := range many {
		go func() {
			_, err := r.Start(t.Context(), of(fmt.Sprint("h", i)))
			stuck <- err
		}()
	}
	start := time.Now()
	for i := range 4 * many {
		launch(t, r, limited(fmt.Sprint("m", i), 1, "/bin/sleep", "1000"))
	}
	took := time.Since(start)
	elsewhere := make(chan error, 1)
	go func() {
		var out bytes.Buffer
		q := runtime.ExecRequest{Argv: []string{"/bin/true"}, Dir: dead + "/sub", Stdout: &out, Stderr: &out}
		_, err := r.Exec(t.Context(), "m0", q)
		elsewhere <- err
	}()
	select {
	case err := <-stuck:
		t.Errorf("%d starts took %v: one that hangs ended before: %v", 4*many, took, err)
		stuck <- err
	default:
	}
	for range many {
		if err := <-stuck; fault.CodeOf(err) != "fork_stuck" || !fault.Is(err, fault.Unavailable) {
			t.Errorf("a start that hangs: %v", err)
		}
	}
	if err := <-elsewhere; !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "does not answer") {
		t.Errorf("a command in a directory that does not answer: %v", err)
	}
	if _, err := r.Start(t.Context(), of("late")); !fault.Is(err, fault.Unavailable) ||
		!strings.Contains(err.Error(), "6 threads or programs wait already") {
		t.Errorf("one more: %v", err)
	}
	abort()
	write("#!/bin/sh\nexec sleep 1000\n")
	waittest.Until(t, "the user's programs start again", func() bool {
		_, err := r.Start(t.Context(), of("h0"))
		return err == nil
	})
}
