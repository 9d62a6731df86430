package request

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/soukhq/souk/bench"
	"github.com/soukhq/souk/bench/live"
	"github.com/soukhq/souk/fault"
)

// ProxyOptions say how much is measured.
type ProxyOptions struct {
	Connections []int
	For         time.Duration // time per measurement and round
	Rounds      int
}

// ProxyRow is requests a second over some connections: through souk's proxy, and through others in turns with it. Peers
// has only proxies installed on this host.
type ProxyRow struct {
	Name   string             `json:"name"`
	PerSec float64            `json:"per_second"`
	CPU    float64            `json:"cpu_us_per_request"` // CPU of souk
	Peers  map[string]float64 `json:"peers"`              // requests a second, by name
	Load   string             `json:"load"`               // the load generator
}

// ProxyHead is the line above the rows.
func ProxyHead() string {
	return fmt.Sprintf("%-12s %9s %7s  %s", "NAME", "PER S", "CPU US", "RATIO TO (PER S)")
}

// Text returns the row as it is printed for people.
func (r ProxyRow) Text() string {
	var parts []string
	for _, name := range peerNames() {
		if v, is := r.Peers[name]; is {
			parts = append(parts, fmt.Sprintf("%s %.2f (%.0f)", name, r.PerSec/v, v))
		}
	}
	text := fmt.Sprintf("%-12s %9.0f %7.1f  %s", r.Name, r.PerSec, r.CPU, strings.Join(parts, ", "))
	missed := ""
	for name, least := range map[string]float64{"reverse_proxy": 1, "caddy": 1.5, "nginx": .5} {
		if v, is := r.Peers[name]; is && r.PerSec < least*v {
			missed += fmt.Sprintf("  MISSED %.1f of %s", least, name)
		}
	}
	return text + missed
}

// peerNames lists what is measured besides souk, fastest first.
func peerNames() []string { return []string{"direct", "nginx", "haproxy", "reverse_proxy", "caddy"} }

// way is one way to the backend.
type way struct {
	name string
	addr string
	host string
	pid  int // process whose CPU is measured; 0: none
	runs []float64
	cpu  []float64
}

// Proxy measures requests to a started machine.
func Proxy(ctx context.Context, o ProxyOptions, to bench.Reporter) error {
	r, err := newRig(ctx, to.Stderr())
	if err != nil {
		return err
	}
	defer r.close()
	port, err := live.FreePort()
	if err != nil {
		return err
	}
	m, err := r.launchMachine(ctx, r.serverLaunch("proxy", port, "off", false))
	if err != nil {
		return err
	}
	backend := fmt.Sprint("127.0.0.1:", port)
	if _, _, err := askOnce(ctx, r.http, hostOf("proxy")); err != nil {
		return r.noAnswer(ctx, m.ID, err)
	}
	ways := []*way{{name: "souk", addr: r.http, host: hostOf("proxy"), pid: r.Cmd.Process.Pid},
		{name: "direct", addr: backend, host: backend}}
	peers, end := r.startPeers(ctx, backend)
	defer end()
	ways = append(ways, peers...)
	for _, n := range o.Connections {
		done := to.Working("measuring %d connections", n)
		row, err := r.measureRow(ctx, o, n, ways)
		done()
		if err != nil {
			return err
		}
		to.Row(row)
	}
	return nil
}

// measureRow measures all ways in turns, and takes the median of the rounds.
func (r *rig) measureRow(ctx context.Context, o ProxyOptions, n int, ways []*way) (ProxyRow, error) {
	out := ProxyRow{Name: fmt.Sprint("proxy_", n), Peers: map[string]float64{}, Load: "souk's own"}
	for _, w := range ways {
		w.runs, w.cpu = nil, nil
	}
	wrk, err := exec.LookPath("wrk")
	if err == nil {
		out.Load = "wrk"
	}
	for range o.Rounds {
		for _, w := range ways {
			before := cpuOf(w.pid)
			var per float64
			var err error
			if wrk != "" {
				per, err = byWrk(ctx, wrk, w, n, o.For)
			} else {
				per, err = byOwn(ctx, w, n, o.For)
			}
			if err != nil {
				return out, wrapFailure(err, "the load through "+w.name+" failed")
			}
			w.runs = append(w.runs, per)
			w.cpu = append(w.cpu, float64((cpuOf(w.pid)-before).Microseconds())/(per*o.For.Seconds()))
		}
	}
	for _, w := range ways {
		if w.name == "souk" {
			out.PerSec, out.CPU = medianOf(w.runs), medianOf(w.cpu)
		} else {
			out.Peers[w.name] = medianOf(w.runs)
		}
	}
	return out, nil
}

func cpuOf(pid int) time.Duration {
	if pid == 0 {
		return 0
	}
	d, _ := live.CPU(pid) // if it has ended, another step fails
	return d
}

func medianOf(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}

