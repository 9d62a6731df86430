package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/soukhq/souk/cli"
)

// screens are the commands whose output is held to testdata/screens at three widths.
var screens = []string{"ps", "status web-frontend", "status --app shop", "releases shop",
	"node ls", "workers", "members", "job ls",
	"job status parameter-sweep", "job why parameter-sweep", "job tasks parameter-sweep",
	"job report parameter-sweep", "job report", "job report --since 2026-03-01 --by day,owner",
	"policy ls", "apps", "volumes", "secrets list", "image ls",
	"top --once", "events web-frontend", "explain web-frontend",
	"plan --memory 2g -- /bin/true", "why-not --memory 2g -- /bin/true", "node inspect fra-2-with-a-long-name",
	"run --help", "submit --help"}

// timeStamp is what changes from one run of a test to the next.
var timeStamp = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`)

// TestScreensFitTheTerminalWidth: nothing that is printed on a terminal of 40, 80 or 200 columns is wider than it, and what is printed
// is as testdata/screens has it. go test ./cmd/souk -run ScreensFit -update writes it anew.
func TestScreensFitTheTerminalWidth(t *testing.T) {
	addr := fixedSouk(t)
	for _, width := range []int{40, 80, 200} {
		var all strings.Builder
		for _, line := range screens {
			var out bytes.Buffer
			argv := strings.Fields(line)
			c := &cli.Env{In: strings.NewReader(""), Out: &out, Err: &out, Width: width,
				Getenv: func(k string) string { return map[string]string{"SOUK_ADDR": addr}[k] }}
			if code := c.Run(t.Context(), rootFor(c, argv), argv); code != 0 {
				t.Errorf("souk %s ends with %d: %s", line, code, out.String())
			}
			shown := timeStamp.ReplaceAllString(out.String(), fixedAt.Format("2006-01-02T15:04:05Z"))
			for text := range strings.Lines(shown) {
				if n := cli.TextWidth(strings.TrimSuffix(text, "\n")); n > width {
					t.Errorf("souk %s at %d columns has a line of %d: %q", line, width, n, text)
				}
			}
			fmt.Fprintf(&all, "== souk %s\n%s\n", line, shown)
		}
		file := filepath.Join("testdata", "screens", fmt.Sprintf("%d.txt", width))
		if *update {
			if err := os.WriteFile(file, []byte(all.String()), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), all.String()); diff != "" {
			t.Errorf("%s (-file +now); write it with go test ./cmd/souk -run ScreensFit -update\n%s", file, diff)
		}
	}
}

// TestHelpFits80Columns: no line of any help is longer than 80 columns, or than the terminal where that is narrower. Only a word
// that cannot be broken may be.
func TestHelpFits80Columns(t *testing.T) {
	for _, width := range []int{0, 40, 80, 200} {
		var out bytes.Buffer
		c := &cli.Env{Out: &out, Err: io.Discard, Width: width, Getenv: func(string) string { return "" }}
		root := root(c)
		root.SetOut(&out)
		most := 80
		if width > 0 {
			most = min(width, most)
		}
		var each func(cmd *cobra.Command)
		each = func(cmd *cobra.Command) {
			out.Reset()
			if err := cmd.Help(); err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(out.String()) {
				line = strings.TrimRight(line, "\n")
				words := strings.Fields(strings.TrimSuffix(line, `\`))
				if cli.TextWidth(line) > most && len(words) > 1 {
					t.Errorf("at %d columns, %s --help: %q", width, cmd.CommandPath(), line)
				}
			}
			for _, sub := range cmd.Commands() {
				each(sub)
			}
		}
		each(root)
	}
}

// onTerminal starts souk on a terminal of a size, whose other end is returned: what is written there is typed, and what
// is read was shown. was is how the terminal was before.
func onTerminal(t *testing.T, addr string, size unix.Winsize, argv ...string) (cmd *exec.Cmd, end *os.File,
	was unix.Termios) {
	t.Helper()
	end, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("there are no terminals here: ", err)
	}
	t.Cleanup(func() { end.Close() })
	fd := int(end.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &size); err != nil {
		t.Fatal(err)
	}
	screen, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("there are no terminals here: ", err)
	}
	defer screen.Close()
	modes, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	cmd = exec.Command(soukExe(t), argv...)
	cmd.Env = append(os.Environ(), "SOUK_ADDR="+addr, "COLUMNS=")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = screen, screen, screen
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, end, *modes
}

// TestTopRestoresScreenAndCursor: souk top draws on a screen of its own without a cursor, within the terminal's size, and
// however it ends the user's screen and cursor are back.
func TestTopRestoresScreenAndCursor(t *testing.T) {
	addr := fixedSouk(t)
	const begin, done = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
	for name, stop := range map[string]func(*exec.Cmd, *os.File) error{
		"q":       func(_ *exec.Cmd, end *os.File) error { _, err := end.WriteString("q"); return err },
		"^C":      func(_ *exec.Cmd, end *os.File) error { _, err := end.WriteString("\x03"); return err },
		"SIGTERM": func(cmd *exec.Cmd, _ *os.File) error { return cmd.Process.Signal(syscall.SIGTERM) },
	} {
		t.Run(name, func(t *testing.T) {
			cmd, end, _ := onTerminal(t, addr, unix.Winsize{Row: 12, Col: 40}, "top", "--every", "1h")
			var shown strings.Builder
			seen := bufio.NewReader(end)
			stopped := false
			for {
				r, _, err := seen.ReadRune()
				if err != nil {
					break // EIO: the program has ended
				}
				shown.WriteRune(r)
				if !stopped && strings.HasSuffix(shown.String(), "q quit") {
					if stopped = true; stop(cmd, end) != nil {
						t.Fatal("it cannot be ended")
					}
				}
			}
			err := cmd.Wait()
			text := shown.String()
			if name != "SIGTERM" && err != nil {
				t.Errorf("it ends with %v", err)
			}
			if !strings.HasPrefix(text, begin) || strings.Count(text, done) != 1 ||
				!strings.HasSuffix(strings.TrimRight(text, "\r\n"), done) {
				t.Errorf("%q", text)
			}
			for _, frame := range strings.Split(text, "\x1b[H")[1:] {
				lines := strings.Split(escapes.ReplaceAllString(frame, ""), "\r\n")
				if len(lines) > 12 {
					t.Errorf("%d lines on a screen of 12:\n%s", len(lines), frame)
				}
				for _, l := range lines {
					if cli.TextWidth(l) > 40 {
						t.Errorf("%q is wider than 40", l)
					}
				}
			}
			if !strings.Contains(text, "fra-1") {
				t.Errorf("no worker is shown: %q", text)
			}
		})
	}
}

// escapes are what moves the cursor, and clears.
var escapes = regexp.MustCompile(`\x1b\[[?0-9;]*[a-zA-Z]`)
