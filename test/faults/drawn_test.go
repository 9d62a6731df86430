package faults_test

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/soukhq/souk/test/faults"
)

var drawn = flag.Int("drawn", 0, "deploys that TestDrawnDeploysSucceedOrUndo makes; 0: five with short times") //nolint:gochecknoglobals

// drawnApps are deployed beside each other.
const drawnApps = 5

// deployKind is one thing that a deploy can be, by what the program does or the file says.
type deployKind struct {
	name string
	// bad is of the program, with its times in parts of min_up; keys stand in the group in the place of others.
	bad   string
	part  float64
	keys  string
	image string
	// codes are those that souk deploy may end with; says is in what it prints.
	codes []int
	says  *regexp.Regexp
}

func deployKinds() []deployKind {
	undone := []int{65}
	return []deployKind{
		{name: "good", codes: []int{0}, says: regexp.MustCompile(`rolled out`)},
		{name: "starts slowly", bad: "slow", part: 0.4, codes: []int{0}, says: regexp.MustCompile(`rolled out`)},
		{name: "crashes at once", bad: "crash", codes: undone, says: regexp.MustCompile(`exit code 3`)},
		{name: "crashes soon", bad: "crash", part: 0.15, codes: undone, says: regexp.MustCompile(`exit code 3`)},
		{name: "crashes late", bad: "crash", part: 0.8, codes: undone, says: regexp.MustCompile(`exit code 3`)},
		{name: "fails its check", bad: "mute", codes: undone, says: regexp.MustCompile(`503`)},
		{name: "answers too late", bad: "late", codes: undone, says: regexp.MustCompile(`(?i)time|deadline|answer`)},
		{name: "flaps", bad: "flap", part: 0.5, codes: undone, says: regexp.MustCompile(`503`)},
		{name: "wrong port", keys: fmt.Sprint("env = { ", envServe, ` = "9999" }`), codes: undone,
			says: regexp.MustCompile(`refused|listens`)},
		{name: "wrong tag", image: "server:none", codes: []int{65, 66, 69, 78}, says: regexp.MustCompile(`server:none`)},
		{name: "wrong secret", keys: `processes = [{ exec = ["/serve"], secrets = [{ env_var = "X", name = "NO_SUCH" }] }]`,
			codes: []int{65, 66, 78}, says: regexp.MustCompile(`NO_SUCH`)},
		{name: "no room", keys: `memory = "4000g"`, codes: []int{75, 78}, says: regexp.MustCompile(`memory`)},
	}
}

// drawnApp is an app that is deployed again and again, and what a client outside is to see of it.
type drawnApp struct {
	name  string
	minUp time.Duration
	dir   string
	// version is that of the last good release.
	version string
}

// file writes souk.toml.
func (a *drawnApp) file(k *deployKind, version, strategy string) (string, error) {
	image, keys := serverImage, "memory = \"64m\"\n"
	if k.image != "" {
		image = k.image
	}
	if strings.HasPrefix(k.keys, "memory") {
		keys = ""
	}
	if !strings.HasPrefix(k.keys, "env") {
		bad := k.bad
		if k.part > 0 {
			bad += fmt.Sprint(":", time.Duration(k.part*float64(a.minUp)))
		}
		keys += fmt.Sprintf("env = { %s = \"%d\", %s = %q, VERSION = %q }\n", envServe, shopPort, envBad, bad, version)
	}
	if !strings.HasPrefix(k.keys, "processes") {
		keys += "init = { exec = [\"/serve\"] }\n"
	}
	text := fmt.Sprintf(`app = %q
note = %q
[groups.web]
image = %q
replicas = 3
cpu = 0.1
%s%s
[[groups.web.services]]
internal_port = %d
ports = [{ port = 80, handlers = ["http"] }]
checks = [{ type = "http", path = "/ready", interval = "1s", timeout = "1s", grace_period = "1s" }]
[groups.web.update]
%s
min_up = %q
deadline = %q
`, a.name, k.name, image, keys, k.keys, shopPort, strategy, a.minUp, 2*a.minUp+5*time.Second)
	file := filepath.Join(a.dir, "souk.toml")
	return file, os.WriteFile(file, []byte(text), 0o600)
}

// deploy deploys a kind and holds the answer against what clients are to see at each member.
func (a *drawnApp) deploy(ctx context.Context, ms []*faults.Member, by int, k *deployKind, version, strategy string,
) error {
	file, err := a.file(k, version, strategy)
	if err != nil {
		return err
	}
	out, err := ms[by].Souk(ctx, "deploy", file)
	code := 0
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		code = exit.ExitCode()
	} else if err != nil {
		return err
	}
	all := fmt.Sprint(out, "\n", err)
	fits := false
	for _, c := range k.codes {
		fits = fits || c == code
	}
	if !fits || !k.says.MatchString(all) {
		return fmt.Errorf("souk deploy ends with %d, which is to be of %v, and is to say %q:\n%s", code, k.codes,
			k.says, all)
	}
	if code == 0 {
		a.version = version
	}
	for _, m := range ms {
		for range 9 {
			got, err := a.ask(ctx, m)
			if err == nil && got != a.version {
				err = fmt.Errorf("version %s answers in the place of %s", got, a.version)
			}
			if err != nil {
				return fmt.Errorf("after the deploy, at %s: %w\n%s", m.Worker(), err, all)
			}
		}
	}
	return nil
}

