package rollouts

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/bench"
	"github.com/soukhq/souk/bench/container"
	"github.com/soukhq/souk/bench/live"
	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/internal/wait"
	"github.com/soukhq/souk/machine"
)

// wantSwitch is how long requests may be answered by old and new machines, in milliseconds.
const wantSwitch = 50

// askEvery is the pace of the requests through each member.
const askEvery = 8 * time.Millisecond

const (
	colours  = "colours" // the app
	webPort  = 8080
	webImage = "localhost/souk-bench:1"
)

// measureSwitches makes blue-green rollouts of a service of as many replicas as members, and measures how long both
// colours answered: from the first answer of a new machine, through any member, until the sending of the last request
// that an old one answered.
func measureSwitches(ctx context.Context, o Options, to bench.Reporter) (row Row, err error) {
	dir, err := os.MkdirTemp("", "souk-bench-")
	if err != nil {
		return row, wrapFailure(err, "no temporary directory can be made")
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // machines' users pass through it
		return row, wrapFailure(err, "its directory could not be opened to machines")
	}
	ids, each := make([]string, o.Members), map[string][]string{}
	doors := make([]string, o.Members)
	for i := range ids {
		port, err := live.FreePort()
		if err != nil {
			return row, wrapFailure(err, "there is no free port")
		}
		ids[i], doors[i] = fmt.Sprint("m", i+1), fmt.Sprint("127.0.0.1:", port)
		each[ids[i]] = []string{"--http", doors[i]}
	}
	agents, err := live.StartAgents(ctx, dir, to.Stderr(), ids, []string{"--containers", "runc", "--cpus", "1000",
		"--memory", "100000"}, each)
	if err != nil {
		return row, wrapFailure(err, "the agents did not come up")
	}
	defer agents.Close()
	if err := agents.Meet(ctx); err != nil {
		return row, err
	}
	if err := giveImage(ctx, dir, agents, ids); err != nil {
		return row, err
	}
	if _, err := agents.List[0].Client.CreateApp(ctx, colours); err != nil {
		return row, err
	}
	if _, err := rollOut(ctx, agents.List[0].Client, colours, colouredRelease(o, 0)); err != nil {
		return row, wrapFailure(err, "the service did not come up")
	}
	return switchAll(ctx, o, agents, doors)
}

// giveImage loads the service's image at each member.
func giveImage(ctx context.Context, dir string, agents *live.Agents, ids []string) error {
	archive, err := container.Image(dir+"/image", webImage)
	if err != nil {
		return err
	}
	raw, err := io.ReadAll(archive)
	if err != nil {
		return wrapFailure(err, "the image cannot be made")
	}
	for i, a := range agents.List {
		if _, err := a.Client.LoadImages(ctx, ids[i], "the benchmark's", bytes.NewReader(raw)); err != nil {
			return wrapFailure(err, "a member did not take the image")
		}
	}
	return nil
}

// colouredRelease is a release of as many replicas as members; each answers with its version.
func colouredRelease(o Options, version int) api.NewRelease {
	serve := fmt.Sprintf("echo %d > /tmp/version; exec /bin/httpd -f -p %d -h /tmp", version, webPort)
	return api.NewRelease{Groups: []api.NewGroup{{Replicas: &o.Members, Group: release.Group{Name: "web",
		Update: &release.Update{Strategy: release.BlueGreen, MinUp: &machine.Duration{}},
		Config: &machine.Config{Image: webImage, Guest: &machine.Guest{CPUMilli: 100, MemoryMB: 64},
			Init: machine.Init{Exec: []string{"/bin/busybox", "sh", "-c", serve}},
			Services: []machine.Service{{Protocol: "tcp", InternalPort: webPort, Hosts: []string{colours},
				Ports: []machine.Port{{Port: new(80), Handlers: []string{"http"}}},
				Checks: []machine.ServiceCheck{{Type: new("tcp"), Interval: &machine.Duration{Duration: time.Second},
					GracePeriod: &machine.Duration{Duration: 100 * time.Millisecond}}}}}}}}}}
}

// seen is the record of the answers to requests through one member.
type seen struct {
	asked, failed int
	first         time.Time // when the first answer of the new version came
	last          time.Time // when the last request was sent that the old version answered
	why           error     // of the last failure
}

func switchAll(ctx context.Context, o Options, agents *live.Agents, doors []string) (row Row, err error) {
	var took []time.Duration
	asked, failed := 0, 0
	for i := range o.Switches + 1 {
		rolling, over := context.WithCancel(ctx)
		found := make([]seen, len(doors))
		var all sync.WaitGroup
		for m, door := range doors {
			all.Go(func() { found[m] = askOn(rolling, door, fmt.Sprintln(i+1)) })
		}
		_, err := rollOut(ctx, agents.List[i%len(agents.List)].Client, colours, colouredRelease(o, i+1))
		over()
		all.Wait()
		if err != nil {
			return row, wrapFailure(err, "a rollout failed")
		}
		if i == 0 {
			continue // warm-up
		}
		var first, last time.Time
		for _, x := range found {
			asked, failed = asked+x.asked, failed+x.failed
			if first.IsZero() || !x.first.IsZero() && x.first.Before(first) {
				first = x.first
			}
			if x.last.After(last) {
				last = x.last
			}
		}
		took = append(took, max(0, last.Sub(first)))
	}
	p50, p99 := bench.Quantile(took, 0.5), bench.Quantile(took, 0.99)
	row = Row{Name: "bluegreen_switch", N: len(took), P50: &p50, P99: &p99,
		Asked: asked, Failed: &failed, Want: fmt.Sprintf("p99 <= %d ms, 0 requests fail", wantSwitch)}
	row.Met = p99 <= wantSwitch && failed == 0
	return row, nil
}

// askOn sends requests to a door until ctx ends. next is the new version's answer.
func askOn(ctx context.Context, door, next string) (out seen) {
	via := &http.Client{Transport: &http.Transport{}, Timeout: time.Minute}
	defer via.CloseIdleConnections()
	for ctx.Err() == nil {
		sent := time.Now()
		got, err := askVersion(via, door)
		out.asked++
		switch {
		case err != nil:
			out.failed, out.why = out.failed+1, err
		case got == next:
			if out.first.IsZero() {
				out.first = time.Now()
			}
		default:
			out.last = sent
		}
		_ = wait.For(ctx, askEvery-time.Since(sent)) // the loop checks ctx
	}
	return out
}

// askVersion asks which version answers at a door.
func askVersion(via *http.Client, door string) (string, error) {
	q, err := http.NewRequest(http.MethodGet, "http://"+door+"/version", nil) //nolint:noctx // it is not to be cut off
	if err != nil {
		return "", err
	}
	q.Host = colours + ".localhost"
	resp, err := via.Do(q)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = wrapFailure(nil, resp.Status)
	}
	return string(raw), err
}