// byWrk generates the load with wrk.
func byWrk(ctx context.Context, wrk string, w *way, n int, d time.Duration) (float64, error) {
	secs := max(1, int(math.Round(d.Seconds())))
	cmd := exec.CommandContext(ctx, wrk, "-t1", "-c"+strconv.Itoa(n), fmt.Sprintf("-d%ds", secs), "-H", "Host: "+w.host,
		"http://"+w.addr+"/")
	raw, err := cmd.CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("%w: %s", err, bytes.TrimSpace(raw))
	}
	if m := regexp.MustCompile(`Non-2xx or 3xx responses: (\d+)`).FindSubmatch(raw); m != nil {
		return 0, fault.New(fault.Internal, fault.CodeBench, "%s requests were answered with another status than "+
			"2xx or 3xx", m[1])
	}
	m := regexp.MustCompile(`Requests/sec:\s+([0-9.]+)`).FindSubmatch(raw)
	if m == nil {
		return 0, fault.New(fault.Internal, fault.CodeBench, "wrk printed no rate (Requests/sec): %s",
			bytes.TrimSpace(raw))
	}
	return strconv.ParseFloat(string(m[1]), 64)
}

// byOwn makes the load itself: n connections, each with one request at a time.
func byOwn(ctx context.Context, w *way, n int, d time.Duration) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	var count atomic.Int64
	var once sync.Once
	var failed error
	var all sync.WaitGroup
	begin := time.Now()
	for range n {
		all.Go(func() {
			if err := askInLoop(ctx, w, &count); err != nil && ctx.Err() == nil {
				once.Do(func() { failed = err })
			}
		})
	}
	all.Wait()
	return float64(count.Load()) / time.Since(begin).Seconds(), failed
}

func askInLoop(ctx context.Context, w *way, count *atomic.Int64) error {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", w.addr)
	if err != nil {
		return err
	}
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	ask := []byte("GET / HTTP/1.1\r\nHost: " + w.host + "\r\n\r\n")
	br := bufio.NewReader(c)
	for ctx.Err() == nil {
		if _, err := c.Write(ask); err != nil {
			return err
		}
		resp, err := http.ReadResponse(br, nil)
		if err != nil {
			return err
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			return err
		}
		if resp.StatusCode != http.StatusOK {
			return fault.New(fault.Internal, fault.CodeBench, "a request was answered %s", resp.Status)
		}
		count.Add(1)
	}
	return nil
}

// startPeers starts the other proxies that are on this host, each in front of the same backend. Proxies that do not
// start are left out.
func (r *rig) startPeers(ctx context.Context, backend string) (ways []*way, end func()) {
	var started []*program
	add := func(name string, argv ...string) {
		p, addr, err := r.startProgram(ctx, argv...)
		if err != nil {
			return
		}
		started = append(started, p)
		ways = append(ways, &way{name: name, addr: addr, host: addr, pid: p.cmd.Process.Pid})
	}
	add("reverse_proxy", r.exe, proxyWord, "ADDR", backend)
	for name, write := range map[string]func(listen, backend string) (file, text string, argv []string){
		"nginx": nginxConfig, "haproxy": haproxyConfig, "caddy": caddyConfig} {
		if _, err := exec.LookPath(name); err != nil {
			continue
		}
		port, err := live.FreePort()
		if err != nil {
			continue
		}
		listen := fmt.Sprint("127.0.0.1:", port)
		file, text, argv := write(listen, backend)
		path := filepath.Join(r.dir, file)
		if os.WriteFile(path, []byte(strings.ReplaceAll(text, "DIR", r.dir)), 0o644) != nil { //nolint:gosec // no secret
			continue
		}
		for i := range argv {
			argv[i] = strings.ReplaceAll(argv[i], "FILE", path)
		}
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Dir, cmd.Env = r.dir, append(os.Environ(), "HOME="+r.dir, "XDG_DATA_HOME="+r.dir)
		if cmd.Start() != nil {
			continue
		}
		p := &program{cmd}
		started = append(started, p)
		up, cancel := context.WithTimeout(ctx, 20*time.Second)
		err = live.AwaitPort(up, listen)
		cancel()
		if err == nil {
			ways = append(ways, &way{name: name, addr: listen, host: listen})
		}
	}
	return ways, func() {
		for _, p := range started {
			p.endProgram()
		}
	}
}

func nginxConfig(listen, backend string) (file, text string, argv []string) {
	return "nginx.conf", `daemon off; master_process off; worker_processes 1; pid DIR/nginx.pid; error_log DIR/nginx.log;
events { worker_connections 4096; }
http { access_log DIR/nginx-access.log;
  client_body_temp_path DIR/n1; proxy_temp_path DIR/n2; fastcgi_temp_path DIR/n3; uwsgi_temp_path DIR/n4; scgi_temp_path DIR/n5;
  keepalive_requests 1000000000;
  upstream b { server ` + backend + `; keepalive 256; keepalive_requests 1000000000; }
  server { listen ` + listen + `; location / { proxy_pass http://b; proxy_http_version 1.1; proxy_set_header Connection "";
    proxy_set_header X-Forwarded-For $remote_addr; } } }
`, []string{"nginx", "-c", "FILE", "-p", "."}
}

func haproxyConfig(listen, backend string) (file, text string, argv []string) {
	return "haproxy.cfg", `global
  maxconn 4096
defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
  option forwardfor
  http-reuse always
frontend f
  bind ` + listen + `
  default_backend b
backend b
  server s ` + backend + `
`, []string{"haproxy", "-db", "-f", "FILE"}
}

func caddyConfig(listen, backend string) (file, text string, argv []string) {
	return "Caddyfile", `{
  admin off
  auto_https off
  log {
    output file DIR/caddy.log
  }
}
http://` + listen + ` {
  log {
    output file DIR/caddy-access.log
  }
  reverse_proxy ` + backend + `
}
`, []string{"caddy", "run", "--config", "FILE", "--adapter", "caddyfile"}
}