// ask asks once over a connection of its own, and returns which version answered.
func (a *drawnApp) ask(ctx context.Context, m *faults.Member) (string, error) {
	conn, err := m.Dial(ctx, "127.0.0.1:4284")
	if err != nil {
		return "", err
	}
	defer conn.Close()
	return a.askOver(ctx, conn, bufio.NewReader(conn))
}

// TestDrawnDeploysSucceedOrUndo: releases that are good or bad in ways drawn at random are deployed from the command line, by files, while
// clients ask at all members. The code and the sentence of each say what a client sees, and no request fails.
func TestDrawnDeploysSucceedOrUndo(t *testing.T) {
	apart(t, func() {
		hosts, err := allHosts()
		if err != nil {
			t.Fatal(err)
		}
		ms := members(t, hosts[:3])
		giveServer(t, ms)
		n, minUp := *drawn, 10*time.Second
		if n == 0 {
			n, minUp = drawnApps, 3*time.Second
		}
		if *seed == 0 {
			*seed = rand.Uint64N(1 << 32)
		}
		t.Logf("-seed %d", *seed)
		var answered, made atomic.Int64
		var apps, load sync.WaitGroup
		ctx, end := context.WithCancel(t.Context())
		defer end()
		kinds := deployKinds()
		for i := range drawnApps {
			a := &drawnApp{name: fmt.Sprint("app", i), minUp: minUp, dir: t.TempDir()}
			r := rand.New(rand.NewPCG(*seed, uint64(i))) //nolint:gosec // of a test
			apps.Go(func() {
				if err := a.deploy(ctx, ms, i%len(ms), &kinds[0], "0", drawStrategy(r)); err != nil {
					t.Errorf("%s, the first: %v", a.name, err)
					return
				}
				for _, m := range ms {
					load.Go(func() { a.load(ctx, t, m, &answered) })
				}
				for j := range n / drawnApps {
					k, strategy := &kinds[r.IntN(len(kinds))], drawStrategy(r)
					if *drawn == 0 {
						k = &kinds[(j*drawnApps+i+int(*seed%97))%len(kinds)] //nolint:gosec // below 97
					}
					began := time.Now()
					if err := a.deploy(ctx, ms, r.IntN(len(ms)), k, fmt.Sprint(j+1), strategy); err != nil {
						t.Errorf("%s, deploy %d, which %s (%s): %v", a.name, j+1, k.name, strategy, err)
					}
					t.Logf("%s, deploy %d, which %s (%s): %v", a.name, j+1, k.name, strategy, time.Since(began))
					made.Add(1)
				}
			})
		}
		apps.Wait()
		end()
		load.Wait()
		t.Logf("%d requests are answered, in %d deploys", answered.Load(), made.Load())
	})
}

func drawStrategy(r *rand.Rand) string {
	return []string{`strategy = "rolling"`, "strategy = \"rolling\"\nmax_surge = 3", `strategy = "bluegreen"`,
		"strategy = \"canary\"\nsteps = [{ percent = 34, for = \"1s\" }]"}[r.IntN(4)]
}

// load asks at a member 25 times a second, over connections that it keeps for a while.
func (a *drawnApp) load(ctx context.Context, t *testing.T, m *faults.Member, answered *atomic.Int64) {
	beat := time.NewTicker(40 * time.Millisecond)
	defer beat.Stop()
	for ctx.Err() == nil {
		conn, err := m.Dial(ctx, "127.0.0.1:4284")
		if err != nil {
			continue
		}
		br := bufio.NewReader(conn)
		for i := 0; i < 100 && ctx.Err() == nil; i++ {
			<-beat.C
			if _, err := a.askOver(ctx, conn, br); err != nil && ctx.Err() == nil {
				t.Errorf("a request of %s at %s at %s: %v", a.name, m.Worker(), time.Now().Format(time.StampMilli), err)
				break
			}
			answered.Add(1)
		}
		_ = conn.Close()
	}
}

func (a *drawnApp) askOver(ctx context.Context, conn net.Conn, br *bufio.Reader) (string, error) {
	deadline := time.Now().Add(time.Minute)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	if err := conn.SetDeadline(deadline); err != nil {
		return "", err
	}
	if _, err := fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: %s.localhost\r\n\r\n", a.name); err != nil {
		return "", err
	}
	return version(br)
}

// version reads an answer and returns the version that gave it.
func version(br *bufio.Reader) (string, error) {
	resp, err := http.ReadResponse(br, nil)
	if err != nil {
		return "", err
	}
	body := new(strings.Builder)
	if _, err := bufio.NewReader(resp.Body).WriteTo(body); err != nil || resp.StatusCode != http.StatusOK ||
		body.String() != "fine" {
		return "", fmt.Errorf("%s (%s): %s, %w", resp.Status, resp.Header.Get("Souk-Error"), body, err)
	}
	return resp.Header.Get("Version"), nil
}
