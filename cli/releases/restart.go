package releases

import (
	"context"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/core/release"
)

// Restart replaces each machine of an app's service.
func Restart(ctx context.Context, c *cli.Env, app string) error {
	cl, err := c.Client()
	if err != nil {
		return err
	}
	h, err := cl.Change(ctx, app, release.Change{Why: release.WhyRestart})
	if err != nil {
		return known(app, err)
	}
	if c.JSON {
		c.JSONLine(c.Out, h.Head)
		return nil
	}
	s, err := cl.Service(ctx, app)
	if err != nil {
		return err
	}
	c.Printf("%s wants %s anew, one after the other\n", app, wantedText(&s))
	c.Field("next", "souk status --app %s", app)
	return nil
}
