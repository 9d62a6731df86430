package machine

import (
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/soukhq/souk/fault"
)

// LogLine is one line of output, or a part of one. Cursor is opaque: give it back to go on behind it.
type LogLine struct {
	Cursor string    `json:"cursor"`
	At     time.Time `json:"at"`
	Stream string    `json:"stream"`          // stdout or stderr
	Text   string    `json:"text"`            // without the newline; a line over 16 KiB comes in parts
	Bytes  []byte    `json:"bytes,omitempty"` // what was written, where it is no UTF-8: Text has replacements then
	Part   bool      `json:"part,omitempty"`  // no newline was written behind it, or not yet
	Lost   int64     `json:"lost,omitempty"`  // bytes of output between the line before and this one that are not kept
}

// SetRaw sets what was written, without its newline.
func (l *LogLine) SetRaw(b []byte) {
	if l.Text, l.Bytes = string(b), nil; !utf8.Valid(b) {
		l.Text, l.Bytes = strings.ToValidUTF8(l.Text, "\uFFFD"), slices.Clone(b)
	}
}

// Raw returns what was written, byte for byte, with its newline if it had one.
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

// LogQuery chooses lines: those behind Cursor, or else the last Tail lines (nil: all that are kept). With Follow it
// waits for more until ctx ends or the machine is removed. With Hold the program of a machine that was launched with
// Attach waits for this reader, so that nothing behind Cursor is lost. The answer ends after some MiB; the reader then
// asks again, with the cursor of the last line that it has.
type LogQuery struct {
	Cursor string
	Tail   *int
	Follow bool
	Hold   bool
}

// WindowSize is how many characters a terminal shows. 0 is not known.
type WindowSize struct {
	Rows uint16 `json:"rows"`
	Cols uint16 `json:"cols"`
}

// Terminal is the terminal that a command is given.
type Terminal struct {
	Size WindowSize `json:"size"`
	Term string     `json:"term,omitempty"` // its kind, for TERM; "": xterm
}

// DefaultTerm is the kind of a terminal that does not say.
const DefaultTerm = "xterm"

// Check refuses a kind of terminal that no database of terminals can have: Invalid.
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

// Env returns the environment of a command that has the terminal.
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
