package testcluster_test

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/test/testcluster"
)

// scraped is a page of metrics: the value of each series.
type scraped map[string]float64

var seriesLine = regexp.MustCompile(`(?m)^([a-z_]+(?:\{.*\})?) (\S+)$`)

// scrape returns the metrics of a member.
func scrape(t *testing.T, c *testcluster.Cluster, i int) scraped {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.Client(i).Addr()+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+c.Token(i))
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status, err)
	}
	out := scraped{}
	for _, m := range seriesLine.FindAllStringSubmatch(string(raw), -1) {
		out[m[1]], _ = strconv.ParseFloat(m[2], 64)
	}
	return out
}

// sum adds up over pages what series say whose name and labels begin so.
func sum(pages []scraped, series string) (n float64) {
	for _, p := range pages {
		for k, v := range p {
			if strings.HasPrefix(k, series) {
				n += v
			}
		}
	}
	return n
}

// TestMemberMetricsCountEachThingOnce: machines, replicas, jobs and requests, of each member's own page.
func TestMemberMetricsCountEachThingOnce(t *testing.T) {
	t.Parallel()
	c := begin(t, 3)
	port := freePort(t)
	programs(t, port, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "fine") }))
	for i, at := range []int{0, 0, 1, 2} {
		l := onto(fmt.Sprint("m-", i), c.Worker(at))
		if i == 0 {
			l.Config.Services = []machine.Service{{InternalPort: port,
				Ports: []machine.Port{{Port: new(80), Handlers: []string{"http"}}}}}
		}
		if _, err := c.Client(at).Launch(t.Context(), app, l, client.LaunchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Client(1).CreateApp(t.Context(), "kept"); err != nil {
		t.Fatal(err)
	}
	small := func() *machine.Config { return launch("").Config }
	in := api.NewRelease{Groups: []api.NewGroup{{Replicas: new(3), Group: release.Group{Name: "web", Config: small()}},
		{Replicas: new(2), Group: release.Group{Name: "api", Config: small()}}}}
	if _, err := c.Client(1).Deploy(t.Context(), "kept", in); err != nil {
		t.Fatal(err)
	}
	j, err := c.Client(2).SubmitJob(t.Context(), "", jobs.Spec{App: app, Command: []string{"sleep", "1000000"}, Last: 2,
		CPUs: 1, MemoryMB: 64})
	if err != nil {
		t.Fatal(err)
	}
	c.Meet()
	for i := range 3 {
		for range 2 {
			c.Until("the machine answers", func() bool {
				r, _, err := ask(t.Context(), c, i, http.MethodGet, "/", "")
				return err == nil && r.StatusCode == http.StatusOK
			})
		}
	}
	var pages []scraped
	want := map[string]float64{
		`souk_machines{`: 9, `souk_machines{state="started"`: 9,
		`souk_app_machines{app="web",state="started"}`: 4, `souk_app_machines{app="kept",state="started"}`: 5,
		`souk_replicas_wanted{app="kept",group="web"}`: 3, `souk_replicas_wanted{`: 5,
		`souk_replicas_ready{app="kept",group="api"}`: 2, `souk_replicas_ready{`: 5, `souk_replicas_asleep{`: 0,
		`souk_jobs{`: 1, `souk_tasks{`: 3, `souk_worker_capacity{resource="cpu_cores"`: 48,
		`souk_proxy_app_requests_total{app="web",class="2xx"}`: 6,
	}
	wrong := ""
	defer func() {
		if wrong != "" {
			t.Error(wrong)
		}
	}()
	c.Until("the sums are right", func() bool {
		pages, wrong = nil, ""
		for i := range 3 {
			pages = append(pages, scrape(t, c, i))
		}
		for series, n := range want {
			if got := sum(pages, series); got != n {
				wrong = fmt.Sprintf("the sum of %s is %v, want %v", series, got, n)
			}
		}
		return wrong == ""
	})
	label := regexp.MustCompile(`worker="([^"]*)"`)
	for i, p := range pages {
		for series := range p {
			if m := label.FindStringSubmatch(series); m != nil && m[1] != string(c.Worker(i)) &&
				!strings.HasPrefix(series, "souk_view_") {
				t.Errorf("the member %s tells of another's worker: %s", c.Worker(i), series)
			}
		}
	}
	if _, err := c.Client(2).CancelJob(t.Context(), j.ID); err != nil {
		t.Error(err)
	}
}
