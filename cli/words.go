package cli

import (
	"fmt"
	"strings"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/fault"
)

// ownWords rewrites a server's error for command-line users: servers talk about headers and routes.
func (c *Env) ownWords(err error) error {
	f := fault.As(err)
	text := ""
	switch f.Code {
	case fault.CodeUnauthenticated:
		switch { // for an ended token the error says why
		case strings.HasPrefix(f.Text, "a token is needed"):
			text = "the souk that was asked wants a token: set SOUK_TOKEN, or name one with \"souk context\""
		case strings.HasPrefix(f.Text, "the token is not valid here"):
			text = "the souk that was asked does not take this token: set SOUK_TOKEN, or name one with " +
				"\"souk context\""
		}
	case fault.CodeWorkerNotFound:
		text = strings.Replace(f.Text, "see "+fmt.Sprint(api.ListWorkers), "\"souk node ls\" lists them", 1)
	case fault.CodeAppNotFound:
		if app := c.AppGiven(); app != "" && f.Text == "app not found" {
			text = fmt.Sprintf("there is no app %q; \"souk apps\" lists them", app)
		}
	}
	if text == "" || text == f.Text || err.Error() != f.Error() {
		return err
	}
	own := *f
	own.Text = text
	return &own
}
