// Package unixusers tests jobs of the Unix users of three hosts: whose they are, and as whom their tasks run. Each host
// has a file of users of its own.
package unixusers

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/test/netns"
	"github.com/soukhq/souk/test/soukexe"
)

// newNets makes the hosts' networks, which a process can make once: a test leaves no agent there.
var newNets = sync.OnceValues(func() (netns.Hosts, error) { return netns.New(3) })

func TestMain(m *testing.M) { os.Exit(netns.Main(m.Run)) }

// The users of all hosts; on h3 alice has the number that bob has elsewhere, and bob is missing.
const (
	aliceID = 54321
	bobID   = 54322
	labID   = 54400 // a group of alice
)

const commandTime = time.Minute

// denied is the exit code of souk for what the caller may not do.
const denied = 77

// host is a host with an agent.
type host struct {
	t     *testing.T
	net   *netns.Host
	dir   string // of the agent
	etc   string // its passwd and group
	agent *exec.Cmd
	exe   string // for commands, whose starts the race detector would make slow
}

// in returns the arguments that run a command with the host's users.
func (h *host) in(argv ...string) []string {
	const script = `mount --bind "$0/passwd" /etc/passwd && mount --bind "$0/group" /etc/group && exec "$@"`
	return append([]string{"unshare", "-m", "sh", "-c", script, h.etc}, argv...)
}

// run runs a command on the host, as a user; "": root. It returns its output, of both kinds, and its exit code.
func (h *host) run(user string, argv ...string) (out string, code int) {
	h.t.Helper()
	if user != "" {
		argv = append([]string{"setpriv", "--reuid=" + user, "--regid=" + user, "--init-groups", "env", "-i",
			"PATH=" + os.Getenv("PATH"), "HOME=/", "SOUK_ADDR=unix:" + filepath.Join(h.dir, "users.sock")}, argv...)
	}
	ctx, cancel := context.WithTimeout(h.t.Context(), commandTime)
	defer cancel()
	argv = h.in(argv...)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = "/"
	var raw []byte
	err := h.net.Do(func() (err error) { raw, err = cmd.CombinedOutput(); return err })
	if ctx.Err() != nil {
		h.t.Fatalf("%q does not end: %s", argv, raw)
	}
	if cmd.ProcessState == nil {
		h.t.Fatalf("%q: %v", argv, err)
	}
	return strings.TrimSpace(string(raw)), cmd.ProcessState.ExitCode()
}

// want runs a command of souk, and wants this exit code.
func (h *host) want(code int, user string, argv ...string) string {
	h.t.Helper()
	argv = append([]string{h.exe}, argv...)
	if user == "" {
		argv = append([]string{"env", "SOUK_ADDR=unix:" + filepath.Join(h.dir, "souk.sock")}, argv...)
	}
	out, got := h.run(user, argv...)
	if got != code {
		h.t.Fatalf("%s %q: exit code %d, not %d\n%s", user, argv[1:], got, code, out)
	}
	return out
}

// job returns a job as root sees it.
func (h *host) job(id string) (j jobs.Job) {
	h.t.Helper()
	if err := json.Unmarshal([]byte(h.want(0, "", "job", "status", id, "--json")), &j); err != nil {
		h.t.Fatal(err)
	}
	return j
}

// submit submits as a user with --json, and returns the id.
func (h *host) submit(user string, argv ...string) string {
	h.t.Helper()
	var j jobs.Job
	told := h.want(0, user, append([]string{"submit", "--json"}, argv...)...)
	if err := json.Unmarshal([]byte(told), &j); err != nil {
		h.t.Fatal(err)
	}
	return j.ID
}

