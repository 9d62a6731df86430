package cli

import (
	"errors"
	"fmt"
	"os"

	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/core/decision"
	"github.com/soukhq/souk/fault"
)

// Interrupted is the cause of a context that a signal ended: the user's ^C, or a SIGTERM.
type Interrupted struct{ Signal os.Signal }

func (i Interrupted) Error() string { return "stopped by " + i.Signal.String() }

// PrintError prints an error, unless it was printed already.
func (c *Env) PrintError(err error) {
	err = c.ownWords(err)
	if c.JSON {
		f := fault.As(err)
		line := ErrorLine{Error: err.Error(), Kind: f.Kind, Code: f.Code, Exit: ExitCode(err)}
		if a, ok := fault.Detail[client.ErrorAnswer](err); ok {
			d := a.Souk
			line.Pending, line.Decision = d.Pending, d.Decision
		}
		if _, ok := errors.AsType[usageError](err); ok {
			line.Kind, line.Code = fault.Invalid, codeUsage
		}
		c.JSONLine(c.Err, line)
		return
	}
	more := ""
	if a, ok := fault.Detail[client.ErrorAnswer](err); ok && a.Souk.Decision != "" {
		more = fmt.Sprintf(" (%s; souk explain %s)", a.Souk.Pending, a.Souk.Decision)
	}
	fmt.Fprintf(c.Err, "souk: %v%s\n", err, more)
}

// ErrorLine is an error in --json, on stderr.
type ErrorLine struct {
	Error string     `json:"error"`
	Kind  fault.Kind `json:"kind"`
	Code  fault.Code `json:"code,omitempty"`
	Exit  int        `json:"exit"`

	Pending  decision.Pending `json:"pending,omitempty"`  // why nothing was placed, typed
	Decision string           `json:"decision,omitempty"` // its id, for souk explain
}
