package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/soukhq/souk/bench/live"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/internal/needs"
	"github.com/soukhq/souk/runtime/hostnet/netplan"
	"github.com/soukhq/souk/runtime/image/imagetest"
)

// scriptHost is a host of a script: a network namespace, held by a process in it, on one link with the others.
type scriptHost struct {
	name, addr string
	hold       *exec.Cmd
	before     string // what there was of its network before anything ran
}

const keyHosts = "hosts"

// TestBetweenScriptsOfSeveralHostsPass runs testdata/between: stories of members on hosts of their own, with containers. They would run
// with $WAY vxlan as well, and did; what differs is held by hostnet.TestAppsOfTwoHostsAreIsolated, which costs less.
//
// Commands of its own, beside those of TestScriptsOfTheCommandLinePass; $WORK/on-NAME CMD... runs a command on a host:
//
//	agent NAME [FLAG...]   start souk agent in $WORK/NAME on the host NAME; set NAME_ADDR, NAME_WIRE and SOUK_TOKEN
//	kill9 NAME, end NAME   end it with SIGKILL or SIGTERM
//	sees ADDR N            wait until the agent at ADDR knows what N workers have
//	image FILE             write an image as docker save does, net:1, whose program serves a text and asks for others'
//	clean NAME...          end the reapers, and wait until hosts have of networks what they had at the beginning
func TestBetweenScriptsOfSeveralHostsPass(t *testing.T) {
	t.Parallel()
	if apart(t, needs.Lacks("nft", "nsenter", "sysctl")) {
		betweenScripts(t, netplan.WireGuard)
	}
}

func betweenScripts(t *testing.T, way netplan.Way) {
	runStories(t, "testdata/between", testscript.Params{
		Setup: func(env *testscript.Env) error {
			agents := map[string]*scriptAgent{}
			env.Values[keyAgents] = agents
			env.Setenv("WAY", string(way))
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("GORACE", os.Getenv("GORACE"))
			hosts, err := scriptHosts(env.WorkDir, string(way), "a", "b", "c")
			env.Values[keyHosts] = hosts
			env.Defer(func() {
				endAgents(env.WorkDir, agents)
				for _, h := range hosts {
					h.end()
				}
			})
			return err
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"agent": scriptAgentOnHost, "kill9": scriptKillAgent, "end": scriptEndAgent, "sees": scriptSees,
			"until": scriptUntil, "keep": scriptKeep, "image": scriptNetImage, "clean": scriptClean,
		},
	})
}

// scriptHosts makes hosts at 10.99.0.1 and so on, on a bridge of that name in this namespace.
func scriptHosts(work, bridge string, names ...string) (map[string]*scriptHost, error) {
	all := map[string]*scriptHost{}
	if err := runAll("ip link add "+bridge+" type bridge", "ip link set "+bridge+" up"); err != nil {
		return nil, err
	}
	for i, name := range names {
		h := &scriptHost{name: name, addr: fmt.Sprintf("10.99.0.%d", i+1)}
		h.hold = exec.Command("unshare", "-n", "sh", "-c", "echo && exec sleep 10000")
		h.hold.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		up, err := h.hold.StdoutPipe()
		if err == nil {
			err = h.hold.Start()
		}
		if err == nil {
			_, err = up.Read(make([]byte, 1))
		}
		if err != nil {
			return all, err
		}
		all[name] = h
		pid := h.hold.Process.Pid
		on := fmt.Sprintf("nsenter --net=/proc/%d/ns/net ", pid)
		if err := runAll(
			fmt.Sprintf("ip link add %s-%s type veth peer name eth0 netns %d", bridge, name, pid),
			"ip link set "+bridge+"-"+name+" master "+bridge+" up", on+"ip link set lo up",
			on+"ip addr add "+h.addr+"/24 dev eth0", on+"sysctl -q net.ipv6.conf.eth0.disable_ipv6=1",
			on+"ip link set eth0 up"); err != nil {
			return all, err
		}
		script := "#!/bin/sh\nexec " + on + "\"$@\"\n"
		if err := os.WriteFile(filepath.Join(work, "on-"+name), []byte(script), 0o755); err != nil {
			return all, err
		}
		if h.before, err = h.network(); err != nil {
			return all, err
		}
	}
	return all, nil
}

