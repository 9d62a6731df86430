// Package cli is the toolkit of souk's commands: one invocation's environment (Env), the client of the chosen souk,
// arguments, exit codes, error output, tables, progress, and texts about machines. The commands themselves are in the
// packages below it, one for each noun; cmd/souk puts them together.
package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/spf13/cobra"
)

// Env is one invocation: its streams, its environment and the flags that every command knows.
type Env struct {
	In     io.Reader
	Out    io.Writer
	Err    io.Writer
	Getenv func(string) string

	// Width is the number of columns to print on; 0: the terminal's.
	Width int

	JSON bool
	wide bool   // print tables whole, however narrow the terminal is
	app  string // "" when the user did not say
	addr string

	context string // "": the current one

	noting  sync.Mutex
	own     func() string         // see ownApp
	missing map[string]bool       // workers that a warning has named already
	learn   func(context.Context) // learns a changed list of doors; nil: unchanged
}

// DefaultApp is the app of machines whose app nobody named.
const DefaultApp = "default"

// Run carries out a command line and returns the program's exit code.
func (c *Env) Run(ctx context.Context, root *cobra.Command, args []string) int {
	c.guard()
	root.SetArgs(args)
	root.SetIn(c.In)
	root.SetOut(c.Out)
	root.SetErr(c.Err)
	err := foreignVerb(root, args)
	if err == nil {
		err = root.ExecuteContext(ctx)
	}
	c.learned()
	if why, ok := errors.AsType[Interrupted](context.Cause(ctx)); ok && err != nil {
		if _, ended := errors.AsType[TaskCode](err); !ended {
			err = why
		}
	}
	if !said(err) {
		c.PrintError(err)
	}
	return ExitCode(err)
}

// said reports whether an error need not be printed: it was printed already, or its exit code says everything.
func said(err error) bool {
	_, task := errors.AsType[TaskCode](err)
	_, stopped := errors.AsType[Interrupted](err)
	_, each := errors.AsType[Several](err)
	return err == nil || task || stopped || each
}

// AppOrDefault is the app of something new.
func (c *Env) AppOrDefault() string {
	if a := c.AppGiven(); a != "" {
		return a
	}
	return DefaultApp
}

// AppGiven is the app that the user named, or the own app of a Unix user who asks the souk of his host; "": none.
func (c *Env) AppGiven() string {
	return cmp.Or(c.AppNamed(), c.ownApp())
}

// AppNamed is the app that the user named; "": none.
func (c *Env) AppNamed() string {
	if c.app != "" {
		return c.app
	}
	return c.Getenv("SOUK_APP")
}

// JSONLine prints v as one line of JSON.
func (c *Env) JSONLine(w io.Writer, v any) {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		fmt.Fprintf(c.Err, "souk: the output could not be written: %v\n", err)
	}
}

// JSONList prints a list as one JSON array, [] when it is empty.
func JSONList[T any](c *Env, list []T) {
	if list == nil {
		list = []T{}
	}
	c.JSONLine(c.Out, list)
}
