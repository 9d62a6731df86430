package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/soukhq/souk/internal/needs"
	"github.com/soukhq/souk/internal/wait/waittest"
)

const (
	clusterBegin = "<!-- transcript: go test ./cmd/souk -run ReadmeCluster -update -->\n"
	clusterEnd   = "<!-- end of the cluster's transcript -->"
)

// shopFile says what the service of the transcript is.
const shopFile = `app = "shop"

[groups.web]
replicas = 2
command = ["/bin/sh", "-c", "echo one > index.html; exec busybox httpd -f -p $PORT"]

[[groups.web.services]]
internal_port = 8080
ports = [{ port = 80, handlers = ["http"] }]
checks = [{ type = "http", path = "/", interval = "1s" }]
autostop = "stop"
autostop_after = "20s"
`

// clusterStep is a piece of the cluster's transcript: a sentence, or a command on a host.
type clusterStep struct {
	say  string
	on   string // a, b or c
	run  string
	keep string // the name of its output for later commands, in which {NAME} stands for it
	// agent is an agent that goes on in the background; only what it prints until it is ready is read.
	agent  string
	hidden bool // it is not shown
	// quiet is a command that is not shown and must succeed: it waits for what the next one shows, or holds it to
	// what is said.
	quiet string
	dies  bool // the host loses its power
}

func clusterSteps() []clusterStep {
	const (
		alive = `[ $(souk node ls | grep -c ' alive  *ready ') = 3 ]`
		all   = `[ $(souk ps | grep -c ' started ') = 3 ]`
		onB   = `souk ps | awk '$5 == "b" { print $2 }'`
		said  = `[ $(souk logs {WEB} | wc -l) -gt 1 ]`
		one   = `[ $(souk logs {WEB} | sort -u | wc -l) = 1 ]`
	)
	return []clusterStep{
		{say: "On the first host:"},
		{on: "a", run: `souk init --id a`},
		{on: "a", agent: `souk agent &`},
		{on: "a", run: `souk token join`, keep: "TOKEN"},
		{say: "On each of the others, with a token of its own:"},
		{on: "b", run: `souk join 10.0.0.1:4281 --id b --token {TOKEN}`},
		{on: "b", agent: `souk agent > souk.log &`},
		{on: "a", quiet: `souk token join`, keep: "TOKEN"},
		{on: "c", quiet: `souk join 10.0.0.1:4281 --id c --token {TOKEN}`},
		{on: "c", agent: `souk agent > souk.log &`},
		{on: "a", quiet: alive}, {on: "b", quiet: alive}, {on: "c", quiet: alive},
		{say: "There is no leader: any of them answers for all."},
		{on: "c", run: `souk members`},
		{on: "c", run: `for n in 1 2 3; do souk run --name web-$n --spread worker -- ` +
			`/bin/sh -c 'while sleep 1; do echo "$SOUK_NAME is process $$"; done'; done > /dev/null`},
		{on: "a", quiet: all},
		{on: "b", quiet: all},
		{on: "b", quiet: onB, keep: "WEB"},
		{on: "a", run: `souk ps`},
		{say: "An agent is killed. Its machines go on, and are started nowhere else, for nobody knows whether they " +
			"have ended. The next\nagent of that host goes on with them, with the same processes:"},
		{on: "b", quiet: said},
		{on: "b", run: `kill -9 $(cat /var/lib/souk/lock)`},
		{on: "a", quiet: `souk members | grep '^b .* dead '`},
		{on: "a", run: `souk ps`},
		{on: "b", agent: `souk agent > souk.log &`},
		{on: "a", quiet: `souk members | grep '^b .* alive '`},
		{on: "a", quiet: all},
		{on: "a", quiet: said},
		{on: "a", quiet: one},
		{on: "a", run: `souk logs {WEB} | sort | uniq`},
		{say: "An upgrade is another binary and a signal, which `systemctl reload souk` sends: the process goes on " +
			"as the new souk. No\nrequest fails, and no machine is touched."},
		{on: "b", run: `install souk.new /usr/local/bin/souk`},
		{on: "b", run: `kill -USR2 $(cat /var/lib/souk/lock)`},
		{on: "b", quiet: `souk doctor | grep 'reaper is of this build' | grep ' ok\|^ok'`},
		{on: "a", quiet: `souk members | grep '^b .* alive '`},
		{on: "a", quiet: alive},
		{on: "a", quiet: `! souk ps 2>&1 | grep 'does not answer'`},
		{on: "a", quiet: all},
		{on: "a", quiet: one},
		{on: "a", run: `souk logs {WEB} | sort | uniq`},
		{say: "A host is emptied, and taken back:"},
		{on: "a", quiet: alive},
		{on: "a", run: `souk node drain b --reason 'new disks' --yes`},
		{on: "a", quiet: `souk node ls | grep '^b .* draining '`},
		{on: "a", run: `souk node ls`},
		{on: "a", run: `souk node uncordon b`},
		{say: "A service is an app whose machines souk keeps, as many as are wanted, and is said in a " +
			"[file](docs/reference/souk-toml.md). Any member can\nsee to it: which one does needs no vote, and when " +
			"it dies another goes on. These machines rest when nobody asks."},
		{on: "a", quiet: "cat > souk.toml <<'END'\n" + shopFile + "END"},
		{on: "a", run: `cat souk.toml`},
		{on: "a", run: `souk deploy`},
		{on: "b", run: `curl -s http://shop.localhost:4284`},
		{say: "A newer release replaces them one after the other, and no request fails. One that does not come up is " +
			"undone."},
		{on: "a", run: `sed -i s/one/two/ souk.toml && souk deploy | head -3`},
		{on: "b", run: `curl -s http://shop.localhost:4284`},
		{on: "a", run: `sed 's/exec/exit 1; exec/' souk.toml > bad.toml && souk deploy bad.toml`},
		{on: "b", run: `souk releases shop`},
		{on: "b", run: `curl -s http://shop.localhost:4284`},
		{say: "The power of a host fails. Some seconds later another machine stands for the one that is lost; when " +
			"the host is back,\neach replica has one again. A request wakes one that rests."},
		{on: "a", quiet: `souk services | grep '^http://shop.* 0/2'`},
		{on: "a", quiet: `souk status --app shop | awk '/^web/ && $3 != "a" { print $3 }' | grep . | head -1`,
			keep: "LOST"},
		{on: "{LOST}", dies: true},
		{on: "a", quiet: `S=$(souk status --app shop) && echo "$S" && echo "$S" | grep '^web/.*not heard' && ` +
			`[ $(echo "$S" | grep -c -e '^web/.* stopped ' -e '^web/.* created ') = 3 ]`},
		{on: "a", run: `souk status --app shop | grep -e REPLICA -e ^web/`},
		{on: "a", run: `curl -si http://shop.localhost:4284 | grep -e HTTP -e Souk-Wake -e two | tr -d "\r"`},
		{say: "How many are wanted can be said to any member."},
		{on: "a", run: `souk scale shop 0`},
		{on: "a", quiet: `[ $(souk ps --app shop | grep -v unknown | grep -c ' [abc] ') = 0 ]`},
		{say: "A host is stolen: its certificate, its tokens and the keys that it had are made worthless, and tried " +
			"at every member."},
		{on: "a", run: `souk node evict {LOST} --reason stolen --yes | tail -1`},
	}
}

