package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/soukhq/souk/bench/live"
	"github.com/soukhq/souk/cli/server"
	"github.com/soukhq/souk/internal/needs"
	"github.com/soukhq/souk/internal/wait/waittest"
)

const (
	readmeBegin = "<!-- transcript: go test ./cmd/souk -run Readme -update -->\n"
	readmeEnd   = "<!-- end of transcript -->"
	imageBegin  = "<!-- transcript: go test ./cmd/souk -run ReadmeImage -update -->\n"
	imageEnd    = "<!-- end of the image's transcript -->"
	httpBegin   = "<!-- transcript: go test ./cmd/souk -run ReadmeHTTP -update -->\n"
	httpEnd     = "<!-- end of the transcript of requests -->"
)

// readmeStep is a piece of the transcript: a sentence, souk dev in the background, or a command of the shell.
type readmeStep struct {
	say string
	dev string
	run string
	// quiet is a command that is not shown: it waits for what the next one shows.
	quiet string
}

func readmeSteps() []readmeStep {
	return []readmeStep{
		{say: "In one terminal:"},
		{dev: "souk dev --workers 3"},
		{say: "In another one, make a machine. It is answered once its program has been started:"},
		{run: `souk run --name hello -- /bin/sh -c 'while true; do echo "$SOUK_NAME is process $$"; sleep 1; done'`},
		{run: `souk ps`},
		{quiet: `until souk logs hello | grep -q hello; do sleep 0.1; done`},
		{run: `souk logs --tail 1 hello`},
		{run: `souk exec hello -- /bin/sh -c 'echo "run beside $SOUK_NAME"; exit 3'; echo "exit code $?"`},
		{say: "Why is it there? And why not, when the answer is no?"},
		{run: `souk explain hello`},
		{run: `souk run --cpu-kind performance --cpus 16 -- /bin/true; echo "exit code $?"`},
		{say: "A task, to its end:"},
		{run: `souk run --attach --rm --name task -- /bin/sh -c 'echo working; sleep 1; exit 7'; echo "exit code $?"`},
		{say: "Kill souk itself. The machine does not notice, and the next souk takes it up again, with the same " +
			"process:"},
		{run: `kill -9 $(cat ~/.local/state/souk/dev/lock)`},
		{dev: "souk dev &"},
		{quiet: `souk wait --state started --timeout 30s hello`},
		{run: `souk ps`},
		{quiet: `until [ $(souk logs hello | wc -l) -gt 2 ]; do sleep 0.1; done`},
		{run: `souk logs hello | sort | uniq`},
		{say: "And the rest of its life:"},
		{run: `souk stop hello`},
		{run: `souk start hello`},
		{run: `souk events hello`},
		{run: `souk destroy --force hello`},
	}
}

// httpSteps wake a machine by a request.
func httpSteps() []readmeStep {
	return []readmeStep{
		{dev: "souk dev"},
		{run: `souk run --name hello --http :8080 --autostop-after 1s -- ` +
			`/bin/sh -c 'echo "hello from process $$" > index.html; exec busybox httpd -f -p $PORT'`},
		{run: `curl -s http://hello.localhost:4284`},
		{say: "Nobody asks for a second, and it is stopped. The next request waits until it answers again, and " +
			"says where the time went:"},
		{quiet: `until souk ps --state stopped -q | grep -q .; do sleep 0.1; done`},
		{run: `souk services`},
		{run: `curl -si http://hello.localhost:4284 | grep -e HTTP -e Souk-Wake -e hello | tr -d "\r"`},
		{run: `souk destroy --force hello`},
	}
}

