package main

import (
	_ "embed"
	"fmt"
	"os"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/soukhq/souk/runtime/image/imagetest"
)

// scriptImage is an image whose program prints a text, and stays if it gets an argument.
func scriptImage(t testing.TB, text string) *imagetest.Image {
	program := imagetest.Program(t, fmt.Sprintf("package main\nimport (\"os\"; \"time\")\n"+
		"func main() { println(%q); if len(os.Args) > 1 { time.Sleep(time.Hour) } }\n", text))
	return imagetest.Build(t, imagetest.Spec{Compression: "gzip", Config: v1.Config{Entrypoint: []string{"/say"}},
		Layers: [][]byte{imagetest.Tar(t, imagetest.Dir("etc"), imagetest.File{Name: "say", Body: string(program),
			Mode: 0o755})}})
}

// scriptPush puts an image into a registry of the script's, which serves on loopback. TEXT "-" only makes it one that does
// not answer any more.
func scriptPush(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: push NAME TEXT")
	}
	t := testOf(ts)
	r := pushed(ts)
	if args[1] == "-" {
		r.Misbehave(imagetest.Fault{Status: 503})
		return
	}
	r.Push(t, args[0], scriptImage(t, args[1]))
	ts.Setenv("REGISTRY", r.Host)
}

// pushed is the registry of a script that push uses. The first push makes it, for no script may end with another's.
func pushed(ts *testscript.TestScript) *imagetest.Registry {
	own := ts.Value(keyPushed).(map[string]*imagetest.Registry)
	r := own[ts.Getenv("REGISTRY")]
	if r == nil {
		r = imagetest.NewRegistry(testOf(ts))
		own[r.Host] = r
	}
	return r
}

func scriptBusybox(ts *testscript.TestScript, neg bool, args []string) {
	t := testOf(ts)
	if neg || len(args) < 1 {
		ts.Fatalf("usage: busybox FILE [VOLUME...]")
	}
	cfg := v1.Config{Volumes: map[string]struct{}{}}
	for _, v := range args[1:] {
		cfg.Volumes[v] = struct{}{}
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), imagetest.BusyboxOf(t, cfg).DockerArchive(t, "bb:1"), 0o600))
}

func scriptSaved(ts *testscript.TestScript, neg bool, args []string) {
	t := testOf(ts)
	if neg || len(args) != 3 {
		ts.Fatalf("usage: saved FILE NAME TEXT")
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), scriptImage(t, args[2]).DockerArchive(t, args[1]), 0o600))
}

//go:embed testdata/hold/main.go
var hold string

func scriptHold(ts *testscript.TestScript, neg bool, args []string) {
	t := testOf(ts)
	if neg || len(args) != 1 {
		ts.Fatalf("usage: hold FILE")
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), imagetest.Program(t, hold), 0o755))
}

//go:embed testdata/database/main.go
var database string

func scriptDatabase(ts *testscript.TestScript, neg bool, args []string) {
	t := testOf(ts)
	if neg || len(args) != 1 {
		ts.Fatalf("usage: database FILE")
	}
	program := imagetest.Program(t, database)
	img := imagetest.Build(t, imagetest.Spec{Compression: "gzip", Config: v1.Config{Entrypoint: []string{"/db"}},
		Layers: [][]byte{imagetest.Tar(t, imagetest.Dir("etc"), imagetest.File{Name: "db", Body: string(program),
			Mode: 0o755})}})
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), img.DockerArchive(t, "db:1"), 0o600))
}
