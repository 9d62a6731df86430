package decisions

import (
	"context"
	"fmt"
	"strings"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cli"
)

// explainRequest prints the record of a proxied request.
func explainRequest(ctx context.Context, c *cli.Env, id string) error {
	cl, err := c.Client()
	if err != nil {
		return err
	}
	q, err := cl.Request(ctx, id)
	if err != nil {
		return err
	}
	if c.JSON {
		c.JSONLine(c.Out, q)
		return nil
	}
	c.Printf("request %s: %s %s%s was answered with %s\n", q.ID, q.Method, plain(q.Host), plain(q.Path),
		codeText(q.Code))
	c.Field("at", "%s, from %s by %s", q.Time.Local().Format("2006-01-02 15:04:05.000"), q.Client, q.Proto)
	if q.Machine != "" {
		c.Field("machine", "%s of app %s on %s", q.Machine, q.App, q.Worker)
	} else if q.App != "" {
		c.Field("app", "%s; no machine had it", q.App)
	}
	c.Field("took", "%s%s", millis(q.TookMS), phasesOf(&q))
	if q.Replays > 0 {
		c.Field("handed on", "%s by fly-replay", cli.NumberOf(q.Replays, "time", "times"))
	}
	if q.Why != "" {
		c.Field("why", "%s (%s)", plain(q.Why), q.Error)
	}
	return nil
}

func plain(s string) string { return strings.Map(cli.Printable, s) }

// codeText is the code of an answer.
func codeText(code int) string {
	switch code {
	case 499:
		return "nothing, as its client had gone"
	case 0:
		return "nothing"
	}
	return fmt.Sprint(code)
}

// phasesOf returns the phases until the first byte of the answer.
func phasesOf(q *api.ProxiedRequest) string {
	var parts []string
	if q.HeldMS > 0 {
		text := millis(q.HeldMS) + " until there was a machine"
		if q.StartMS > 0 || q.ReadyMS > 0 {
			text += fmt.Sprintf(" (%s to start it, %s until its port answered)", millis(q.StartMS), millis(q.ReadyMS))
		}
		parts = append(parts, text)
	}
	if q.FirstMS > 0 {
		parts = append(parts, millis(max(0, q.FirstMS-q.HeldMS))+" until its first byte")
	}
	if len(parts) == 0 {
		return ""
	}
	return ": " + strings.Join(parts, ", ")
}
