package machine

import (
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/soukhq/souk/fault"
)

// LogLine is one line of output, or a part of one. Cursor is opaque: pass it to continue after the line.
type LogLine struct {
	Cursor string    `json:"cursor"`
	At     time.Time `json:"at"`
	Stream string    `json:"stream"`          // stdout or stderr
	Text   string    `json:"text"`            // without the newline; a line over 16 KiB is split into parts
	Bytes  []byte    `json:"bytes,omitempty"` // the original bytes if they are no UTF-8: Text then has replacements
	Part   bool      `json:"part,omitempty"`  // it does not end with a newline, or not yet
	Lost   int64     `json:"lost,omitempty"`  // bytes of output before this line that are not kept
}

// SetRaw sets the line's bytes, without its newline.
func (l *LogLine) SetRaw(b []byte) {
	if l.Text, l.Bytes = string(b), nil; !utf8.Valid(b) {
		l.Text, l.Bytes = strings.ToValidUTF8(l.Text, "\uFFFD"), slices.Clone(b)
	}
}

// Raw returns the line's bytes as written, with its newline if it had one.
func (l *LogLine) Raw() []byte {
	out := make([]byte, 0, len(l.Text)+len(l.Bytes)+1)
	if out = append(out, l.Bytes...); l.Bytes == nil {
		out = append(out, l.Text...)
	}
	if !l.Part {
		out = append(out, '\n')
	}
	return out
}

// LogQuery selects lines: those after Cursor, or else the last Tail lines (nil: all that are kept). With Follow it
// waits for more until ctx ends or the machine is removed. With Hold the program of a machine launched with Attach
// waits for this reader, so that nothing after Cursor is lost. A response ends after some MiB; the reader then asks
// again, with the cursor of its last line.
type LogQuery struct {
	Cursor string
	Tail   *int
	Follow bool
	Hold   bool
}

// WindowSize is the size of a terminal in characters. 0 is unknown.
type WindowSize struct {
	Rows uint16 `json:"rows"`
	Cols uint16 `json:"cols"`
}

// Terminal is the terminal of a command.
type Terminal struct {
	Size WindowSize `json:"size"`
	Term string     `json:"term,omitempty"` // its kind, for TERM; "": xterm
}

// DefaultTerm is the default kind of a terminal.
const DefaultTerm = "xterm"

// Check refuses, as Invalid, a kind of terminal that no terminal database can have.
func (t *Terminal) Check() error {
	odd := func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("+-._", c)
	}
	if len(t.Term) > 64 || strings.ContainsFunc(t.Term, odd) {
		return fault.New(fault.Invalid, fault.CodeTerminal,
			"%.80q is no kind of terminal: use up to 64 letters, digits and +-._, as in xterm-256color", t.Term)
	}
	return nil
}

// Env returns env with the terminal's TERM added.
func (t *Terminal) Env(env []string) []string {
	out := make([]string, 0, len(env)+1)
	for _, kv := range env {
		if !strings.HasPrefix(kv, "TERM=") {
			out = append(out, kv)
		}
	}
	if t.Term == "" {
		return append(out, "TERM="+DefaultTerm)
	}
	return append(out, "TERM="+t.Term)
}