// openHosts makes three members: h1 and h3 serve all users, h2 alice alone.
func openHosts(t *testing.T) []*host {
	t.Helper()
	if !netns.Inside() {
		skip(t, "it needs "+netns.Lacks())
	}
	for _, program := range []string{"unshare", "setpriv", "getent"} {
		if _, err := exec.LookPath(program); err != nil {
			skip(t, "it needs the program "+program)
		}
	}
	root := t.TempDir()
	for dir := root; dir != "/"; dir = filepath.Dir(dir) {
		if st, err := os.Stat(dir); err == nil && st.Mode().Perm()&1 == 0 {
			if err := os.Chmod(dir, st.Mode().Perm()|0o111); err != nil {
				t.Fatal(err)
			}
		}
	}
	exe, agent := copyOfSouk(t, root, false), copyOfSouk(t, root, true)
	nets, err := newNets()
	if err != nil {
		t.Fatal(err)
	}
	var hosts []*host
	for i, n := range nets {
		h := &host{t: t, net: n, dir: filepath.Join(root, n.Name), etc: filepath.Join(root, n.Name+"-etc"), exe: exe}
		h.writeUsers(i == 2)
		hosts = append(hosts, h)
		if i == 0 {
			h.want(0, "", "init", "--dir", h.dir, "--id", n.Name)
		} else {
			token := hosts[0].want(0, "", "token", "join", "--dir", hosts[0].dir)
			h.want(0, "", "join", nets[0].Addr+":4281", "--dir", h.dir, "--id", n.Name, "--token", token)
		}
		users := "all"
		if i == 1 {
			users = "alice"
		}
		h.start(agent, users)
	}
	for _, h := range hosts {
		waittest.Until(t, "all members know each other", func() bool {
			out, code := h.run("", "env", "SOUK_ADDR=unix:"+filepath.Join(h.dir, "souk.sock"), exe, "node", "ls")
			return code == 0 && strings.Contains(out, "h1") && strings.Contains(out, "h2") &&
				strings.Contains(out, "h3")
		})
	}
	return hosts
}

// copyOfSouk puts souk where every user may run it.
func copyOfSouk(t *testing.T, dir string, race bool) string {
	t.Helper()
	built, err := soukexe.Path(race)
	if err != nil {
		t.Fatal(err)
	}
	exe := filepath.Join(dir, filepath.Base(built))
	if out, err := exec.Command("cp", built, exe).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return exe
}

func skip(t *testing.T, why string) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatal(why)
	}
	t.Skip(why)
}

func (h *host) writeUsers(others bool) {
	h.t.Helper()
	passwd, group := string(h.read("/etc/passwd")), string(h.read("/etc/group"))
	line := func(name string, id int) string {
		return fmt.Sprintf("%s:x:%d:%d::/home/%s:/bin/sh\n", name, id, id, name)
	}
	if others {
		passwd += line("alice", bobID)
		group += fmt.Sprintf("alice:x:%d:\nlab:x:%d:alice\n", bobID, labID)
	} else {
		passwd += line("alice", aliceID) + line("bob", bobID)
		group += fmt.Sprintf("alice:x:%d:\nbob:x:%d:\nlab:x:%d:alice\n", aliceID, bobID, labID)
	}
	if err := os.Mkdir(h.etc, 0o755); err != nil {
		h.t.Fatal(err)
	}
	for name, text := range map[string]string{"passwd": passwd, "group": group} {
		if err := os.WriteFile(filepath.Join(h.etc, name), []byte(text), 0o644); err != nil {
			h.t.Fatal(err)
		}
	}
}

func (h *host) read(file string) []byte {
	h.t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		h.t.Fatal(err)
	}
	return raw
}

// start starts the agent, until the end of the test.
func (h *host) start(exe, users string) {
	h.t.Helper()
	log, err := os.Create(h.dir + ".log")
	if err != nil {
		h.t.Fatal(err)
	}
	argv := h.in(exe, "agent", "--dir", h.dir, "--addr", "127.0.0.1:4280", "--wire", h.net.Addr+":4281", "--gossip",
		h.net.Addr+":4282", "--cpus", "4", "--memory", "2g", "--unix-users", users, "--log", "info")
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := h.net.Do(cmd.Start); err != nil {
		h.t.Fatal(err)
	}
	h.agent = cmd
	h.t.Cleanup(func() {
		if h.t.Failed() {
			h.t.Logf("the log of %s:\n%s", h.net.Name, h.read(h.dir+".log"))
		}
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		_ = cmd.Wait()
		log.Close()
	})
	waittest.Until(h.t, "the socket for users is served", func() bool {
		_, code := h.run("alice", h.exe, "job", "ls")
		return code == 0 || h.net.Name == "h3"
	})
}

