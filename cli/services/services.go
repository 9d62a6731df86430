// Package services has the commands for outside requests: souk services, routes and proxy.
package services

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cli"
)

// Services makes the command "souk services".
func Services(c *cli.Env) *cobra.Command {
	cmd := &cobra.Command{Use: "services [APP]", Short: "List what answers requests, and how it scales",
		Long: `List the services of all apps, or of one: where each answers, how many of its machines are up, what they have
to do, and what is done when that changes.

  UP      machines that take requests, of all that there are
  LOAD    requests or connections under way, and those that wait for a machine at the member that answers
  REST    what becomes of a machine that nobody asks, and after how long
  RUN     how many are left up, and how many are up at most
  SPARES  machines that are asleep and that a request can wake, of those that are to be (--warm); MADE is up to how many
          machines there may be when more are made (--create-up-to). Both are shown where a service has any made
  LIMITS  of one machine: beyond the first another is used, beyond the second requests wait

A service whose WAKE is no is not started for a request.`,
		Example: "  souk services\n  souk services shop\n  souk services shop --json | jq -r '.services[].urls[0]'",
		Args:    cli.Args(0, 1, "at most one app")}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		app := c.AppGiven()
		if len(args) > 0 {
			app = args[0]
		}
		cl, err := c.Client()
		if err != nil {
			return err
		}
		list, err := cl.Services(cmd.Context(), app)
		if err != nil {
			return err
		}
		if c.JSON {
			c.JSONLine(c.Out, list)
			return nil
		}
		printServices(c, &list)
		return nil
	}
	return cmd
}

func printServices(c *cli.Env, list *api.ServiceList) {
	if len(list.Services) == 0 {
		c.Printf("no services; \"souk run --http :PORT -- CMD\" makes a machine with one\n")
		return
	}
	if list.Doors == nil {
		c.Note("this souk has no proxy, so no request reaches them through it")
	}
	head := []cli.Column{cli.Keep("SERVICE").Cut(16), cli.Drop("APP", 1).Cut(6), cli.Keep("UP"), cli.Keep("LOAD"),
		cli.Drop("WAKE", 2), cli.Drop("REST", 4), cli.Drop("RUN", 3), cli.Drop("LIMITS", 2)}
	made := slices.ContainsFunc(list.Services, func(s api.ServiceInfo) bool { return s.CreateUpTo > 0 })
	if made {
		head = slices.Insert(head, 3, cli.Keep("SPARES"), cli.Drop("MADE", 1))
	}
	var rows [][]cli.Cell
	for i := range list.Services {
		s := &list.Services[i]
		up := cli.Cell{Text: fmt.Sprintf("%d/%d", s.Up, len(s.Machines))}
		if s.Up == 0 && !s.Autostart {
			up.Colour = "31"
		}
		load := fmt.Sprint(s.Load)
		if s.Held > 0 {
			load += fmt.Sprintf(", %d held", s.Held)
		}
		wake := "yes"
		if !s.Autostart {
			wake = "no"
		}
		row := []cli.Cell{{Text: Where(s)}, {Text: s.App}, up, {Text: load}, {Text: wake}, {Text: restText(s)},
			{Text: runText(s)}, {Text: limitsText(s)}}
		if made {
			row = slices.Insert(row, 3, sparesCell(s.Spares, s.Warm), cli.Cell{Text: madeText(s.CreateUpTo)})
		}
		rows = append(rows, row)
	}
	c.Table(head, rows)
}

// sparesCell returns how many spares exist, of those wanted.
func sparesCell(spares, warm int) cli.Cell {
	if warm == 0 {
		return cli.Cell{Text: "-"}
	}
	cell := cli.Cell{Text: fmt.Sprintf("%d/%d", spares, warm)}
	if spares < warm {
		cell.Colour = "33"
	}
	return cell
}

func madeText(most int) string {
	if most == 0 {
		return "none"
	}
	return fmt.Sprintf("up to %d", most)
}

// Where returns a service's first URL, or what it would be at a member with the right door.
func Where(s *api.ServiceInfo) string {
	switch {
	case len(s.URLs) > 0:
		return s.URLs[0]
	case s.Protocol == "http" && len(s.Hosts) > 0:
		return s.Hosts[0]
	case s.Protocol == "http":
		return s.App
	case len(s.Outside) > 0:
		return fmt.Sprintf("%s port %d", s.Protocol, s.Outside[0])
	}
	return fmt.Sprintf("%s port %d of its machines", s.Protocol, s.Port)
}

func restText(s *api.ServiceInfo) string {
	if s.Autostop == "off" {
		return "never"
	}
	return s.Autostop + " after " + Seconds(s.AutostopAfter)
}

// Seconds writes a number of seconds as a duration, without zero parts.
func Seconds(n float64) string {
	text := time.Duration(n * float64(time.Second)).String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zero) {
			text = text[:len(text)-2]
		}
	}
	return text
}

func runText(s *api.ServiceInfo) string {
	most := "all"
	if s.Max > 0 {
		most = fmt.Sprint(s.Max)
	}
	return fmt.Sprintf("%d..%s", s.Min, most)
}

func limitsText(s *api.ServiceInfo) string {
	number := func(n int) string {
		if n == 0 {
			return "none"
		}
		return fmt.Sprint(n)
	}
	if s.Soft == 0 && s.Hard == 0 {
		return "none"
	}
	return fmt.Sprintf("%s, %s %s", number(s.Soft), number(s.Hard), s.Concurrency)
}
