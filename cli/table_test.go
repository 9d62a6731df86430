package cli

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

func tableAt(width int, columns []Column, rows ...[]Cell) string {
	var out bytes.Buffer
	(&Env{Out: &out, Err: &out, Width: width, Getenv: func(string) string { return "" }}).Table(columns, rows)
	return out.String()
}

// TestTableCutsFlexibleColumnsFirst: what may be cut is cut first, then columns go in their order, and what is wide uses the room there is.
func TestTableCutsFlexibleColumnsFirst(t *testing.T) {
	columns := []Column{Drop("ID", 2), Keep("NAME").Cut(4), Drop("AGE", 1), Keep("COMMAND").Cut(6)}
	row := Cells("d891275c2e5118", "web-frontend", "3s", "/bin/sleep 1000 and more")
	whole := "ID              NAME          AGE  COMMAND\n" +
		"d891275c2e5118  web-frontend  3s   /bin/sleep 1000 and more\n"
	for _, x := range []struct {
		width int
		want  string
	}{
		{0, whole},
		{59, whole},
		{50, "ID              NAME          AGE  COMMAND\nd891275c2e5118  web-frontend  3s   /bin/sleep 100…\n"},
		{34, "ID              NAME  AGE  COMMAND\nd891275c2e5118  web…  3s   /bin/s…\n"},
		{32, "ID              NAME     COMMAND\nd891275c2e5118  web-fr…  /bin/s…\n"},
		{20, "NAME       COMMAND\nweb-fron…  /bin/sle…\n"},
		{8, "NA…  CO…\nwe…  /b…\n"},
		{1, "…\n…\n"},
	} {
		got := tableAt(x.width, columns, row)
		if got != x.want {
			t.Errorf("at %d columns:\n%swant:\n%s", x.width, got, x.want)
		}
	}
}

// TestNoTableIsWiderThanTheTerminal whatever its columns and texts are.
func TestNoTableIsWiderThanTheTerminal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 10).Draw(t, "columns")
		columns, row := make([]Column, n), make([]Cell, n)
		for i := range columns {
			columns[i] = Column{Head: strings.Map(Printable, rapid.StringN(0, 12, -1).Draw(t, "head")),
				Least: rapid.IntRange(0, 12).Draw(t, "least"), Order: rapid.IntRange(0, 4).Draw(t, "order")}
			if i == n-1 && rapid.Bool().Draw(t, "reason") {
				columns[i] = Reason(columns[i].Head)
			}
			row[i].Text = rapid.SampledFrom([]string{"", "short", "机器的名字很长很长很长", strings.Repeat("long ", 20)}).Draw(t,
				"text")
		}
		width := rapid.IntRange(2, 200).Draw(t, "width")
		for line := range strings.Lines(tableAt(width, columns, row)) {
			if TextWidth(strings.TrimSuffix(line, "\n")) > width || !utf8.ValidString(line) {
				t.Fatalf("%q is wider than %d", line, width)
			}
		}
	})
}

