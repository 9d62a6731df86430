package main

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/soukhq/souk/internal/needs"
	"github.com/soukhq/souk/runtime/hostnet"
	"github.com/soukhq/souk/runtime/image/imagetest"
	"github.com/soukhq/souk/runtime/oci"
)

// envApart says that the test runs in a network namespace of its own, which is its host.
const envApart = "SOUK_TEST_APART"

// TestNetworkScriptsPass runs testdata/network as TestScriptsOfTheCommandLinePass runs testdata/script, in a network namespace of its own: what
// is done to the host's network is done to that one.
func TestNetworkScriptsPass(t *testing.T) {
	t.Parallel()
	if apart(t, nil) {
		runScripts(t, "testdata/network")
	}
}

// apart runs a test of containers anew in a network namespace of its own, and says whether this is there. The test is
// skipped where lacks, or something else that it takes, is missing, and fails in CI.
func apart(t *testing.T, lacks error) bool {
	t.Helper()
	err := lacks
	if err == nil {
		err = oci.Able(oci.DefaultEngine)
	}
	if err == nil {
		err = hostnet.Able()
	}
	if err == nil {
		err = needs.Lacks("ip", "unshare")
	}
	if err != nil {
		needs.Skip(t, err)
	}
	if os.Getenv(envApart) != "" {
		return true
	}
	cmd := exec.CommandContext(t.Context(), "unshare", "-n", "sh", "-c", `ip link set lo up && exec "$@"`, "sh",
		os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.count=1", fmt.Sprintf("-update=%v", *update))
	cmd.Env = append(os.Environ(), envApart+"=1")
	out, err := cmd.CombinedOutput()
	ran := regexp.MustCompile(`--- PASS: ` + t.Name() + `\b`).Match(out)
	if err != nil || !ran {
		t.Fatalf("%v\n%s", err, out)
	}
	return false
}

// netProgram serves its second argument on port 80, or where its third says, or prints what the address that is its
// second argument answers, also by IPv6 alone, or asks there again and again until there is no answer.
const netProgram = `package main

import ("context"; "fmt"; "io"; "net"; "net/http"; "os"; "time")

func main() {
	if os.Args[1] == "serve" {
		http.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, os.Args[2]) })
		panic(http.ListenAndServe(append(os.Args, ":80")[3], nil))
	}
	c := http.Client{Timeout: 10 * time.Second}
	if os.Args[1] == "ask6" {
		c.Transport = &http.Transport{DialContext: func(ctx context.Context, _, at string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp6", at)
		}}
	}
	for {
		r, err := c.Get(os.Args[2])
		if err != nil {
			fmt.Println("no answer:", err)
			os.Exit(1)
		}
		b, _ := io.ReadAll(r.Body)
		fmt.Print(string(b))
		if os.Args[1] != "probe" {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}
`

// scriptRegistry starts a registry that is a process of its own, and puts an image of busybox there.
func scriptRegistry(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: registry")
	}
	t := testOf(ts)
	r := imagetest.NewProcess(t)
	r.Push(t, "team/app:1", imagetest.Busybox(t, imagetest.Dir("www"),
		imagetest.File{Name: "www/index.html", Body: "I am served\n"}))
	ts.Setenv("REGISTRY", r.Host)
	registries.Store(ts, r)
}

// registries are those that scripts have started.
var registries sync.Map //nolint:gochecknoglobals // a script's commands have no other place

func scriptNoRegistry(ts *testscript.TestScript, neg bool, args []string) {
	r, ok := registries.LoadAndDelete(ts)
	if neg || len(args) != 0 || !ok {
		ts.Fatalf("usage: noregistry, after registry")
	}
	r.(*imagetest.Process).End()
}

// scriptPushNet puts an image of it into a registry.
func scriptPushNet(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: pushnet NAME")
	}
	t := testOf(ts)
	r := imagetest.NewRegistry(t)
	r.Push(t, args[0], netImage(t))
	ts.Setenv("REGISTRY", r.Host)
}
