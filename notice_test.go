package souk_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var updateNotice = flag.Bool("update-notice", false, "rewrite NOTICE")

// licences tells licences apart by words that only one of them has. A module whose licence is none of these fails the
// test: read it first.
var licences = []struct{ words, name string }{
	{"Mozilla Public License", "MPL-2.0"},
	{"Apache License", "Apache-2.0"},
	{"Permission to use, copy, modify, and/or distribute this software", "ISC"},
	{"Permission to use, copy, modify, and distribute this software", "ISC"},
	{"Permission is hereby granted, free of charge", "MIT"},
	{"released into the public domain with CC0 1.0", "CC0-1.0"},
	{"to endorse or promote products derived from", "BSD-3-Clause"},
	{"may not be used to endorse", "BSD-3-Clause"},
	{"Redistribution and use in source and binary forms", "BSD-2-Clause"},
}

const noticeHead = `souk
Licensed under the Apache License, Version 2.0 (see LICENSE).

The program souk contains these modules, each under its own licence. The source of each is at its path, at its version;
"go mod download" fetches it, licence and all. This file is written by go test . -run Notice -update-notice.

`

// NOTICE names every module that the program contains, and what those that have a notice want to be said.
func TestNoticeListsEveryLinkedModule(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "-f",
		"{{with .Module}}{{if not .Main}}{{.Path}}\t{{.Version}}\t{{.Dir}}{{end}}{{end}}", "./cmd/souk").Output()
	if err != nil {
		t.Fatal(err)
	}
	modules := strings.Fields(strings.ReplaceAll(string(out), "\t", "|"))
	slices.Sort(modules)
	var list, said bytes.Buffer
	for _, m := range slices.Compact(modules) {
		f := strings.Split(m, "|")
		licence := licenceOf(t, f[2])
		if licence == "" {
			t.Errorf("the licence of %s is not known; read it, and tell it in licences", f[0])
		}
		fmt.Fprintf(&list, "%-14s %s %s\n", licence, f[0], f[1])
		if raw, err := os.ReadFile(filepath.Join(f[2], "NOTICE")); err == nil {
			fmt.Fprintf(&said, "\n--- %s\n\n%s\n", f[0], bytes.TrimSpace(raw))
		}
	}
	want := append([]byte(noticeHead), append(list.Bytes(), said.Bytes()...)...)
	if *updateNotice {
		if err := os.WriteFile("NOTICE", want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if have, err := os.ReadFile("NOTICE"); err != nil || !bytes.Equal(have, want) {
		t.Errorf("NOTICE is not what the program contains (%v); run go test . -run Notice -update-notice", err)
	}
}

// licenceOf returns the name of the licence in a module's directory; "": none is known.
func licenceOf(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		name := strings.ToUpper(e.Name())
		if !strings.HasPrefix(name, "LICENSE") && !strings.HasPrefix(name, "LICENCE") &&
			!strings.HasPrefix(name, "COPYING") {
			continue
		}
		raw, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		text := strings.Join(strings.Fields(string(raw)), " ")
		for _, l := range licences {
			if strings.Contains(text, l.words) {
				return l.name
			}
		}
	}
	return ""
}
