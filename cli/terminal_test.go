package cli

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// terminal opens a terminal of its own: what is written to screen is read from seen.
func terminal(t *testing.T) (screen *os.File, seen *bufio.Reader) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("there are no terminals here: ", err)
	}
	t.Cleanup(func() { master.Close() })
	fd := int(master.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	screen, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("there are no terminals here: ", err)
	}
	t.Cleanup(func() { screen.Close() })
	return screen, bufio.NewReader(master)
}

// hostile is what others may have written into names, reasons and errors: it clears the screen, sets the title, turns
// the line round, and hides behind bytes that are no UTF-8.
const hostile = "a\x1b[2Jb\x1b]0;title\x07c\u202ed\u009b2Je\x9b2Jf\rg"

// TestNobodyMovesTheTerminalCursorByOutput: nothing of what a command prints moves the cursor of the terminal that it is read on,
// in lines, tables and errors. Into a file all goes as it is, and a machine's own output always does.
func TestNobodyMovesTheTerminalCursorByOutput(t *testing.T) {
	screen, seen := terminal(t)
	c := &Env{Out: screen, Err: screen, Getenv: func(string) string { return "" }}
	root := &cobra.Command{Use: "x", SilenceErrors: true, SilenceUsage: true}
	root.RunE = func(*cobra.Command, []string) error {
		fmt.Fprintf(c.Out, "line\t%s\n", hostile)
		c.Table(Columns("HEAD"), [][]Cell{Cells(hostile)})
		fmt.Fprintln(Raw(c.Out), "own\x1b[2Joutput")
		return errors.New(hostile)
	}
	c.Run(t.Context(), root, nil)
	fmt.Fprintln(screen, "the end")
	var lines []string
	for len(lines) == 0 || !strings.HasPrefix(lines[len(lines)-1], "the end") {
		line, err := seen.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, strings.TrimRight(line, "\r\n"))
	}
	for _, line := range lines {
		own := strings.HasPrefix(line, "own")
		if bad := strings.ContainsAny(line, "\x1b\x07\r\u202e\u009b") || strings.Contains(line, "\x9b2"); bad != own {
			t.Errorf("%q", line)
		}
	}
	if text := strings.Join(lines, "\n"); strings.Count(text, "title") != 3 {
		t.Errorf("the texts are not all there:\n%s", text)
	}

	var file bytes.Buffer
	c = &Env{Out: &file, Err: &file, Getenv: c.Getenv}
	c.Run(t.Context(), &cobra.Command{Use: "x", RunE: func(*cobra.Command, []string) error {
		_, err := fmt.Fprint(c.Out, hostile)
		return err
	}}, nil)
	if file.String() != hostile {
		t.Errorf("a file gets %q", file.String())
	}
}
