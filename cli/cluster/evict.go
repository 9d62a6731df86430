package cluster

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/wait"
)

// The codes of this package's errors.
const (
	codeNodeNotFound fault.Code = "node_not_found" // no node has this name
	codeNotShutOut   fault.Code = "not_shut_out"   // a credential of the evicted member may still work
)

// evictFlags are those of souk node evict.
type evictFlags struct {
	api.EvictRequest
	yes, check bool
	patience   time.Duration
}

func cmdNodeEvict(c *cli.Env) *cobra.Command {
	o := new(evictFlags)
	cmd := &cobra.Command{Use: "evict NODE",
		Short: "Shut out a host whose disk is in other hands, and see that it is so",
		Long: `Take from who has the disk of a host all that it lets them do. It is asked where
the cluster's authority is, and goes in steps, each printed when it is done:

  removed     every member refuses its certificate, whether or not the host is known or alive
  tokens      its tokens, and those made with them, are let in nowhere
  gossip-key  gossip has another key, made after the removal
  secrets     secrets travel sealed with the new key

Then all of it is tried at every member: the tokens, a certificate like the host's own, the keys of gossip of before.
What is left is said, and the exit code is 65; else who has the disk can do nothing with it.

Broken off anywhere, it is carried on by running it again. Machines of the host run on there, and nobody can ask for
them. Members that are away come back by themselves, once they reach the agent with the authority.`,
		Example: "  souk node evict fra-2 --reason stolen --yes\n  souk node evict fra-2 --check",
		Args:    cli.Args(1, 1, "the id of a node")}
	f := cmd.Flags()
	f.BoolVar(&o.yes, "yes", false, "really")
	f.StringVar(&o.Reason, "reason", "", "why, for those who wonder later")
	f.DurationVar(&o.patience, "wait", 2*time.Minute, "how long to wait for members to take a step")
	f.BoolVar(&o.Force, "force", false,
		"after --wait take a step without members that lag behind; they are cut off until they have asked for the keys")
	f.BoolVar(&o.Again, "again", false, "also when the host has joined anew since it was removed")
	f.BoolVar(&o.check, "check", false, "only try what who has the disk of a host that was evicted can do")
	cmd.RunE = func(cmd *cobra.Command, argv []string) error {
		if !o.yes && !o.check {
			return cli.Usagef("nobody can ask for what %s runs any more, and it must join anew to come back; say --yes",
				argv[0])
		}
		if o.patience <= 0 {
			return cli.Usagef("--wait is a time from now on, not %v", o.patience)
		}
		o.By = cli.WhoAmI()
		cl, err := c.Client()
		if err != nil {
			return err
		}
		return doEvict(cmd.Context(), c, cl, argv[0], o)
	}
	return cmd
}

func doEvict(ctx context.Context, c *cli.Env, cl *client.Client, node string, o *evictFlags) error {
	var done api.MemberEviction
	var err error
	if !o.check {
		if done, err = evict(ctx, c, cl, node, o); err != nil {
			return err
		}
	}
	check, err := checkEviction(ctx, cl, node, min(o.patience, checkTime))
	if err != nil {
		return err
	}
	if c.JSON {
		c.JSONLine(c.Out, map[string]any{"member": node, "steps": done.Steps, "check": check})
	} else {
		printCheck(c, &check)
	}
	if check.OK {
		return nil
	}
	return fault.New(fault.Precondition, codeNotShutOut,
		"some credentials of the evicted node were accepted, or could not be tried; put that right, then check "+
			"again: souk node evict %s --check", node)
}

// checkTime is how long credentials that still work are tried again: members learn of the eviction one after another.
const checkTime = 10 * time.Second

// checkEviction repeats the check until everything is refused, for patience at most.
func checkEviction(ctx context.Context, cl *client.Client, node string,
	patience time.Duration) (check api.EvictionCheck, err error) {
	for late := time.Now().Add(patience); ; {
		if check, err = cl.CheckEviction(ctx, node); err != nil || check.OK || time.Now().After(late) {
			return check, err
		}
		if wait.For(ctx, lookAgain) != nil {
			return check, context.Cause(ctx)
		}
	}
}

// evict repeats the request until every step is done, and prints each step once.
func evict(ctx context.Context, c *cli.Env, cl *client.Client, node string, o *evictFlags) (api.MemberEviction, error) {
	said := map[string]bool{}
	in := o.EvictRequest
	in.Force = false
	for late := time.Now().Add(o.patience); ; {
		e, err := cl.Evict(ctx, node, in)
		if err != nil {
			return e, err
		}
		in.Force, in.Again = false, false
		key := api.EvictionStep{}
		for _, s := range e.Steps {
			if s.Name == "gossip-key" {
				key = s
			}
			if text := s.Name + s.Text; !said[text] && (s.Name != "secrets" || !said[s.Name]) {
				said[text], said[s.Name] = true, true
				printStep(c, s)
			}
		}
		if e.Done {
			return e, nil
		}
		if wait.For(ctx, lookAgain) != nil {
			return e, context.Cause(ctx)
		}
		if time.Now().Before(late) {
			continue
		}
		if !o.Force {
			return e, fault.New(fault.Timeout, fault.CodeRotation,
				"after %v not every member has taken this step: %s (%s); run the command again to wait longer, or "+
					"with --force to continue without them", o.patience, key.Text, waitingText(key))
		}
		in.Force, late = true, time.Now().Add(o.patience)
	}
}

// lookAgain is how often the progress of the eviction is asked for.
const lookAgain = 200 * time.Millisecond

func waitingText(s api.EvictionStep) string {
	if len(s.Waiting) == 0 {
		return "nobody is heard"
	}
	ids := make([]string, len(s.Waiting))
	for i, id := range s.Waiting {
		ids[i] = string(id)
	}
	return "waiting for " + strings.Join(ids, ", ")
}

// printStep prints a step; with --json on stderr, since the answer comes at the end.
func printStep(c *cli.Env, s api.EvictionStep) {
	if c.JSON {
		c.JSONLine(c.Err, s)
		return
	}
	fmt.Fprintf(c.Out, "%-12s %s\n", s.Name, s.Text)
}

func printCheck(c *cli.Env, check *api.EvictionCheck) {
	for _, t := range check.Tries {
		word := "refused"
		if !t.Refused {
			word = "NOT SHUT"
		}
		fmt.Fprintf(c.Out, "%-12s %-12s %-9s %s\n", "tried", t.At, word, strings.Map(cli.Printable, t.Have))
	}
	if check.OK {
		fmt.Fprintf(c.Out, "who has the disk of %s can still do: nothing\n", check.Member)
	}
	sayLeft(c.Out, check.Left)
}

func sayLeft(w io.Writer, left []string) {
	for _, l := range left {
		fmt.Fprintf(w, "  left  %s\n", strings.Map(cli.Printable, l))
	}
}