// TestReasonsAreWrappedWithoutLosingWords: no word of a reason is lost, at any width: it is broken beside its row, or stands below.
func TestReasonsAreWrappedWithoutLosingWords(t *testing.T) {
	columns := []Column{Keep("REPLICA"), Drop("WORKER", 1).Cut(6), Reason("WHY")}
	rows := [][]Cell{Cells("web/0", "fra-1-with-a-name", "memory: wanted 512 MiB, had 100 MiB free of 900 MiB"),
		Cells("web/1", "fra-2", ""), Cells("web/2", "fra-3", "none")}
	for _, x := range []struct {
		width int
		want  string
	}{
		{0, "REPLICA  WORKER             WHY\n" +
			"web/0    fra-1-with-a-name  memory: wanted 512 MiB, had 100 MiB free of 900 MiB\n" +
			"web/1    fra-2\nweb/2    fra-3              none\n"},
		{60, "REPLICA  WORKER             WHY\n" +
			"web/0    fra-1-with-a-name  memory: wanted 512 MiB, had 100\n" +
			"                            MiB free of 900 MiB\n" +
			"web/1    fra-2\nweb/2    fra-3              none\n"},
		{50, "REPLICA  WORKER\n" +
			"web/0    fra-1-with-a-name\n" +
			"    memory: wanted 512 MiB, had 100 MiB free of\n    900 MiB\n" +
			"web/1    fra-2\nweb/2    fra-3\n    none\n"},
		{36, "REPLICA  WORKER\n" +
			"web/0    fra-1-with-a-name\n" +
			"    memory: wanted 512 MiB, had 100\n    MiB free of 900 MiB\n" +
			"web/1    fra-2\nweb/2    fra-3\n    none\n"},
	} {
		if got := tableAt(x.width, columns, rows...); got != x.want {
			t.Errorf("at %d columns:\n%swant:\n%s", x.width, got, x.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		words := rapid.SliceOfN(rapid.StringMatching(`[a-z:,]{1,12}`), 1, 40).Draw(t, "words")
		width := rapid.IntRange(18, 120).Draw(t, "width")
		got := strings.Fields(tableAt(width, columns, Cells("0", "1", strings.Join(words, " "))))
		if got = got[len(got)-len(words):]; strings.Join(got, " ") != strings.Join(words, " ") {
			t.Fatalf("at %d columns %q is %q", width, words, got)
		}
	})
}

// TestWidthComesFromTerminalUnlessOverridden, unless COLUMNS or --wide do; a file takes lines of any length.
func TestWidthComesFromTerminalUnlessOverridden(t *testing.T) {
	screen, _ := terminal(t)
	if err := unix.IoctlSetWinsize(int(screen.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 77}); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{}
	c := &Env{Out: screen, Err: screen, Getenv: func(k string) string { return env[k] }}
	if got := c.Columns(); got != 77 {
		t.Errorf("%d columns, want 77", got)
	}
	env["COLUMNS"] = "55"
	if got := c.Columns(); got != 55 {
		t.Errorf("%d columns, want 55", got)
	}
	c.wide = true
	if got := c.Columns(); got != 0 {
		t.Errorf("%d columns with --wide, want no limit", got)
	}
	c.wide, c.Out = false, new(bytes.Buffer)
	if got := c.Columns(); got != 0 {
		t.Errorf("%d columns of a file, want no limit", got)
	}
}

func TestWrapBreaksLinesAtSpaces(t *testing.T) {
	for _, x := range []struct {
		text string
		most int
		want string
	}{
		{"as it is", 0, "as it is"},
		{"one two three", 8, "one two\nthree"},
		{"  one two three", 9, "  one two\n  three"},
		{"  name   a text of words\nnext", 18, "  name   a text of\n         words\nnext"},
		{"      --a-long-flag string   what it is", 24, "      --a-long-flag\n          string\n          what it is"},
		{"abcdefghij k", 4, "abcd\nefgh\nij k"},
	} {
		if got := Wrap(x.text, x.most); got != x.want {
			t.Errorf("%q at %d: %q, want %q", x.text, x.most, got, x.want)
		}
	}
}

// TestWrapFitsTheWidthAndKeepsEveryWord: any wrapped text fits the width and keeps every word.
func TestWrapFitsTheWidthAndKeepsEveryWord(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`( {0,6}[a-zü机]{0,20}( {1,3}[a-z机]{1,30}){0,8}\n?){0,3}`).Draw(t, "text")
		most := rapid.IntRange(2, 90).Draw(t, "most")
		got := Wrap(text, most)
		for line := range strings.Lines(got) {
			if TextWidth(strings.TrimSuffix(line, "\n")) > most {
				t.Fatalf("%q is wider than %d", line, most)
			}
		}
		flat := strings.NewReplacer(" ", "", "\n", "").Replace
		if flat(got) != flat(text) {
			t.Fatalf("%q became %q", text, got)
		}
	})
}

// TestWrappedShellExampleIsTheSameCommand: an example that is broken is still the same command.
func TestWrappedShellExampleIsTheSameCommand(t *testing.T) {
	got := wrapShell("  souk run --name web --env A='b c d' -- /bin/sleep 100", 30)
	want := "  souk run --name web --env \\\n      A='b c d' -- \\\n      /bin/sleep 100"
	if got != want {
		t.Errorf("%s\nwant:\n%s", got, want)
	}
}
