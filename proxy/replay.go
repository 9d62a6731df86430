package proxy

import (
	"errors"
	"strings"

	"github.com/soukhq/souk/core/routing"
	"github.com/soukhq/souk/fault"
)

// maxReplays bounds how often one request is handed on.
const maxReplays = 5

var errReplay = errors.New("the request is to be handed on") //nolint:gochecknoglobals // a constant

// replay says where an app wants a request to go instead.
type replay struct {
	app string
	ask routing.Ask
}

// replayOf reads the header Fly-Replay of an answer: "instance=ID", "region=R", "app=A", "elsewhere=true", "state=S",
// separated by semicolons. An app may hand requests on to its own machines, and to another app with an HTTP service,
// which the client could have asked itself.
func (x *exchange) replayOf(v string) (*replay, error) {
	out := &replay{app: x.key.app, ask: routing.Ask{Source: sourceOf(x.client)}}
	state := ""
	for part := range strings.SplitSeq(v, ";") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		value = strings.TrimSpace(value)
		switch strings.ToLower(strings.TrimSpace(name)) {
		case "instance":
			out.ask.Only = value
		case "region", "prefer_region":
			out.ask.Region = regionOf(value)
		case "app":
			if value != "" {
				out.app = strings.ToLower(value)
			}
		case "elsewhere":
			if value == "true" {
				out.ask.Not = x.backend.Machine
			}
		case "state":
			state = value
		case "prefer_instance", "timeout", "fallback", "":
		default:
			return nil, fault.New(fault.Unavailable, codeBadAnswer,
				"machine %s answered with the header fly-replay, which has no field %.40q", x.backend.Machine, name)
		}
	}
	if len(state) > 1024 || strings.ContainsAny(state, "\r\n\x00") {
		return nil, fault.New(fault.Unavailable, codeBadAnswer,
			"machine %s answered with a fly-replay whose state is longer than 1024 bytes, or no text",
			x.backend.Machine)
	}
	x.replayed = "instance=" + x.backend.Machine + ";region=" + string(x.p.o.Region) + ";state=" + state
	return out, nil
}
