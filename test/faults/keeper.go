package faults

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// Bounds of the services besides the clients' machines. A service's machines are so small that all services together
// take less than one client machine, so they do not change how many of those fit on a member.
const (
	MaxServices = 2
	keptMB      = 8 // memory of a machine; a service has at most 12 at once
	keptMemory  = slotMB - 1
	mostWeb     = 4 // replicas of the group web
	rollWithin  = 10 * time.Second
	keepIn      = 90 * time.Second // until a service is as last requested, after the repair
)

// keeper is a client that repeatedly changes a service, at any member.
type keeper struct {
	*load
	dir string // directory of the service's witness files
	app string
	rng *rand.Rand
	n   int // number of releases
}

// keepers starts the services.
func (r *run) keepers(ctx context.Context) (all []*keeper, err error) {
	for i := range r.o.Services {
		k := &keeper{load: r.load, app: fmt.Sprint("kept-", i), dir: filepath.Join(r.o.Dir, fmt.Sprint("kept-", i)),
			rng: rand.New(rand.NewPCG(r.o.Seed, uint64(i)+1000))}
		if err := os.Mkdir(k.dir, 0o777); err != nil {
			return nil, fault.Wrap(err, fault.Internal, codeWitness, "the witnesses have no directory")
		}
		if err := os.Chmod(k.dir, 0o777); err != nil { //nolint:gosec // machines' users write there
			return nil, fault.Wrap(err, fault.Internal, codeWitness, "the witnesses' directory cannot be opened")
		}
		if _, err := r.ms[0].cl.CreateApp(ctx, k.app); err != nil {
			return nil, err
		}
		if _, err := r.ms[0].cl.Deploy(ctx, k.app, k.release(false)); err != nil {
			return nil, err
		}
		all = append(all, k)
	}
	return all, nil
}

// work changes the service until it is told to stop. Unanswered changes may or may not have been made.
func (k *keeper) work(ctx context.Context) {
	for !k.stopped() && ctx.Err() == nil {
		k.change(ctx, k.ms[k.rng.IntN(len(k.ms))])
		_ = wait(ctx, time.Duration(200+k.rng.IntN(1200))*time.Millisecond) // it ends with ctx
	}
}

func (k *keeper) change(ctx context.Context, at *member) {
	try, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	var err error
	switch k.rng.IntN(6) {
	case 0, 1:
		_, err = at.cl.Deploy(try, k.app, k.release(k.rng.IntN(3) == 0))
	case 2, 3:
		_, err = at.cl.Change(try, k.app, release.Change{Why: release.WhyScale,
			Counts: map[string]int{"web": k.rng.IntN(mostWeb + 1)}})
	case 4:
		_, err = at.cl.Change(try, k.app, release.Change{Why: release.WhyRestart})
	case 5:
		_, err = at.cl.Change(try, k.app, release.Change{Why: release.WhyBack})
	}
	switch f := fault.As(err); {
	case err == nil, unanswered(f), doubtful(f), f.Kind == fault.Precondition, f.Kind == fault.Conflict:
	default:
		c := &caller{load: k.load}
		c.oddAnswer(fmt.Sprintf("%s by %s: %s", k.app, at.id, f.Error()))
	}
}

// release returns a release with three groups: replicas that are replaced elsewhere when lost, a single one that must
// never run twice, and one that writes to a store which checks its SOUK_FENCE. Some releases have a command. The
// machines of a bad release end by themselves.
func (k *keeper) release(bad bool) api.NewRelease {
	k.n++
	shell := func(script string) []string {
		return []string{"/bin/sh", "-c", script, k.dir, k.load.command[len(k.load.command)-1]}
	}
	group := func(name string, n int, script string, u *release.Update) api.NewGroup {
		if u == nil {
			u = &release.Update{}
		}
		u.Deadline = &machine.Duration{Duration: rollWithin}
		if bad {
			script = "exit 3"
		}
		return api.NewGroup{Replicas: &n, Group: release.Group{Name: name, Update: u,
			Config: &machine.Config{Image: machine.HostImage,
				Init: machine.Init{Exec: shell(script)},
				Env:  map[string]string{"VERSION": strconv.Itoa(k.n)}, Restart: &machine.Restart{Policy: "always"},
				Guest: &machine.Guest{CPUKind: "shared", CPUs: 1, MemoryMB: keptMB}}}}
	}
	ways := []release.Update{{}, {Strategy: release.Canary, Steps: []release.CanaryStep{{Percent: 50,
		For: &machine.Duration{Duration: time.Second}}}}, {Strategy: release.BlueGreen}, {Strategy: release.Immediate}}
	one := group("one", 1, keptWitness+onlyOne+stays, nil)
	one.Single = true
	store := group("store", 1, keptWitness+fenced, nil)
	store.OnLost = release.Fenced
	out := api.NewRelease{Note: strconv.Itoa(k.n), Groups: []api.NewGroup{
		group("web", k.rng.IntN(mostWeb+1), keptWitness+stays, &ways[k.rng.IntN(len(ways))]), one, store}}
	if k.rng.IntN(3) == 0 {
		code := 0
		if bad && k.rng.IntN(2) == 0 {
			code = 4
		}
		out.ReleaseCommand = shell(keptWitness + fmt.Sprintf(first, code))
		out.ReleaseCommandGroup, out.ReleaseCommandTimeout = "one", &machine.Duration{Duration: rollWithin}
	}
	return out
}

