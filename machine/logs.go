package machine

import "time"

// LogLine is one line of output. Cursor is opaque: give it back to go on behind it.
type LogLine struct {
	Cursor string    `json:"cursor"`
	At     time.Time `json:"at"`
	Stream string    `json:"stream"` // stdout or stderr
	Text   string    `json:"text"`   // without the newline; a line over 16 KiB comes in parts
}

// LogQuery chooses lines: those behind Cursor, else the last Tail lines (0: all kept). With Follow it waits for more
// until ctx ends or the machine is removed.
type LogQuery struct {
	Cursor string
	Tail   int
	Follow bool
}
