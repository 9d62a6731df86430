package services

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// Proxy makes the command "souk proxy".
func Proxy(c *cli.Env) *cobra.Command {
	var bind string
	cmd := &cobra.Command{Use: "proxy LOCAL:REMOTE MACHINE", Short: "Have a port of this host lead to one of a machine",
		Long: `Listen at port LOCAL of this host and lead each connection to port REMOTE of a machine, wherever the machine is:
through the API, with its token, until ^C. No service needs to have the port, and nobody else reaches it by this. It
takes a role that may also run commands in machines.

PORT alone is the same port at both ends; 0:REMOTE takes any that is free. The machine is not started for it.`,
		Example: "  souk proxy 5432 db\n  souk proxy 8080:80 web\n  souk proxy 0:6060 web --json | jq -r .at",
		Args:    cli.Args(2, 2, "LOCAL:REMOTE and a machine, by id or name")}
	cmd.Flags().StringVar(&bind, "bind", "127.0.0.1", "the address of this host at which it listens")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		local, remote, err := portPair(args[0])
		if err != nil {
			return err
		}
		if net.ParseIP(bind) == nil {
			return cli.Usagef("--bind is an address such as 127.0.0.1 or ::, not %q", bind)
		}
		return forward(cmd, c, args[1], net.JoinHostPort(bind, strconv.Itoa(local)), remote)
	}
	return cmd
}

// portPair reads LOCAL:REMOTE, or one port for both.
func portPair(text string) (local, remote int, err error) {
	a, b, two := strings.Cut(text, ":")
	if !two {
		b = a
	}
	local, err1 := strconv.Atoi(a)
	remote, err2 := strconv.Atoi(b)
	if err1 != nil || err2 != nil || local < 0 || local > 65535 || remote < 1 || remote > 65535 {
		return 0, 0, cli.Usagef("the ports are written LOCAL:REMOTE, such as 8080:80, or one for both, not %q", text)
	}
	return local, remote, nil
}

// forwarding is the --json output of souk proxy when it listens.
type forwarding struct {
	At      string `json:"at"`
	App     string `json:"app"`
	Machine string `json:"machine"`
	Port    int    `json:"port"`
}

// forward serves connections until the command is interrupted.
func forward(cmd *cobra.Command, c *cli.Env, ref, at string, port int) error {
	ctx := cmd.Context()
	cl, m, err := c.One(cmd, ref)
	if err != nil {
		return err
	}
	if m.State != machine.Started {
		return fault.New(fault.Precondition, fault.CodeNotRunning, "machine %s is %s: souk start %s, and then again",
			cli.Label(m), m.State, cli.Label(m))
	}
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", at)
	if err != nil {
		return fault.Wrap(err, fault.Unavailable, fault.CodeListen,
			"%s cannot be listened on; give another LOCAL, or 0", at)
	}
	stop := context.AfterFunc(ctx, func() { ln.Close() })
	defer stop()
	f := forwarding{ln.Addr().String(), m.App, m.ID, port}
	if c.JSON {
		c.JSONLine(c.Out, f)
	} else {
		c.Printf("%s leads to port %d of %s (%s); ^C ends it\n", f.At, port, cli.Label(m), m.ID)
	}
	var conns sync.WaitGroup
	defer conns.Wait()
	var said sync.Mutex // one error at a time
	for {
		conn, err := ln.Accept()
		if err != nil && ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fault.Wrap(err, fault.Unavailable, fault.CodeListen, "no more connections can be accepted at %s",
				f.At)
		}
		conns.Go(func() {
			if err := carry(ctx, cl, f, conn); err != nil && ctx.Err() == nil {
				said.Lock()
				defer said.Unlock()
				c.PrintError(err)
			}
		})
	}
}

// carry forwards one connection to the machine. A close by either end is no error.
func carry(ctx context.Context, cl *client.Client, f forwarding, conn net.Conn) error {
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	err := cl.Forward(ctx, f.App, f.Machine, f.Port, local{conn}, conn)
	if err == nil || errors.Is(err, net.ErrClosed) || fault.CodeOf(err) == client.CodeBrokenOff {
		return nil
	}
	return err
}

// local hides all methods of a connection except Read.
type local struct{ conn net.Conn }

// Read reads from the connection.
func (l local) Read(p []byte) (int, error) { return l.conn.Read(p) }
