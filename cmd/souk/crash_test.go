package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/soukhq/souk/bench/live"
	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/machine"
)

// The size of the crash test. Capacity is for fewer than are launched, so that some are refused.
const (
	crashLaunches = 200
	crashRoom     = 150
)

// attempt is one launch and what came of it. Its mark stands on the command line of its process and nowhere else.
type attempt struct {
	mark string
	key  string
	id   string // answered: acknowledged
	err  error  // answered: refused; or not answered, when its kind is Unavailable
}

func (a *attempt) refused() bool { return a.err != nil && !lost(a.err) }

// lost says that there was no answer: the machine may exist or not.
func lost(err error) bool {
	return fault.Is(err, fault.Unavailable) || fault.CodeOf(err) == "canceled" ||
		strings.Contains(fmt.Sprint(err), "shutting down")
}

// TestLongCrashLosesNoAcknowledgedLaunch kills souk with 200 launches under way, 20 times at random moments. After each restart every machine that
// was acknowledged exists exactly once as a process, none that was refused does, and a launch whose answer was lost
// can be repeated with its key and has then been done once.
func TestLongCrashLosesNoAcknowledgedLaunch(t *testing.T) {
	t.Parallel()
	crash(t, 20)
}

// TestCrashLosesNoAcknowledgedLaunch: after each of three kills every acknowledged machine exists once.
func TestCrashLosesNoAcknowledgedLaunch(t *testing.T) {
	t.Parallel()
	crash(t, 3)
}

func crash(t *testing.T, rounds int) {
	var log syncBuffer
	own := &live.Souk{Exe: soukExe(t), State: filepath.Join(t.TempDir(), "state"), Stderr: &log,
		Args: []string{"--cpus", "1000", "--memory", fmt.Sprint(crashRoom * 256)}}
	if err := own.Start(); err != nil {
		t.Fatalf("%v\n%s", err, log.String())
	}
	defer own.End()
	if _, err := own.Client.CreateApp(t.Context(), live.App); err != nil {
		t.Fatal(err)
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	// Machines sleep for durations that begin with the test's process and its rounds, so that no other test finds them.
	prefix := fmt.Sprintf("9%07d%d.", os.Getpid(), rounds)
	totals := map[string]int{}
	for round := range rounds {
		// Some time after an answer, so that some launches are always answered; in the first round at once, so that some
		// never are. The time reaches over several commits of the journal.
		moment := crashMoment{answers: 1 + rng.IntN(crashRoom-1)}
		if round > 0 {
			moment.after = time.Duration(rng.Int64N(int64(20 * time.Millisecond)))
		}
		crashRound(t, own, prefix, round, moment, totals)
		if t.Failed() {
			t.Logf("souk said:\n%s", log.String())
			return
		}
	}
	t.Logf("over %d rounds: %v", rounds, totals)
	if totals["acknowledged"] == 0 || totals["lost"] == 0 {
		t.Errorf("the moments were not spread: %v", totals)
	}
}

// crashMoment is when souk is killed: so many launches have been answered, and this time has passed.
type crashMoment struct {
	answers int
	after   time.Duration
}

// crashRound begins all launches and kills souk at a moment.
func crashRound(t *testing.T, own *live.Souk, prefix string, round int, at crashMoment, totals map[string]int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waittest.Patience)
	defer cancel()
	as := make([]*attempt, crashLaunches)
	answers := make(chan struct{}, crashLaunches)
	var wg sync.WaitGroup
	cl := own.Client
	for i := range as {
		as[i] = &attempt{
			mark: fmt.Sprintf("%s%02d%03d", prefix, round, i),
			key:  fmt.Sprintf("crash-%d-%d", round, i),
		}
		wg.Go(func() { launchMarked(ctx, cl, as[i]); answers <- struct{}{} })
	}
	for range at.answers {
		<-answers
	}
	killed := make(chan struct{})
	time.AfterFunc(at.after, func() {
		own.Kill()
		close(killed)
	})
	wg.Wait()
	<-killed
	if err := own.Start(); err != nil {
		t.Errorf("round %d: souk does not start again: %v", round, err)
		return
	}
	count(as, totals)
	when := fmt.Sprintf("round %d, killed %v after %d answers", round, at.after, at.answers)
	settleAll(ctx, t, own.Client)
	checkCrash(ctx, t, own, prefix, as, when)
	// Whose answer was lost asks again, with the same key.
	for _, a := range as {
		if a.err != nil && lost(a.err) {
			wg.Go(func() { launchMarked(ctx, own.Client, a) })
		}
	}
	wg.Wait()
	settleAll(ctx, t, own.Client)
	checkCrash(ctx, t, own, prefix, as, when+", asked again")
	if err := live.DestroyAll(ctx, own.Client, ""); err != nil {
		t.Errorf("round %d: clean-up: %v", round, err)
	}
	if left := marked(t, prefix); len(left) > 0 {
		t.Errorf("round %d: after every machine is destroyed these still run: %v", round, left)
	}
}

