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

// Routes makes the command "souk routes".
func Routes(c *cli.Env) *cobra.Command {
	cmd := &cobra.Command{Use: "routes", Short: "List by which names and ports requests reach which app",
		Long: `List by which names and ports requests reach which app, as the member that is asked leads them, and where they
come in there. A name without a dot stands below each of the member's domains, a whole name for itself.

A name or a port is the app's that has it first. Where two apps got one at the same moment, the first by name gets the
requests; the others are named beside it. Of a service GROUPS says whose machines answer: several groups that answer to one
name, or at one port, each get a part of the requests. Give them "hosts" of their own where that is not meant.

Below the list stands for which names the member that is asked has no certificate, or no newer one, and why.`,
		Example: "  souk routes\n  souk routes --json | jq -r '.routes[].url'",
		Args:    cli.Args(0, 0, "no argument")}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cl, err := c.Client()
		if err != nil {
			return err
		}
		list, err := cl.Routes(cmd.Context())
		if err != nil {
			return err
		}
		if c.JSON {
			c.JSONLine(c.Out, list)
			return nil
		}
		printRoutes(c, &list)
		return nil
	}
	return cmd
}

func printRoutes(c *cli.Env, list *api.RouteList) {
	c.Printf("%s\n", doorsText(&list.Doors))
	if len(list.Routes) == 0 {
		c.Printf("no app answers requests; \"souk run --http :PORT -- CMD\" makes a machine that does\n")
		return
	}
	noted := false
	for _, r := range list.Routes {
		noted = noted || noteOf(&r) != ""
	}
	head := []cli.Column{cli.Keep("ROUTE").Cut(16), cli.Keep("APP").Cut(8), cli.Drop("INSIDE", 2), cli.Keep("UP")}
	made := slices.ContainsFunc(list.Routes, func(r api.RouteInfo) bool { return r.Made > 0 })
	if made {
		head = append(head, cli.Keep("SPARES"), cli.Drop("MADE", 1))
	}
	grouped := slices.ContainsFunc(list.Routes, func(r api.RouteInfo) bool { return len(r.Groups) > 0 })
	if grouped {
		head = slices.Insert(head, 2, cli.Keep("GROUPS").Cut(8))
	}
	if noted {
		head = append(head, cli.Reason("NOTE"))
	}
	var rows [][]cli.Cell
	for i := range list.Routes {
		r := &list.Routes[i]
		where := r.URL
		switch {
		case where != "":
		case r.Host != "":
			where = r.Host
		default:
			where = fmt.Sprintf("port %d", r.Port)
		}
		row := []cli.Cell{{Text: where}, {Text: r.App}, {Text: fmt.Sprint(r.Inside)},
			{Text: fmt.Sprintf("%d/%d", r.Up, r.Machines)}}
		if made {
			row = append(row, sparesCell(r.Spares, r.Warm), cli.Cell{Text: madeText(r.Made)})
		}
		if grouped {
			row = slices.Insert(row, 2, cli.Cell{Text: strings.Join(r.Groups, " ")})
		}
		if noted {
			row = append(row, cli.Cell{Text: noteOf(r), Colour: "33"})
		}
		rows = append(rows, row)
	}
	c.Table(head, rows)
	for i := range list.Routes {
		if r := &list.Routes[i]; r.Certificate != nil {
			c.Printf("%s\n", certificateText(r.Certificate, time.Now()))
		}
	}
}

// certificateText says what is wrong with a certificate, and when the next try is.
func certificateText(p *api.CertificateProblem, now time.Time) string {
	names := strings.Join(p.Names, ", ")
	text := "no certificate was got for " + names
	switch {
	case p.File != "":
		text = "the certificate of " + names + " in " + p.File + " was not read again"
	case p.Ends != nil:
		text = "no newer certificate was got for " + names + ", whose own ends on " + p.Ends.UTC().Format(time.RFC3339)
	}
	text += ": " + p.Why
	switch {
	case p.Again == nil:
	case p.Again.After(now):
		text += fmt.Sprintf("; it is tried again in %v at the earliest, for a client that asks",
			p.Again.Sub(now).Round(time.Second))
	default:
		text += "; it is tried again for the next client that asks"
	}
	return text
}

// noteOf returns a remark on a route.
func noteOf(r *api.RouteInfo) string {
	var parts []string
	if len(r.Shadowed) > 0 {
		parts = append(parts, "also wanted by "+strings.Join(r.Shadowed, ", ")+", and not theirs")
	}
	if len(r.Groups) > 1 {
		parts = append(parts, fmt.Sprintf("each of %d groups gets a part of the requests", len(r.Groups)))
	}
	if r.Problem != "" {
		parts = append(parts, r.Problem)
	}
	return strings.Join(parts, "; ")
}

// doorsText returns where the proxy listens.
func doorsText(d *api.Doors) string {
	var at []string
	for _, a := range d.HTTP {
		at = append(at, a+" (HTTP)")
	}
	for _, a := range d.HTTPS {
		at = append(at, a+" (HTTPS)")
	}
	if len(at) == 0 {
		at = []string{"no address for HTTP"}
	}
	text := "requests come in at " + strings.Join(at, ", ")
	if len(d.Domains) > 0 {
		text += "; apps are below " + strings.Join(d.Domains, ", ")
	}
	return text
}