func runAll(lines ...string) error {
	for _, line := range lines {
		argv := strings.Fields(line)
		if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", line, err, out)
		}
	}
	return nil
}

// network lists what there is of networks on the host. Of links it has the names: their carrier comes a moment after them.
func (h *scriptHost) network() (string, error) {
	var all string
	for _, list := range []string{"ip -o link", "ip -4 route", "ip -6 route", "nft list ruleset"} {
		argv := append([]string{fmt.Sprintf("--net=/proc/%d/ns/net", h.hold.Process.Pid)}, strings.Fields(list)...)
		out, err := exec.Command("nsenter", argv...).CombinedOutput()
		if err != nil {
			return "", fmt.Errorf("%s: %w: %s", list, err, out)
		}
		if list == "ip -o link" {
			out = regexp.MustCompile(`(?m)^\d+: (\S+): .*$`).ReplaceAll(out, []byte("$1"))
		}
		all += list + ":\n" + string(out)
	}
	return all, nil
}

// end ends the host, with what still runs on it.
func (h *scriptHost) end() {
	own, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", h.hold.Process.Pid))
	all, _ := filepath.Glob("/proc/[0-9]*/ns/net") // the pattern is well-formed
	for _, at := range all {
		var pid int
		if ns, wrong := os.Readlink(at); err == nil && wrong == nil && ns == own {
			if _, err := fmt.Sscanf(at, "/proc/%d/", &pid); err == nil {
				_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended meanwhile
			}
		}
	}
	_ = h.hold.Wait() // its link goes with it
}

func scriptAgentOnHost(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 || ts.Value(keyHosts).(map[string]*scriptHost)[args[0]] == nil {
		ts.Fatalf("usage: agent NAME [FLAG...]")
	}
	h := ts.Value(keyHosts).(map[string]*scriptHost)[args[0]]
	startAgent(ts, h.name, []string{ts.MkAbs("on-" + h.name)}, append([]string{"--host", h.addr, "--wire",
		h.addr + ":4281", "--gossip", h.addr + ":4282"}, args[1:]...))
	a := ts.Value(keyAgents).(map[string]*scriptAgent)[h.name]
	at := "unix:" + filepath.Join(a.dir, "souk.sock") // its TCP port is on its own host
	ts.Setenv(h.name+"_ADDR", at)
	a.client = client.New(at, ts.Getenv("SOUK_TOKEN"))
}

func scriptEndAgent(ts *testscript.TestScript, _ bool, args []string) {
	a := scriptAgentOf(ts, args)
	ts.Check(a.cmd.Process.Signal(syscall.SIGTERM))
	<-a.done
}

func scriptNetImage(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: image FILE")
	}
	t := testOf(ts)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), netImage(t).DockerArchive(t, "net:1"), 0o600))
}

func netImage(t testing.TB) *imagetest.Image {
	return imagetest.Build(t, imagetest.Spec{Compression: "gzip",
		Config: v1.Config{Entrypoint: []string{"/net"}, User: "1000"},
		Layers: [][]byte{imagetest.Tar(t, imagetest.Dir("etc"), imagetest.File{Name: "net",
			Body: string(imagetest.Program(t, netProgram)), Mode: 0o755})}})
}

func scriptClean(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: clean NAME...")
	}
	live.EndReapers(filepath.Clean(ts.MkAbs(".")))
	for _, name := range args {
		h := ts.Value(keyHosts).(map[string]*scriptHost)[name]
		retry(ts, "host "+name+" is as it was:\n"+h.before, func(context.Context) (string, bool) {
			now, err := h.network()
			ts.Check(err)
			return now, now == h.before
		})
	}
}