func imageSteps() []readmeStep {
	const loop = `'while true; do echo "$SOUK_NAME is process $$"; sleep 1; done'`
	return []readmeStep{
		{dev: "souk dev"},
		{say: "An image comes from a registry (`souk run nginx`), or `docker save` has written it. It is nothing but " +
			"tars, so this one is made by\nhand, of a static busybox (`apt install busybox-static`), and no network " +
			"is needed:"},
		{run: `mkdir -p root/bin && cp $(which busybox) root/bin && ` +
			`for p in sh ls sleep; do ln -s busybox root/bin/$p; done`},
		{run: `tar -cf layer.tar -C root .`},
		{run: `echo '{"rootfs": {"diff_ids": ["sha256:'$(sha256sum layer.tar | cut -d ' ' -f 1)'"]}}' > config.json`},
		{run: `echo '[{"Config": "config.json", "RepoTags": ["tiny:1"], "Layers": ["layer.tar"]}]' > manifest.json`},
		{run: `tar -cf tiny.tar manifest.json config.json layer.tar`},
		{run: `souk image load tiny.tar`},
		{say: "A machine of it has files, processes and an address of its own:"},
		{run: `souk run --name box tiny:1 -- /bin/sh -c ` + loop},
		{run: `souk ps`},
		{quiet: `until souk logs box | grep -q box; do sleep 0.1; done`},
		{run: `souk exec box -- /bin/sh -c 'echo mine > /written; hostname; ls /'`},
		{say: "It outlives souk, too, and what it has written stays until it ends; a start begins with the image's " +
			"files."},
		{run: `kill -9 $(cat ~/.local/state/souk/dev/lock)`},
		{dev: "souk dev &"},
		{quiet: `souk wait --state started --timeout 30s box`},
		{quiet: `until [ $(souk logs box | wc -l) -gt 2 ]; do sleep 0.1; done`},
		{run: `souk logs box | sort | uniq`},
		{run: `souk exec box -- /bin/ls /written`},
		{run: `souk stop box && souk start box`},
		{run: `souk exec box -- /bin/ls /written`},
		{run: `souk destroy --force box`},
		{run: `souk image rm tiny:1`},
	}
}

// TestReadmeFirstMinutesAreCurrent runs the first five minutes and holds README.md to them. What differs from run to run (ids, times,
// amounts) is masked for the comparison, but stands in README.md as it was recorded.
func TestReadmeFirstMinutesAreCurrent(t *testing.T) {
	t.Parallel()
	transcript(t, "README.md", readmeSteps(), readmeBegin, readmeEnd)
}

// TestReadmeHTTPIsCurrent: the README's machine that sleeps until a request comes does what the README shows.
func TestReadmeHTTPIsCurrent(t *testing.T) {
	t.Parallel()
	if err := canServeWeb(); err != nil {
		needs.Skip(t, err)
	}
	transcript(t, "README.md", httpSteps(), httpBegin, httpEnd)
}

// TestReadmeImageIsCurrent: the README's first minutes with an image, in a network namespace of its own, are as the
// README shows.
func TestReadmeImageIsCurrent(t *testing.T) {
	t.Parallel()
	if apart(t, needs.Lacks("busybox")) {
		transcript(t, "README.md", imageSteps(), imageBegin, imageEnd)
	}
}

