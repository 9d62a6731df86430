package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/soukhq/souk/bench/live"
	"github.com/soukhq/souk/internal/atrest"
	"github.com/soukhq/souk/internal/needs"
	"github.com/soukhq/souk/runtime/oci"
)

// update rewrites what is generated: docs/reference and the transcript in README.md.
var update = flag.Bool("update", false, "rewrite docs/reference and the transcript in README.md")

// TestMain lets this test binary be souk, too: scripts and helpers start it under that name, so that all that runs in
// them is the code under test, with the race detector when the test has it.
func TestMain(m *testing.M) {
	// A program with the race detector waits a second before it ends, unless it is told not to. Scripts end hundreds.
	if err := os.Setenv("GORACE", "atexit_sleep_ms=0 "+os.Getenv("GORACE")); err != nil {
		panic(err)
	}
	testscript.Main(m, map[string]func(){"souk": func() { os.Exit(realMain()) }, "souk-host": hostMain})
}

// soukExe returns the program that TestMain put on the PATH.
func soukExe(t testing.TB) string {
	t.Helper()
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		if exe := filepath.Join(dir, "souk"); strings.Contains(dir, "testscript-main") {
			return exe
		}
	}
	t.Fatal("TestMain put no souk on the PATH")
	return ""
}

const keyOwn = "own-souk"

// TestScriptsOfTheCommandLinePass runs testdata/script: each is a story of the command line against a real souk dev with real processes.
//
// Commands of its own:
//
//	dev [FLAG...]   start souk dev in $WORK/d, on a free port, and set SOUK_ADDR and SOUK_TOKEN
//	kill9           kill -9 it
//	down            end it as ^C does
//	keep NAME       put the last command's stdout, trimmed, into $NAME
//	code N CMD...   run CMD and want exactly this exit code
//	push NAME TEXT  put an image into a registry of this test, and set $REGISTRY; the program in it prints TEXT
//	busybox FILE    write an image of busybox to FILE as docker save does, called bb:1
//	database FILE   write an image of testdata/database, called db:1
//	hold FILE       write a program there that serves requests which last, testdata/hold
//	pushnet NAME    put an image there whose program serves a text and asks for those of others
//	freeport NAME   set $NAME to a TCP port of this host that nobody listens at
//	until CMD...    run CMD until it succeeds, for a while
//	saved FILE NAME TEXT
//	                write an image to FILE as docker save does
//	needs PROGRAM.. skip the script where one is missing
//
// and the conditions [containers] and [sandboxes], this host can run them, by runc and by runsc, and [web], it has curl
// and busybox's small web server.
func TestScriptsOfTheCommandLinePass(t *testing.T) {
	t.Parallel()
	runScripts(t, "testdata/script")
}

func runScripts(t *testing.T, dir string) {
	runStories(t, dir, testscript.Params{
		Setup: func(env *testscript.Env) error {
			own := &live.Souk{Exe: soukExe(t), State: filepath.Join(env.WorkDir, "d")}
			env.Values[keyOwn] = own
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("GORACE", os.Getenv("GORACE"))
			env.Setenv("XDG_STATE_HOME", filepath.Join(env.WorkDir, "state"))
			env.Defer(func() {
				if own.Ready.Addr != "" {
					own.End()
				}
			})
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"dev":        scriptDev,
			"kill9":      scriptKill,
			"down":       scriptDown,
			"keep":       scriptKeep,
			"code":       scriptCode,
			"push":       scriptPush,
			"saved":      scriptSaved,
			"database":   scriptDatabase,
			"busybox":    scriptBusybox,
			"hold":       scriptHold,
			"pushnet":    scriptPushNet,
			"until":      scriptUntil,
			"freeport":   scriptFreePort,
			"registry":   scriptRegistry,
			"noregistry": scriptNoRegistry,
		},
		Condition: func(name string) (bool, error) {
			if name == "web" {
				err := canServeWeb()
				if err != nil && os.Getenv("CI") == "true" {
					return false, err
				}
				return err == nil, nil
			}
			engine, is := map[string]string{"containers": oci.DefaultEngine, "sandboxes": oci.Sandbox}[name]
			if !is {
				return false, fmt.Errorf("there is no condition %s", name)
			}
			err := oci.Able(engine)
			if err != nil && os.Getenv("CI") == "true" {
				return false, err
			}
			return err == nil, nil
		},
	})
}

func scriptDev(ts *testscript.TestScript, neg bool, args []string) {
	own := ts.Value(keyOwn).(*live.Souk)
	if neg || own.Cmd != nil {
		ts.Fatalf("usage: dev [FLAG...], and only once at a time")
	}
	var log bytes.Buffer
	own.Args, own.Stderr, own.Env = args, &log, []string{atrest.EnvFile + "=" + ts.Getenv(atrest.EnvFile)}
	if err := own.Start(); err != nil {
		ts.Fatalf("%v\n%s", err, log.String())
	}
	ts.Setenv("SOUK_ADDR", own.Ready.Addr)
	ts.Setenv("SOUK_TOKEN", own.Token)
}

// canServeWeb says what a test lacks that has a machine serve HTTP and asks it.
func canServeWeb() error {
	if err := needs.Lacks("curl", "busybox"); err != nil {
		return err
	}
	out, err := exec.Command("busybox", "--list").Output()
	if err == nil && !slices.Contains(strings.Fields(string(out)), "httpd") {
		err = errors.New("busybox has no httpd")
	}
	return err
}

func scriptFreePort(ts *testscript.TestScript, _ bool, args []string) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	_, port, err := net.SplitHostPort(ln.Addr().String())
	ts.Check(errors.Join(err, ln.Close()))
	ts.Setenv(args[0], port)
}

func scriptKill(ts *testscript.TestScript, _ bool, _ []string) { ts.Value(keyOwn).(*live.Souk).Kill() }

func scriptDown(ts *testscript.TestScript, _ bool, _ []string) {
	ts.Check(ts.Value(keyOwn).(*live.Souk).Stop())
}

func scriptKeep(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 1 {
		ts.Fatalf("usage: keep NAME")
	}
	ts.Setenv(args[0], strings.TrimSpace(ts.ReadFile("stdout")))
}

func scriptCode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N CMD...")
	}
	// The shell tells the code of what it ran; its own stdout and stderr are the command's.
	err := ts.Exec(
		"/bin/sh",
		append(
			[]string{
				"-c",
				`want=$1; shift; "$@"; got=$?; [ "$got" = "$want" ] || { echo "exit code $got, want $want" >&2; exit 1; }`,
				"sh",
			},
			args...)...)
	if err != nil {
		ts.Fatalf("%v: %s", args, ts.ReadFile("stderr"))
	}
}
