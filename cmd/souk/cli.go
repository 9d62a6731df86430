package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/fault"
)

// cli is one invocation: its streams, its environment and the flags that every command knows.
type cli struct {
	in     io.Reader
	out    io.Writer
	err    io.Writer
	getenv func(string) string

	json bool
	app  string // "" when the user did not say
	addr string
}

// DefaultApp is the app of machines whose app nobody named.
const defaultApp = "default"

// run carries out a command line and gives the program's exit code.
func (c *cli) run(ctx context.Context, args []string) int {
	root := c.root()
	root.SetArgs(args)
	root.SetIn(c.in)
	root.SetOut(c.out)
	root.SetErr(c.err)
	err := root.ExecuteContext(ctx)
	if why, ok := errors.AsType[interrupted](context.Cause(ctx)); ok && err != nil {
		if _, ended := errors.AsType[taskCode](err); !ended {
			err = why
		}
	}
	if !said(err) {
		c.printError(err)
	}
	return exitCode(err)
}

// said tells that an error needs no word: it has been printed, or its exit code says all.
func said(err error) bool {
	_, task := errors.AsType[taskCode](err)
	_, stopped := errors.AsType[interrupted](err)
	_, each := errors.AsType[several](err)
	return err == nil || task || stopped || each
}

func (c *cli) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "souk",
		Short: "A cluster orchestrator with no central scheduler",
		Long: `souk runs machines (processes with a shape, an environment and a life of their own) on workers that
answer yes or no at once, and says why.

Begin with "souk dev" in one terminal and "souk run -- /bin/sh -c 'echo hello; sleep 1000'" in another.

Environment: SOUK_ADDR (HOST:PORT of a souk; else the one "souk dev" started here), SOUK_TOKEN, SOUK_APP (instead of
--app), NO_COLOR. The exit codes stand in docs/reference/exit-codes.md.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			return unknownCommand(cmd, args[0])
		},
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usagef("%v; see \"%s --help\"", err, cmd.CommandPath())
	})
	pf := root.PersistentFlags()
	pf.BoolVar(&c.json, "json", false, "print JSON: one value, or one line per value where there can be many")
	pf.StringVar(&c.addr, "addr", "", "HOST:PORT or URL of the souk to talk to (default $SOUK_ADDR, else what \"souk dev\" wrote down)")
	pf.StringVar(&c.app, "app", "", "the app (default $SOUK_APP, else any app for machines that exist and \"default\" for new ones)")
	root.AddGroup(&cobra.Group{ID: "first", Title: "First:"}, &cobra.Group{ID: "jobs", Title: "Short tasks:"}, &cobra.Group{ID: "machines", Title: "Machines:"},
		&cobra.Group{ID: "things", Title: "What machines use:"}, &cobra.Group{ID: "cluster", Title: "A cluster of several hosts:"}, &cobra.Group{ID: "souk", Title: "souk itself:"})
	group := func(id string, cmds ...*cobra.Command) {
		for _, cmd := range cmds {
			cmd.GroupID = id
			root.AddCommand(cmd)
		}
	}
	group("first", c.cmdDev(), c.cmdRun(), c.cmdPs(), c.cmdExplain(), c.cmdPlan(), c.cmdWhyNot(), c.cmdGang())
	group("jobs", c.cmdSubmit(), c.cmdJob())
	group("machines", c.cmdStatus(), c.cmdLogs(), c.cmdExec(), c.cmdCp(), c.cmdEvents(), c.cmdStart(), c.cmdStop(), c.cmdRestart(),
		c.cmdSuspend(), c.cmdSignal(), c.cmdWait(), c.cmdDestroy(), c.cmdMetadata(), c.cmdLease())
	group("things", c.cmdApps(), c.cmdVolumes(), c.cmdSecrets())
	group("cluster", c.cmdInit(), c.cmdToken(), c.cmdJoin(), c.cmdAgent(), c.cmdMembers(), c.cmdNode(), c.cmdTop(), c.cmdCA())
	group("souk", c.cmdWorkers(), c.cmdPolicy(), c.cmdNamespace(), c.cmdQuota(), c.cmdDoctor(), c.cmdBench(), c.cmdSim(), c.cmdTrace(), c.cmdVersion())
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		if cmd.Name() == "completion" {
			cmd.GroupID = "souk"
		}
	}
	root.SetHelpCommandGroupID("souk")
	return root
}

func unknownCommand(cmd *cobra.Command, name string) error {
	cmd.SuggestionsMinimumDistance = 2
	text := fmt.Sprintf("%s has no command %q", cmd.CommandPath(), name)
	if s := cmd.SuggestionsFor(name); len(s) > 0 {
		return usagef("%s; did you mean %q?", text, s[0])
	}
	return usagef("%s; see \"%s --help\"", text, cmd.CommandPath())
}

// parent is a command that only has subcommands.
func parent(cmd *cobra.Command, subs ...*cobra.Command) *cobra.Command {
	cmd.AddCommand(subs...)
	if cmd.RunE != nil {
		return cmd
	}
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cmd.Help()
		}
		return unknownCommand(cmd, args[0])
	}
	return cmd
}

// args makes the check of a number of arguments, most < 0 being no limit; usage says in words what belongs there.
func args(least, most int, usage string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, given []string) error {
		if len(given) < least || (most >= 0 && len(given) > most) {
			return usagef("%s wants %s; see \"%s --help\"", cmd.CommandPath(), usage, cmd.CommandPath())
		}
		return nil
	}
}

// appOrDefault is the app of something new.
func (c *cli) appOrDefault() string {
	if a := c.appGiven(); a != "" {
		return a
	}
	return defaultApp
}

// appGiven is the app the user named, or "".
func (c *cli) appGiven() string {
	if c.app != "" {
		return c.app
	}
	return c.getenv("SOUK_APP")
}

// client makes the client of the souk that is meant: --addr, SOUK_ADDR, or what souk dev wrote down.
//
// The token in the dev directory belongs to the souk of that directory: it is never sent to another address.
func (c *cli) client() (*client.Client, error) {
	addr, token := c.addr, c.getenv("SOUK_TOKEN")
	if addr == "" {
		addr = c.getenv("SOUK_ADDR")
	}
	if addr == "" || token == "" {
		dir, err := c.devDir("")
		if err != nil {
			return nil, err
		}
		devAddr, errAddr := readLine(filepath.Join(dir, "addr"))
		if addr == "" {
			if errAddr != nil {
				return nil, fault.New(fault.Unavailable, "no_souk", "no souk is known here: start one with \"souk dev\", or set SOUK_ADDR and SOUK_TOKEN")
			}
			addr = devAddr
		}
		if token == "" && errAddr == nil && addr == devAddr {
			token, _ = readLine(filepath.Join(dir, "token")) // without it the server says that a token is missing
		}
	}
	if err := checkAddr(addr); err != nil {
		return nil, err
	}
	return client.New(addr, token), nil
}

// checkAddr refuses to send the token in clear over a network.
func checkAddr(addr string) error {
	if !strings.Contains(addr, "://") {
		addr = "http://" + addr
	}
	u, err := url.Parse(addr)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return usagef("%q is no address of a souk; write HOST:PORT or https://HOST", addr)
	}
	if u.Scheme == "http" && !isLoopback(u.Hostname()) {
		return usagef("the token would travel to %s unencrypted; write https://%s, or tunnel to a loopback address", u.Host, u.Host)
	}
	return nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || (ip != nil && ip.IsLoopback())
}

// devDir gives the directory of souk dev: the one given, else souk/dev below the user's state directory.
func (c *cli) devDir(given string) (string, error) {
	if given != "" {
		abs, err := filepath.Abs(given)
		if err != nil {
			return "", fault.Wrap(err, fault.Invalid, "dir", "%q is no directory", given)
		}
		return abs, nil
	}
	if d := c.getenv("XDG_STATE_HOME"); filepath.IsAbs(d) {
		return filepath.Join(d, "souk", "dev"), nil
	}
	home := c.getenv("HOME")
	if home == "" {
		return "", fault.New(fault.Invalid, "home", "neither XDG_STATE_HOME nor HOME is set, so there is no place for souk's state; give --dir")
	}
	return filepath.Join(home, ".local", "state", "souk", "dev"), nil
}

func readLine(path string) (string, error) {
	raw, err := os.ReadFile(path)
	return strings.TrimSpace(string(raw)), err
}

// jsonLine prints v as one line of JSON.
func (c *cli) jsonLine(w io.Writer, v any) {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		fmt.Fprintf(c.err, "souk: the output could not be written: %v\n", err)
	}
}

// jsonList prints a list as one JSON array, [] when it is empty.
func jsonList[T any](c *cli, list []T) {
	if list == nil {
		list = []T{}
	}
	c.jsonLine(c.out, list)
}
