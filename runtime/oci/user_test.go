package oci_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/wait/waittest"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime"
)

// TestUnknownUserGetsAPasswdLine: a program whose user is a number that the image's passwd lacks finds itself there; the image's
// own users, and a passwd that the machine brings, stay as they are.
func TestUnknownUserGetsAPasswdLine(t *testing.T) {
	t.Parallel()
	r := one(t)
	for i, c := range []struct {
		user  string
		files []runtime.File
		want  string
	}{
		{"1234", nil, "1234 1234"},
		{"4321:33", nil, "4321 4321"},
		{"33", nil, "web 33"},
		{"", nil, "root 0"},
		{"1234", []runtime.File{{Path: "/etc/passwd", Data: []byte("me:x:1234:0::/:/bin/sh\n"), Mode: 0o644}},
			"me 1234"},
	} {
		s := runtime.Spec{Machine: fmt.Sprint("u", i), Attempt: 1, Fresh: true, SwapMB: -1, User: c.user,
			Files: c.files,
			Argv:  []string{"sleep", "1000"}, Env: []string{"PATH=/bin:/usr/bin"}}
		s.Resources.CPU, s.Resources.Memory = 500, 64
		if _, err := r.Start(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		_, err := r.Exec(t.Context(), s.Machine, runtime.ExecRequest{Stdout: &out, Stderr: &out,
			Argv: []string{"sh", "-c", "echo $(id -un) $(id -u)"}})
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.TrimSpace(out.String()); got != c.want {
			t.Errorf("as %q: %q, want %q", c.user, got, c.want)
		}
		if err := r.Remove(t.Context(), s.Machine); err != nil {
			t.Fatal(err)
		}
	}
}

// TestContainerTakesNoUserOfTheHost: a user of the host is refused for a container, by its start, by its wake and in
// advance, and taken for a program of the host.
func TestContainerTakesNoUserOfTheHost(t *testing.T) {
	t.Parallel()
	r := one(t)
	s := runtime.Spec{Machine: "m", Attempt: 1, Fresh: true, SwapMB: -1, Argv: []string{"id", "-u"}, User: "1234",
		Env: []string{"PATH=/bin:/usr/bin"}, As: &runtime.As{UID: 54321, GID: 54322}}
	s.Resources.CPU, s.Resources.Memory = 500, 64
	_, started := r.Start(t.Context(), s)
	_, woken := r.Wake(t.Context(), s)
	for how, err := range map[string]error{"start": started, "wake": woken, "check": r.Check(t.Context(), s)} {
		if !fault.Is(err, fault.Invalid) || fault.CodeOf(err) != "user" ||
			!strings.Contains(err.Error(), "of its image") {
			t.Errorf("%s: %v", how, err)
		}
	}
	s.Image, s.User = "souk/host", ""
	if _, err := r.Runtime.Start(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	var out []string
	waittest.Until(t, "it has said who it is", func() bool {
		out = nil
		err := r.Logs(t.Context(), "m", machine.LogQuery{}, func(l machine.LogLine) error {
			out = append(out, l.Text)
			return nil
		})
		return err == nil && len(out) > 0
	})
	if out[0] != "54321" {
		t.Errorf("a program of the host runs as %q", out)
	}
}