func count(as []*attempt, totals map[string]int) {
	for _, a := range as {
		switch {
		case a.err == nil:
			totals["acknowledged"]++
		case lost(a.err):
			totals["lost"]++
		default:
			totals["refused"]++
		}
	}
}

func launchMarked(ctx context.Context, cl *client.Client, a *attempt) {
	l := live.LaunchOf([]string{"/bin/sleep", a.mark}, false)
	m, err := cl.Launch(ctx, live.App, l, client.LaunchOptions{Key: a.key})
	if a.err = err; err == nil {
		a.id = m.ID
	}
}

// settleAll waits until no machine is on its way anywhere.
func settleAll(ctx context.Context, t *testing.T, cl *client.Client) {
	t.Helper()
	ms, err := cl.AllMachines(ctx, client.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range ms {
		if !m.State.Transient() {
			continue
		}
		if err := cl.Wait(ctx, m.App, m.ID, 30*time.Second, client.Settled); err != nil &&
			!fault.Is(err, fault.NotFound) {
			t.Errorf("machine %s does not settle: %v", m.ID, err)
		}
	}
}

// checkCrash holds machines, processes and answers against each other.
func checkCrash(ctx context.Context, t *testing.T, own *live.Souk, prefix string, as []*attempt, when string) {
	t.Helper()
	ms, err := own.Client.AllMachines(ctx, client.ListOptions{})
	if err != nil {
		t.Errorf("%s: %v", when, err)
		return
	}
	byMark := map[string][]*machine.Machine{}
	byID := map[string]*machine.Machine{}
	for _, m := range ms {
		byMark[m.Config.Init.Exec[1]] = append(byMark[m.Config.Init.Exec[1]], m)
		byID[m.ID] = m
	}
	running := marked(t, prefix)
	for _, a := range as {
		machines, processes := byMark[a.mark], running[a.mark]
		switch {
		case a.refused():
			if len(machines)+len(processes) > 0 {
				t.Errorf("%s: %s was refused (%v) and yet there are %d machines and the processes %v", when, a.mark,
					a.err,
					len(machines), processes)
			}
		case a.err == nil:
			if m := byID[a.id]; m == nil || m.State != machine.Started || len(machines) != 1 || len(processes) != 1 {
				t.Errorf("%s: %s was acknowledged as %s; now the machine is %+v, there are %d of it, and the "+
					"processes %v", when,
					a.mark, a.id, brief(m), len(machines), processes)
			}
		default: // not answered: there or not, but never half, and never twice
			whole := len(machines) == 1 && machines[0].State == machine.Started && len(processes) == 1
			if !whole && len(machines)+len(processes) > 0 {
				first := (*machine.Machine)(nil)
				if len(machines) > 0 {
					first = machines[0]
				}
				t.Errorf("%s: the answer to %s was lost; there are %d machines (%s) and the processes %v", when, a.mark,
					len(machines), brief(first), processes)
			}
		}
	}
}

func brief(m *machine.Machine) string {
	if m == nil {
		return "not there"
	}
	text := string(m.State)
	for _, e := range m.Events {
		text += "; " + cli.EventText(e)
	}
	return text
}

// marked returns the processes whose argument begins with prefix: argument -> pids.
func marked(t *testing.T, prefix string) map[string][]string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string][]string{}
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if err != nil {
			continue // it has ended meanwhile
		}
		argv := strings.Split(string(raw), "\x00")
		if len(argv) > 1 && strings.HasPrefix(argv[1], prefix) {
			found[argv[1]] = append(found[argv[1]], filepath.Base(filepath.Dir(f)))
		}
	}
	return found
}

// syncBuffer is a bytes.Buffer that a process may write to while the test reads.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