// Scripts of the services' machines. $0 is the service's directory, $1 that of all witnesses. The first part is the
// same as for clients' machines.
const (
	keptWitness = `umask 0
exec 9>>"$1/$SOUK_MACHINE"
flock -n 9 || echo "$SOUK_MACHINE with the token $SOUK_FENCE at $SOUK_WORKER" >> "$1/twice"
echo "$SOUK_FENCE" >&9
`
	onlyOne = `exec 8>>"$0/one"
flock -n 8 || echo "$SOUK_MACHINE with the token $SOUK_FENCE at $SOUK_WORKER" >> "$0/twice"
`
	stays = `exec sleep 1000000`

	// first is a release's command, which must never run twice at once. %d is its exit code.
	first = `exec 8>>"$0/command"
flock -n 8 || echo "$SOUK_MACHINE, a command, with the token $SOUK_FENCE at $SOUK_WORKER" >> "$0/twice"
sleep 0.3
exit %d`

	// fenced writes to a store: a file with the highest token that it has seen, and one with the tokens of all writes that
	// it has taken.
	fenced = `exec 8>>"$0/lock"
while :; do
	flock 8
	top=$(cat "$0/top" 2>/dev/null || echo 0)
	if [ "$SOUK_FENCE" -ge "$top" ]; then
		echo "$SOUK_FENCE" > "$0/top"
		echo "$SOUK_FENCE $SOUK_MACHINE" >> "$0/taken"
	else
		echo "$SOUK_FENCE $SOUK_MACHINE" >> "$0/refused"
	fi
	flock -u 8
	sleep 0.2
done`
)

// settled changes the service a last time, and waits until all members show it so, logging what is missing. It returns
// what is wrong.
func (k *keeper) settled(ctx context.Context, say func(format string, a ...any)) (wrong []string) {
	ctx, cancel := context.WithTimeout(ctx, keepIn)
	defer cancel()
	last, head, seen := k.release(false), "", ""
	for why := "nobody took its last release"; ; {
		if head == "" {
			made, err := k.ms[k.rng.IntN(len(k.ms))].cl.Deploy(ctx, k.app, last)
			if err == nil {
				head = made.Head.ID
			} else {
				why = err.Error()
			}
		} else if why = k.lacks(ctx, head); why == "" {
			return nil
		}
		if why != seen {
			seen = why
			say("%s: %s", k.app, why)
		}
		if wait(ctx, askPause) != nil {
			return []string{fmt.Sprintf("service %s is not as it is wanted after %v: %s", k.app, keepIn, why)}
		}
	}
}

// lacks says how a service differs from a head, as each member sees it; "": not at all.
func (k *keeper) lacks(ctx context.Context, head string) string {
	for _, m := range k.ms {
		s, err := m.cl.Service(ctx, k.app)
		switch {
		case err != nil:
			return fmt.Sprintf("%s: %v", m.id, err)
		case s.Head == nil || s.Head.ID != head:
			return fmt.Sprintf("%s has another head", m.id)
		case s.Rollout == nil || s.Rollout.State != release.RolledDone:
			return fmt.Sprintf("%s: its rollout is %+v", m.id, s.Rollout)
		}
		for i := range s.Groups {
			g := &s.Groups[i]
			if g.Ready != g.Wanted || len(g.Slots) != g.Wanted { // Wanted may come from a scale, not the release
				return fmt.Sprintf("%s: group %s: %d wanted, %d ready: %+v", m.id, g.Name, g.Wanted, g.Ready, g.Slots)
			}
			if last := k.writer(); g.Name == "store" && last != g.Slots[0].Machine {
				return fmt.Sprintf("the store last took a write of %s, and %s stands", last, g.Slots[0].Machine)
			}
		}
	}
	return ""
}

// writer returns the machine whose write the store took last.
func (k *keeper) writer() string {
	raw, err := os.ReadFile(filepath.Join(k.dir, "taken"))
	if err != nil {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
	_, id, _ := strings.Cut(lines[len(lines)-1], " ")
	return id
}

// said returns the violations that the service's machines saw: two live machines of the group one, and writes that the
// store accepted after one with a higher token. sure says that no worker has forgotten a term that it had obeyed.
func (k *keeper) said(sure bool) (out []string, err error) {
	if !sure {
		return nil, nil
	}
	raw, err := os.ReadFile(filepath.Join(k.dir, twice))
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	for line := range strings.Lines(string(raw)) {
		out = append(out, fmt.Sprintf("%s: there were two at once of what may not run twice: %s", k.app,
			strings.TrimSpace(line)))
	}
	f, err := os.Open(filepath.Join(k.dir, "taken"))
	if os.IsNotExist(err) {
		return append(out, k.app+": its store was never written to"), nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	top, by := uint64(0), map[uint64]string{}
	for sc := bufio.NewScanner(f); sc.Scan(); {
		text, id, _ := strings.Cut(sc.Text(), " ")
		token, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return nil, err
		}
		if token < top || by[token] != "" && by[token] != id {
			out = append(out, fmt.Sprintf("%s: its store took a write of machine %s with the token %d after one of %s "+
				"with %d", k.app, id, token, by[top], top))
		}
		top, by[token] = max(top, token), id
	}
	return out, nil
}
