package container

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/soukhq/souk/fault"
	souk "github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/reaper/frame"
)

// A script whose interpreter is missing, and a binary for another processor, are refused before the start.
func TestUnrunnableProgramIsRefusedBeforeStart(t *testing.T) {
	root := t.TempDir()
	elf := func(machine uint16) string {
		b := append([]byte("\x7fELF\x02\x01\x01"), make([]byte, 60)...)
		binary.LittleEndian.PutUint16(b[18:], machine)
		return string(b)
	}
	for name, text := range map[string]string{
		"bin/sh": elf(map[string]uint16{"amd64": 62, "arm64": 183}[runtime.GOARCH]), "ok": "#!/bin/sh\n",
		"bare":   "echo\n",
		"spaces": "#! /bin/sh -e\n", "unended": "#!/bin/sh", "crlf": "#!/bin/sh\r\necho\r\n",
		"bash": "#!/bin/bash -e\n", "crlfenv": "#!/usr/bin/env\r\n", "relative": "#!bin/nothing\n", "empty": "",
		"long": "#!/" + strings.Repeat("x", 400), "mips": elf(8), "in-mount": "#!/data/bin/tool\n",
	} {
		at := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(text), 0o755); err != nil { //nolint:gosec // programs
			t.Fatal(err)
		}
	}
	for program, want := range map[string]string{
		"/ok": "", "/bare": "", "/spaces": "", "/unended": "", "/bin/sh": "", "/relative": "", "/empty": "",
		"/long": "", "/in-mount": "",
		"/crlf": `the script /crlf in the image has lines that end in CRLF, so that its interpreter is "/bin/sh\r": ` +
			`save it with LF, then it is /bin/sh`,
		"/bash": "the interpreter of the script /bash does not exist in the image: its first line names /bin/bash; " +
			"install that, or change the line",
		"/crlfenv": `the script /crlfenv in the image has lines that end in CRLF, so that its interpreter is ` +
			`"/usr/bin/env\r": save it with LF, then it is /usr/bin/env`,
		"/mips": "/mips in the image is a program for mips, and this host is " + runtime.GOARCH + ": build it for that",
	} {
		if program == "/mips" && canEmulate() {
			continue
		}
		err := programIn(root, &frame.Start{Argv: []string{program}, Container: &frame.Container{},
			Mounts: []souk.Mount{{Path: "/data"}}})
		switch {
		case want == "" && err == nil:
		case err == nil || !fault.Is(err, fault.Precondition) || fault.As(err).Text != want:
			t.Errorf("%s: %v, want %q", program, err, want)
		}
	}
}
