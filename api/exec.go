package api

import "github.com/soukhq/souk/machine"

// ExecRequest is a command to run in a machine. Exactly one of Cmd and Command is set.
type ExecRequest struct {
	Cmd       string   `json:"cmd,omitempty"`     // split into words as by a shell, without expansion
	Command   []string `json:"command,omitempty"` // argv
	Stdin     string   `json:"stdin,omitempty"`
	Timeout   int      `json:"timeout,omitempty"` // seconds
	User      string   `json:"user,omitempty"`    // USER[:GROUP] of the container, names or numbers; default: its own
	Workdir   string   `json:"workdir,omitempty"` // absolute path in the machine; default: the machine's own
	Container string   `json:"container,omitempty"`
	Machine   string   `json:"machine,omitempty"`
}

// ExecResult is how a command ended and what it wrote.
type ExecResult struct {
	ExitCode  int    `json:"exit_code"`
	Stdout    string `json:"stdout"`
	Stderr    string `json:"stderr"`
	Truncated string `json:"truncated,omitempty"`
}

// ExecCommand is the first line of the body of an exec stream; the command's raw stdin follows it. With a terminal,
// lines follow instead, each an ExecInput. Attach replaces Command, and needs a Terminal: it attaches to the terminal
// of the machine's own program. That program keeps running when the stream ends.
type ExecCommand struct {
	Command  []string          `json:"command,omitempty"`
	User     string            `json:"user,omitempty"`    // as in ExecRequest
	Workdir  string            `json:"workdir,omitempty"` // as in ExecRequest
	Terminal *machine.Terminal `json:"terminal,omitempty"`
	Attach   bool              `json:"attach,omitempty"`
	Backlog  bool              `json:"backlog,omitempty"` // with Attach: start with the latest output
}

// ExecInput is one line of the body of an exec stream with a terminal: input, the terminal's new size, or both.
type ExecInput struct {
	Data []byte              `json:"data,omitempty"`
	Size *machine.WindowSize `json:"size,omitempty"`
}

// ExecFrame is a line of the answer of an exec stream: output, or as the last line the exit code.
type ExecFrame struct {
	Stream   string `json:"stream,omitempty"` // stdout or stderr; a terminal has only stdout
	Data     []byte `json:"data,omitempty"`
	ExitCode *int   `json:"exit_code,omitempty"` // only in the last line
}