// ownDir makes a directory of a user that no other may enter.
func ownDir(t *testing.T, path string, uid int) string {
	t.Helper()
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(path, uid, uid); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestTwoUsersOfOneHost: tasks of each own what they write, with the umask and limits of the shell that submitted
// them and the groups of their user, on the hosts that have the user with this number; neither changes, reads or signals
// what is the other's.
func TestTwoUsersOfOneHost(t *testing.T) {
	hosts := openHosts(t)
	h1 := hosts[0]
	root := filepath.Dir(h1.dir)
	hers, his := ownDir(t, filepath.Join(root, "of-alice"), aliceID), ownDir(t, filepath.Join(root, "of-bob"), bobID)

	// 24 tasks of one core on hosts of four: no single host can hold those that run at once.
	shell := `umask 027; ulimit -S -n 333; exec nice -n 5 "$@"`
	nice, err := exec.Command("nice").Output() // of this process, and so of the agents
	if err != nil {
		t.Fatal(err)
	}
	id := h1.submit1(t, "alice", shell, "--name", "sweep", "--array", "1-24", "--env", "KEY=hidden-value", "--", "sh",
		"-c", `{ echo "$(id -u) $(id -G) $(umask) $(ulimit -S -n) $(nice) $HOME $USER"; } > "$0/$SOUK_INDEX.$SOUK_WORKER"; sleep 0.3`,
		hers)
	h1.want(0, "alice", "job", "wait", id)
	files, err := os.ReadDir(hers)
	if err != nil || len(files) != 24 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	on := map[string]int{}
	for _, f := range files {
		st, err := f.Info()
		if err != nil {
			t.Fatal(err)
		}
		sys := st.Sys().(*syscall.Stat_t)
		want := fmt.Sprintf("%d %d %d 0027 333 %s /home/alice alice", aliceID, aliceID, labID, bytes.TrimSpace(nice))
		if got := strings.TrimSpace(string(h1.read(filepath.Join(hers, f.Name())))); got != want ||
			sys.Uid != aliceID || st.Mode().Perm() != 0o640 {
			t.Errorf("%s is of %d, %v: %q, not %q", f.Name(), sys.Uid, st.Mode(), got, want)
		}
		_, worker, _ := strings.Cut(f.Name(), ".")
		on[worker]++
	}
	if on["h1"] == 0 || on["h2"] == 0 || on["h3"] != 0 {
		t.Errorf("tasks of alice, whose number is another on h3, ran at %v", on)
	}

	// bob is served by h1 alone; what is alice's is not his, by souk or by the kernel.
	run := h1.submit("alice", "--name", "long", "--env", "KEY=hidden-value", "--", "sh", "-c",
		`echo $$ > "$0/pid"; exec sleep 600`, hers)
	var pid int
	waittest.Until(t, "her task runs", func() bool {
		raw, err := os.ReadFile(filepath.Join(hers, "pid"))
		pid, _ = strconv.Atoi(strings.TrimSpace(string(raw)))
		return err == nil && pid > 0
	})
	spy := h1.submit("bob", "--", "sh", "-c", fmt.Sprintf(
		`id -u; kill -9 %d; cat /proc/%d/environ; ls %q; echo x > %q/x; touch "$0/his"`, pid, pid, hers, hers), his)
	h1.want(0, "bob", "job", "wait", spy)
	told := h1.want(0, "bob", "job", "logs", spy)
	if !strings.Contains(told, strconv.Itoa(bobID)) || strings.Count(told, "ermi") < 4 ||
		strings.Contains(told, "hidden-value") {
		t.Errorf("bob's task says %q", told)
	}
	if st, err := os.Stat(filepath.Join(his, "his")); err != nil || st.Sys().(*syscall.Stat_t).Uid != bobID {
		t.Errorf("bob's own file: %v, %v", st, err)
	}
	if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); err != nil {
		t.Errorf("her task ended: %v", err)
	}
	for _, argv := range [][]string{{"job", "cancel", run}, {"job", "cancel", "long"},
		{"job", "cancel", run, "--task", "0"}, {"job", "logs", run, "0"}, {"job", "tasks", run}} {
		if out := h1.want(denied, "bob", argv...); !strings.Contains(out, "alice") {
			t.Errorf("bob: %q: %s", argv, out)
		}
	}
	if out := h1.want(0, "bob", "job", "ls", "--json"); !strings.Contains(out, run) || !strings.Contains(out, `"alice"`) ||
		strings.Contains(out, "hidden") {
		t.Errorf("bob's list: %s", out)
	}
	if out := h1.want(0, "bob", "job", "ls"); !strings.Contains(out, "alice") || strings.Contains(out, "hidden") {
		t.Errorf("bob's list: %s", out)
	}
	if out := hosts[1].want(denied, "bob", "job", "ls"); !strings.Contains(out, "not among those") {
		t.Errorf("bob at h2: %s", out)
	}
	// An operator alone cancels nothing of a user; a token that carries the user does, from anywhere.
	secret := h1.want(0, "", "token", "create", "ops", "--role", "operator")
	hersToken := h1.want(0, "", "token", "create", "alice", "--unix-user", "alice")
	with := func(token string, argv ...string) (string, int) {
		env := []string{"env", "SOUK_ADDR=127.0.0.1:4280", "SOUK_TOKEN=" + token, h1.exe}
		return hosts[2].run("", append(env, argv...)...)
	}
	if out, code := with(secret, "job", "cancel", run); code != denied || !strings.Contains(out, "belongs to") {
		t.Errorf("an operator: %d %s", code, out)
	}
	if out, code := with(hersToken, "submit", "--wait", "--", "sh", "-c", `id -un > "$0/by-token"`, hers); code != 0 {
		t.Errorf("by her token at h3: %d %s", code, out)
	}
	if got := string(h1.read(filepath.Join(hers, "by-token"))); got != "alice\n" {
		t.Errorf("by her token at h3 it ran as %q", got)
	}
	// A new agent takes the task over as hers.
	_ = h1.agent.Process.Kill() // it has not ended
	_ = h1.agent.Wait()
	h1.start(h1.exe, "all")
	if out := h1.want(denied, "bob", "job", "cancel", run); !strings.Contains(out, "alice") {
		t.Errorf("bob at the new agent: %s", out)
	}
	if raw := h1.read(fmt.Sprintf("/proc/%d/status", pid)); !strings.Contains(string(raw),
		fmt.Sprintf("Uid:\t%d\t%[1]d\t%[1]d\t%[1]d\n", aliceID)) {
		t.Errorf("her task is now\n%s", raw)
	}
	if j := h1.job(run); j.State != jobs.Running || j.Spec.Owner.User == nil || j.Spec.Owner.User.UID != aliceID {
		t.Errorf("%+v", j)
	}
	if out, code := with(hersToken, "job", "cancel", "long"); code != 0 {
		t.Errorf("she cancels by her token: %d %s", code, out)
	}
	waittest.Until(t, "her task has ended", func() bool { return h1.job(run).State.Final() })
	testMachines(t, hosts)
	if out := h1.want(denied, "daemon", "submit", "--", "true"); !strings.Contains(out, "not among those") {
		t.Errorf("a user of the system: %s", out)
	}
}

