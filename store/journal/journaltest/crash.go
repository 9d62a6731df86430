package journaltest

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/soukhq/souk/core/fsm"
)

const (
	childEnv  = "SOUK_JOURNALTEST_DIR"
	callers   = 8
	batchSize = 3
)

func mkdir(dir string) error { return os.MkdirAll(dir, 0o700) }

// Child turns the process into a committing child if Crash started it as one, and then returns only when killed.
// Otherwise it returns false at once. Call it first in TestMain.
func Child(open Open) bool {
	dir := os.Getenv(childEnv)
	if dir == "" {
		return false
	}
	j, err := open(dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, "child:", err)
		os.Exit(1)
	}
	run := fmt.Sprint(os.Getpid())
	for c := range callers {
		go func() {
			for i := 0; ; i++ {
				id := fmt.Sprintf("%s.%d.%d", run, c, i)
				var batch []fsm.Record
				for k := range batchSize {
					batch = append(batch, putRecord("acknowledged", fmt.Sprintf("%s.%d", id, k),
						strings.Repeat(id, k+1)))
				}
				batch = append(batch, putRecord("last", fmt.Sprintf("%s.%d", run, c), id),
					deleteRecord("last", "churn"),
					putRecord("last", "churn", id))
				if err := j.Commit(batch); err != nil {
					fmt.Fprintln(os.Stderr, "child:", err)
					os.Exit(1)
				}
				if _, err := os.Stdout.WriteString(id + "\n"); err != nil {
					os.Exit(1)
				}
			}
		}()
	}
	select {} // until killed
}

// Crash kills a committing process at random moments, rounds times in one directory, and checks the journal: each
// acknowledged batch is there completely, and no other batch is there in part.
func Crash(t *testing.T, open Open, rounds int) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	dir := t.TempDir()
	acked := map[string]bool{}
	for range rounds {
		for _, id := range killOne(t, dir, 1+random.IntN(400)) {
			acked[id] = true
		}
		j := openJournal(t, open, dir)
		got := Read(t, j)
		must(t, j.Close())
		checkCrashed(t, acked, got)
	}
	t.Logf("%d kills, %d acknowledged commits", rounds, len(acked))
}

// killOne starts a child, kills it after n acknowledged commits, and returns all that it acknowledged.
func killOne(t *testing.T, dir string, n int) []string {
	t.Helper()
	exe, err := os.Executable()
	must(t, err)
	cmd := exec.Command(exe, "-test.run=^$")
	cmd.Env = append(os.Environ(), childEnv+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	var ids []string
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadString('\n')
		if err == io.EOF {
			break
		}
		must(t, err)
		if ids = append(ids, strings.TrimSpace(line)); len(ids) == n {
			must(t, cmd.Process.Kill())
		}
	}
	if err := cmd.Wait(); err == nil || len(ids) < n {
		t.Fatalf("the child ended by itself after %d acknowledgements: %v", len(ids), err)
	}
	return ids
}

func checkCrashed(t *testing.T, acked map[string]bool, got map[string]string) {
	t.Helper()
	parts := map[string]int{}
	for k, v := range got {
		if key, ok := strings.CutPrefix(k, "acknowledged/"); ok {
			id := key[:strings.LastIndexByte(key, '.')]
			if v != strings.Repeat(id, repeatsOf(key)) {
				t.Errorf("%s holds %q", k, v)
			}
			parts[id]++
		}
	}
	for id := range acked {
		if parts[id] != batchSize {
			t.Errorf("commit %s was acknowledged and has %d of %d records", id, parts[id], batchSize)
		}
	}
	for id, n := range parts {
		if n != batchSize {
			t.Errorf("commit %s is there in part: %d of %d records", id, n, batchSize)
		}
	}
}

// repeatsOf returns how often a record's value repeats its ID: one more than the last digit of its key.
func repeatsOf(key string) int { return int(key[len(key)-1]-'0') + 1 }