// TestReadmeClusterIsCurrent has the first hour with a cluster on three hosts, and holds README.md to it.
func TestReadmeClusterIsCurrent(t *testing.T) {
	t.Parallel()
	if err := errors.Join(lacksForHosts(), canServeWeb()); err != nil {
		needs.Skip(t, err)
	}
	r := &clusterRecorder{t: t, hosts: newHosts(t, soukExe(t), "a", "b", "c"), kept: map[string]string{}}
	for _, s := range clusterSteps() {
		r.step(s)
	}
	r.close()
	r.holdReadme(clusterBegin, clusterEnd)
}

// clusterRecorder writes the cluster's transcript.
type clusterRecorder struct {
	t     *testing.T
	b     strings.Builder
	hosts map[string]*readmeHost
	kept  map[string]string
	open  bool // a block of commands is open
}

// holdReadme holds what README.md has between two markers to the transcript.
func (r *clusterRecorder) holdReadme(begin, end string) {
	r.t.Helper()
	file := filepath.Join("..", "..", "README.md")
	raw, err := os.ReadFile(file)
	if err != nil {
		r.t.Fatal(err)
	}
	before, rest, ok1 := strings.Cut(string(raw), begin)
	is, after, ok2 := strings.Cut(rest, end)
	if !ok1 || !ok2 {
		r.t.Fatal("README.md has lost a marker of the transcript at " + begin)
	}
	if *update {
		is = r.b.String()
		if err := os.WriteFile(file, []byte(before+begin+is+end+after), 0o644); err != nil {
			r.t.Fatal(err)
		}
	}
	if diff := cmp.Diff(maskCluster(is), maskCluster(r.b.String())); diff != "" {
		r.t.Errorf("README.md is not what souk does any more; record it again with: "+
			"go test ./cmd/souk -run Readme -update\n(-README +now)\n%s", diff)
	}
}

func (r *clusterRecorder) close() {
	if r.open {
		r.b.WriteString("```\n\n")
		r.open = false
	}
}

// show writes a line into the block of commands. A token is long, and nobody's business.
func (r *clusterRecorder) show(text string) {
	if !r.open {
		r.b.WriteString("```console\n")
		r.open = true
	}
	r.b.WriteString(regexp.MustCompile(`souk1\.[A-Za-z0-9_.-]{20,}`).ReplaceAllString(text, "souk1..."))
}

