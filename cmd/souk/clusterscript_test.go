package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/soukhq/souk/bench/live"
	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/internal/wait"
	"github.com/soukhq/souk/internal/wait/waittest"
)

// scriptAgent is one agent of a script: its process, and how it is reached.
type scriptAgent struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
	dir  string
	said struct {
		Addr   string `json:"addr"`
		Wire   string `json:"wire"`
		Gossip string `json:"gossip"`
		Token  string `json:"token_file"`
	}
	client *client.Client
}

const keyAgents = "agents"

// TestClusterScriptsPass runs testdata/cluster: stories of several members, each a real process with real machines.
//
// Commands of its own, beside those of TestScriptsOfTheCommandLinePass:
//
//	agent NAME [FLAG...]   start souk agent in $WORK/NAME on free ports; set NAME_ADDR, NAME_WIRE, NAME_GOSSIP, and SOUK_TOKEN
//	gone NAME              wait until the agent has ended
//	kill9 NAME             kill -9 it
//	sees ADDR N            wait until the agent at ADDR knows what N workers have
//	until CMD...           run CMD until it succeeds; a minute at most
//	recipe FILE HEADING FIRST LAST [OLD=NEW]...   run what stands below a heading of a document: see scriptRecipe
//	dig ADDR NAME TYPE WANT, dig-odd ADDR   ask a DNS server; $DNS_A is an address that is free for one
func TestClusterScriptsPass(t *testing.T) {
	t.Parallel()
	runStories(t, "testdata/cluster", testscript.Params{
		Setup: func(env *testscript.Env) error {
			agents := map[string]*scriptAgent{}
			env.Values[keyAgents] = agents
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("DNS_A", freeAddr(t))
			env.Setenv("GORACE", os.Getenv("GORACE"))
			env.Defer(func() { endAgents(env.WorkDir, agents) })
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"agent": scriptStartAgent, "gone": scriptGone, "kill9": scriptKillAgent, "sees": scriptSees,
			"until":  scriptUntil,
			"recipe": scriptRecipe,
			"keep":   scriptKeep, "code": scriptCode, "dig": scriptDig, "dig-odd": scriptDigOdd,
		},
	})
}

// freeAddr returns a loopback address whose port was free a moment ago.
func freeAddr(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

func scriptStartAgent(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: agent NAME [FLAG...]")
	}
	startAgent(ts, args[0], nil, args[1:])
}

// startAgent starts an agent, by another command where its host takes one.
func startAgent(ts *testscript.TestScript, name string, by, args []string) {
	a := &scriptAgent{dir: ts.MkAbs(name), done: make(chan struct{})}
	flags := []string{
		"agent",
		"--json",
		"--dir",
		a.dir,
		"--addr",
		"127.0.0.1:0",
		"--wire",
		"127.0.0.1:0",
		"--gossip",
		"127.0.0.1:0",
		"--cpus",
		"4",
		"--memory",
		"1024",
	}
	exe, err := exec.LookPath("souk")
	ts.Check(err)
	argv := append(append(append([]string{}, by...), exe), append(flags, args...)...)
	a.cmd = exec.Command(argv[0], argv[1:]...) //nolint:gosec // this program
	a.cmd.Env = append(os.Environ(), "HOME="+ts.Getenv("HOME"))
	log, err := os.Create(a.dir + ".log")
	ts.Check(err)
	defer log.Close()
	a.cmd.Stderr = log
	out, err := a.cmd.StdoutPipe()
	ts.Check(err)
	ts.Check(a.cmd.Start())
	line, err := bufio.NewReader(out).ReadBytes('\n')
	go func() {
		defer close(a.done)
		_ = a.cmd.Wait() // how it ends is the script's business
	}()
	if err != nil {
		<-a.done
		ts.Fatalf("the agent did not become ready: %s", ts.ReadFile(a.dir+".log"))
	}
	ts.Check(json.Unmarshal(line, &a.said))
	token, err := cli.ReadLine(a.said.Token)
	ts.Check(err)
	a.client = client.New(a.said.Addr, token)
	ts.Value(keyAgents).(map[string]*scriptAgent)[name] = a
	for key, v := range map[string]string{"ADDR": a.said.Addr, "WIRE": a.said.Wire, "GOSSIP": a.said.Gossip,
		"TOKEN": token} {
		ts.Setenv(name+"_"+key, v)
	}
	ts.Setenv("SOUK_TOKEN", token)
}

func scriptAgentOf(ts *testscript.TestScript, args []string) *scriptAgent {
	if len(args) != 1 || ts.Value(keyAgents).(map[string]*scriptAgent)[args[0]] == nil {
		ts.Fatalf("the name of an agent is wanted, not %v", args)
	}
	return ts.Value(keyAgents).(map[string]*scriptAgent)[args[0]]
}

func scriptGone(ts *testscript.TestScript, _ bool, args []string) {
	a := scriptAgentOf(ts, args)
	select {
	case <-a.done:
	case <-time.After(time.Minute):
		ts.Fatalf("the agent did not end")
	}
}

func scriptKillAgent(ts *testscript.TestScript, _ bool, args []string) {
	a := scriptAgentOf(ts, args)
	ts.Check(a.cmd.Process.Kill())
	<-a.done
}

// retry asks until look is content, for as long as tests wait; then it says what was last seen.
func retry(ts *testscript.TestScript, what string, look func(ctx context.Context) (seen string, content bool)) {
	ctx, cancel := context.WithTimeout(context.Background(), waittest.Patience)
	defer cancel()
	var last string
	if wait.Until(ctx, 50*time.Millisecond, func() (so bool) { last, so = look(ctx); return so }) != nil {
		ts.Fatalf("waited %v in vain until %s; last seen: %s", waittest.Patience, what, last)
	}
}

func scriptSees(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: sees ADDR N")
	}
	cl := client.New(args[0], ts.Getenv("SOUK_TOKEN"))
	retry(ts, strings.Join(args, " "), func(ctx context.Context) (string, bool) {
		w, err := cl.Workers(ctx)
		return fmt.Sprintf("%d workers, %v", len(w.Workers), err), err == nil && len(w.Workers) == len(args[1])
	})
}

func scriptUntil(ts *testscript.TestScript, _ bool, args []string) {
	retry(ts, strings.Join(args, " "), func(context.Context) (string, bool) {
		err := ts.Exec(args[0], args[1:]...)
		return ts.ReadFile("stdout") + ts.ReadFile("stderr"), err == nil
	})
}

// endAgents ends machines, agents and reapers. It is a clean-up: what fails is passed over.
func endAgents(work string, agents map[string]*scriptAgent) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, a := range agents {
		_ = live.DestroyAll(ctx, a.client, "")
	}
	for _, a := range agents {
		_ = a.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-a.done:
		case <-time.After(10 * time.Second):
			_ = a.cmd.Process.Kill()
		}
	}
	live.EndReapers(filepath.Clean(work))
}
