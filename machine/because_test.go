package machine_test

import (
	"testing"

	"github.com/soukhq/souk/machine"
)

func TestBecauseReportsTheReasonOfAnExit(t *testing.T) {
	exit := machine.Event{Request: &machine.EventRequest{ExitEvent: &machine.ExitEvent{ExitCode: 3}}}
	for _, tt := range []struct {
		name   string
		events []machine.Event
		want   string
	}{
		{"no event", nil, ""},
		{"events without a reason", []machine.Event{{Type: "start"}}, ""},
		{"the newest first", []machine.Event{{Type: "start"}, {Message: "no room"}, exit}, ": no room"},
		{"no warning", []machine.Event{{Type: machine.EventWarning, Message: "odd"}, {Message: "older"}}, ": older"},
		{"no check", []machine.Event{{Type: machine.EventCheck, Message: "it passes"}, {Message: "older"}}, ": older"},
		{"an exit", []machine.Event{exit, {Message: "older"}}, ": its program ended with exit code 3"},
	} {
		m := machine.Machine{Events: tt.events}
		if got := m.Because(); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}