func (r *clusterRecorder) step(s clusterStep) {
	r.t.Helper()
	line := s.run + s.quiet
	for name, value := range r.kept {
		line = strings.ReplaceAll(line, "{"+name+"}", value)
		s.on = strings.ReplaceAll(s.on, "{"+name+"}", value)
	}
	var out string
	switch {
	case s.say != "":
		r.close()
		r.b.WriteString(s.say + "\n\n")
	case s.dies:
		r.hosts[s.on].end()
	case s.agent != "":
		r.agent(r.hosts[s.on], s.agent, s.hidden)
	case s.quiet != "":
		out = r.until(r.hosts[s.on], line)
	default:
		raw, err := r.hosts[s.on].command(line).CombinedOutput()
		if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
			r.t.Fatalf("%s# %s: %v", s.on, line, err)
		}
		out = string(raw)
		r.show(s.on + "# " + line + "\n" + out)
	}
	if s.keep != "" {
		r.kept[s.keep] = strings.TrimSpace(out)
	}
}

// until runs a line until it succeeds.
func (r *clusterRecorder) until(h *readmeHost, line string) (said string) {
	r.t.Helper()
	waittest.Succeed(r.t, h.name+"# "+line, func() error {
		out, err := h.command(line).CombinedOutput()
		if said = string(out); err != nil {
			return fmt.Errorf("%w: %s", err, said)
		}
		return nil
	})
	return said
}

// agent starts an agent, and shows what it prints until it is ready unless that goes into a file.
func (r *clusterRecorder) agent(h *readmeHost, line string, hidden bool) {
	r.t.Helper()
	cmd := h.command("exec souk agent")
	out, err := cmd.StdoutPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	log := new(agentLog)
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		h.end() // and all that runs on it
		_ = cmd.Wait()
		if r.t.Failed() {
			r.t.Logf("what the agent of %s has logged:\n%s", h.name, log)
		}
	})
	late := time.AfterFunc(waittest.Patience, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	said, sc := h.name+"# "+line+"\n", bufio.NewScanner(out)
	for sc.Scan() {
		if !strings.Contains(line, ">") {
			said += sc.Text() + "\n"
		}
		if strings.HasPrefix(sc.Text(), "  next ") {
			if !hidden {
				r.show(said)
			}
			go io.Copy(io.Discard, out) //nolint:errcheck // until it ends
			return
		}
	}
	r.t.Fatalf("the agent of %s ended before it was ready\n%s", h.name, log)
}

// agentLog is what an agent logs.
type agentLog struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *agentLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *agentLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// maskCluster takes out of the transcript what differs from run to run: what mask takes out, and which of the machines
// is on which host. So the lines of an answer are in order of what is left of them.
func maskCluster(text string) string {
	var out []string
	var answer []string
	end := func() {
		slices.Sort(answer)
		out = append(out, answer...)
		answer = nil
	}
	prompt := regexp.MustCompile(`^[abc]# `)
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "souk: web of shop: ") || strings.HasPrefix(line, "souk: shop: ") {
			continue // how far it is, as often as somebody looked
		}
		line = regexp.MustCompile(`\bweb-\d\b`).ReplaceAllString(line, "web-#")
		line = strings.Replace(line, "  created  no ", "  stopped  no ", 1)
		line = strings.Replace(line, "  coming up\n", "\n", 1) // of two machines of one replica either
		line = regexp.MustCompile(`\bworker [abc]\b`).ReplaceAllString(line, "worker HOST")
		line = regexp.MustCompile(`\b(evict|disk of) [abc]\b`).ReplaceAllString(line, "$1 HOST")
		line = regexp.MustCompile(`^(  copy at .*member) [abc]\b`).ReplaceAllString(line, "$1 HOST")
		line = regexp.MustCompile(`^  steward .*`).ReplaceAllString(line, "  steward")
		line = regexp.MustCompile(`\bj[0-9a-f]{10}\b`).ReplaceAllString(line, "JOB")
		line = regexp.MustCompile(`\b[0-9a-f]{8}\b`).ReplaceAllString(line, "RELEASE")
		if prompt.MatchString(line) || strings.HasPrefix(line, "```") {
			end()
			out = append(out, line)
			continue
		}
		line = regexp.MustCompile(` # ms\b`).ReplaceAllString(strings.TrimSpace(mask(line)), "") // the RTT, once it is known
		line = regexp.MustCompile(`^(ID|default/web|web/#|\[#/#\])(.*) [abc]( |,|$)`).ReplaceAllString(line, "$1$2 HOST$3")
		answer = append(answer, line+"\n")
	}
	end()
	return strings.Join(out, "")
}