// testMachines: a machine runs as the user who made it, where the host has the user, and others than
// the owner and admins neither change it, enter it nor read its output.
func testMachines(t *testing.T, hosts []*host) {
	h1 := hosts[0]
	var launched struct {
		Machine machine.Machine `json:"machine"`
	}
	for i := range 4 { // on h1 or h2: h3 has another alice
		name := fmt.Sprintf("web%d", i)
		told := h1.want(0, "alice", "run", "--json", "--name", name, "--cpus", "1", "--", "sh", "-c",
			`echo "$(id -un) $HOME"; umask 022; exec sleep 600`)
		if err := json.Unmarshal([]byte(told), &launched); err != nil {
			t.Fatal(err)
		}
		m := launched.Machine
		if m.App != "unix-alice" || m.UnixUser == nil || m.UnixUser.UID != aliceID || m.Worker == "h3" {
			t.Fatalf("%s", told)
		}
	}
	waittest.Until(t, "its output is there", func() bool {
		out, code := h1.run("alice", h1.exe, "logs", "web0")
		return code == 0 && strings.Contains(out, "alice /home/alice")
	})
	if out := h1.want(0, "alice", "exec", "web0", "--", "id", "-u"); out != strconv.Itoa(aliceID) {
		t.Errorf("a command in it runs as %q", out)
	}
	if out := h1.want(0, "alice", "ps"); strings.Count(out, "web") != 4 {
		t.Errorf("her machines: %s", out)
	}
	if out := h1.want(0, "", "status", "--app", "unix-alice", "web0"); !strings.Contains(out, "user alice (54321)") {
		t.Errorf("%s", out)
	}
	if out := h1.want(denied, "alice", "run", "--user", "bob", "--", "true"); !strings.Contains(out, "runs as alice") {
		t.Errorf("as another user: %s", out)
	}
	ops := h1.want(0, "", "token", "create", "ops2", "--role", "operator")
	for _, argv := range [][]string{{"stop", "web0"}, {"exec", "web0", "--", "id"}, {"logs", "web0"},
		{"destroy", "--force", "web0"}, {"cp", "web0:/etc/hostname", "-"}} {
		argv = append([]string{argv[0], "--app", "unix-alice"}, argv[1:]...)
		if out := h1.want(denied, "bob", argv...); strings.Contains(out, "/home/alice") {
			t.Errorf("bob: %q: %s", argv, out)
		}
		env := []string{"env", "SOUK_ADDR=127.0.0.1:4280", "SOUK_TOKEN=" + ops, h1.exe}
		out, code := h1.run("", append(env, argv...)...)
		if code != denied || !strings.Contains(out, "Unix user") {
			t.Errorf("an operator: %q: %d %s", argv, code, out)
		}
	}
	out, code := h1.run("alice", h1.exe, "run", "--require", "worker == h3", "--", "true")
	id := regexp.MustCompile(`souk explain ([0-9A-Z]+)`).FindStringSubmatch(out)
	if code == 0 || id == nil {
		t.Errorf("where alice has another number: %d %s", code, out)
	} else if out := h1.want(0, "", "explain", id[1]); !strings.Contains(out, "has the number 54322 on this host") {
		t.Errorf("why not: %s", out)
	}
	h1.want(0, "alice", "stop", "web1")
	h1.want(0, "alice", "start", "web1")
	if out := h1.want(0, "alice", "exec", "web1", "--", "id", "-u"); out != strconv.Itoa(aliceID) {
		t.Errorf("after a restart a command in it runs as %q", out)
	}
	h1.want(0, "", "destroy", "--app", "unix-alice", "--force", "web2") // an admin may
	h1.want(0, "alice", "destroy", "--force", "web0", "web1", "web3")
}

// submit1 is submit from a shell that a script prepares.
func (h *host) submit1(t *testing.T, user, shell string, argv ...string) string {
	t.Helper()
	argv = append([]string{"sh", "-c", shell, "sh", h.exe, "submit", "--json"}, argv...)
	out, code := h.run(user, argv...)
	var j jobs.Job
	if err := json.Unmarshal([]byte(out), &j); err != nil || code != 0 {
		t.Fatalf("%d %s", code, out)
	}
	return j.ID
}