// transcript does the steps and holds the part of a document that is between begin and end to what came of them.
func transcript(t *testing.T, document string, steps []readmeStep, begin, end string) {
	exe := soukExe(t)
	home := t.TempDir()
	r := &recorder{
		t:    t,
		home: home,
		web:  freePort(t),
		env:  append(os.Environ(), "HOME="+home, "XDG_STATE_HOME=", "SOUK_ADDR=", "SOUK_TOKEN=", "SOUK_APP="),
	}
	own := &live.Souk{Exe: exe, State: filepath.Join(home, ".local", "state", "souk", "dev"), Stderr: io.Discard}
	t.Cleanup(func() {
		r.stopDev()
		own.End()
	})
	for _, s := range steps {
		switch {
		case s.say != "":
			r.say(s.say)
		case s.quiet != "":
			if out, err := r.shell(s.quiet); err != nil {
				t.Fatalf("%s: %v\n%s", s.quiet, err, out)
			}
		case s.dev != "":
			r.dev(exe, s.dev)
		default:
			r.run(s.run)
		}
	}
	r.close()
	file := filepath.Join("..", "..", filepath.FromSlash(document))
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok1 := strings.Cut(string(raw), begin)
	is, after, ok2 := strings.Cut(rest, end)
	if !ok1 || !ok2 {
		t.Fatalf("%s has lost the markers of its transcript", document)
	}
	if *update {
		is = r.b.String()
		if err := os.WriteFile(file, []byte(before+begin+is+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(mask(is), mask(r.b.String())); diff != "" {
		t.Errorf(
			"%s is not what souk does any more; record it again with: go test ./cmd/souk -run %s -update\n"+
				"(-the document +now)\n%s",
			document, t.Name(), diff,
		)
	}
}

// recorder writes a transcript.
type recorder struct {
	t    *testing.T
	b    strings.Builder
	home string
	env  []string
	open bool // a block of commands is open
	cmd  *exec.Cmd
	door string // the port at which machines answer HTTP
	web  string // a port that takes the place of 8080, which may be in use here
}

func (r *recorder) block() {
	if !r.open {
		r.b.WriteString("```console\n")
		r.open = true
	}
}

func (r *recorder) close() {
	if r.open {
		r.b.WriteString("```\n\n")
		r.open = false
	}
}

func (r *recorder) say(text string) {
	r.close()
	r.b.WriteString(text + "\n\n")
}

// shown is output as a reader would have it: at home, and on the ports that are the defaults.
func (r *recorder) shown(out string) string {
	out = strings.ReplaceAll(out, r.home, "~")
	if r.door != "" {
		out = strings.ReplaceAll(out, r.door, "HTTP-DOOR")
	}
	if r.web != "" {
		out = strings.ReplaceAll(out, r.web, "8080")
	}
	out = regexp.MustCompile(`127\.0\.0\.1:\d+`).ReplaceAllString(out, server.DefaultAddr)
	out = strings.ReplaceAll(out, "127.0.0.1:HTTP-DOOR", server.DefaultHTTP)
	return strings.ReplaceAll(out, "HTTP-DOOR", defaultDoor)
}

const defaultDoor = "4284"

// doorOf returns the port at which a souk dev says that machines answer HTTP.
func doorOf(line string) string {
	if m := regexp.MustCompile(`machines answer HTTP at 127\.0\.0\.1:(\d+)`).FindStringSubmatch(line); m != nil {
		return m[1]
	}
	return ""
}

func (r *recorder) run(line string) {
	r.t.Helper()
	r.block()
	out, err := r.shell(line)
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		r.t.Fatalf("%s: %v", line, err)
	}
	r.b.WriteString("$ " + line + "\n" + r.shown(string(out)))
}

// shell runs a line, for as long as tests wait.
func (r *recorder) shell(line string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(r.t.Context(), waittest.Patience)
	defer cancel()
	line = strings.ReplaceAll(strings.ReplaceAll(line, defaultDoor, r.door), "--http :8080", "--http :"+r.web)
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", line)
	cmd.Dir, cmd.Env, cmd.WaitDelay = r.home, r.env, time.Second
	return cmd.CombinedOutput()
}

// dev starts souk dev, on any free port, and reads what it prints until it is ready.
func (r *recorder) dev(exe, line string) {
	r.t.Helper()
	r.stopDev()
	r.block()
	args := strings.Fields(strings.TrimSuffix(line, " &") + " --addr 127.0.0.1:0")[1:]
	r.cmd = exec.Command(exe, args...)
	r.cmd.Env = r.env
	out, err := r.cmd.StdoutPipe()
	if err == nil {
		err = r.cmd.Start()
	}
	if err != nil {
		r.t.Fatal(err)
	}
	late := time.AfterFunc(waittest.Patience, func() { _ = r.cmd.Process.Kill() })
	defer late.Stop()
	r.b.WriteString("$ " + line + "\n")
	sc := bufio.NewScanner(out)
	for sc.Scan() {
		if door := doorOf(sc.Text()); door != "" {
			r.door = door
		}
		r.b.WriteString(r.shown(sc.Text()) + "\n")
		if sc.Text() == "  souk ps" || sc.Text() == "  souk logs -f hello" {
			return
		}
	}
	r.t.Fatal("souk dev ended before it was ready")
}

// stopDev waits for a souk dev that was killed, or ends one that was not.
func (r *recorder) stopDev() {
	if r.cmd == nil {
		return
	}
	_ = r.cmd.Process.Signal(syscall.SIGTERM) // it may have ended already
	_ = r.cmd.Wait()
	r.cmd = nil
}

// mask takes out of a transcript what differs from run to run. Commands and exit codes stay.
func mask(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if regexp.MustCompile(`^  (images are run by|no images are run:)`).MatchString(line) {
			continue // by what the host has
		}
		if !strings.HasPrefix(line, "$ ") {
			line = regexp.MustCompile(`in the worker: .*`).ReplaceAllString(line, "in the worker: PHASES")
			line = regexp.MustCompile(`\b01[0-9A-HJKMNP-TV-Z]{24}\b`).ReplaceAllString(line, "DECISION")
			line = regexp.MustCompile(`\b[0-9a-f]{14}\b`).ReplaceAllString(line, "ID")
			line = regexp.MustCompile(`\b[0-9a-f]{12}\b`).ReplaceAllString(line, "DIGEST")
			line = regexp.MustCompile(`\bw\d-[a-z0-9]{6}\b`).ReplaceAllString(line, "WORKER")
			line = regexp.MustCompile(`(exit code )?[0-9]+([.:][0-9]+)*`).ReplaceAllStringFunc(line,
				func(s string) string {
					if strings.HasPrefix(s, "exit code ") {
						return s
					}
					return "#"
				})
			line = regexp.MustCompile(` +`).ReplaceAllString(line, " ")
		}
		b.WriteString(line)
	}
	return b.String()
}

// freePort returns a TCP port of this host that nobody listens at.
func freePort(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	_, port, err := net.SplitHostPort(ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}
