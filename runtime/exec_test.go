package runtime_test

import (
	"strings"
	"testing"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime"
)

func TestExecRequestIsValidated(t *testing.T) {
	for _, c := range []struct {
		name string
		q    runtime.ExecRequest
		code fault.Code // "": it is taken
	}{
		{"nothing", runtime.ExecRequest{}, ""},
		{"a name", runtime.ExecRequest{User: "postgres"}, ""},
		{"a name and a group", runtime.ExecRequest{User: "postgres:1000", Dir: "/var/lib/../lib"}, ""},
		{"an empty group", runtime.ExecRequest{User: "7:"}, ""},
		{"no user", runtime.ExecRequest{User: ":staff"}, "user"},
		{"two groups", runtime.ExecRequest{User: "a:b:c"}, "user"},
		{"a line", runtime.ExecRequest{User: "a\nb"}, "user"},
		{"a long user", runtime.ExecRequest{User: strings.Repeat("u", 257)}, "user"},
		{"a relative directory", runtime.ExecRequest{Dir: "srv"}, "path"},
		{"a zero byte", runtime.ExecRequest{Dir: "/a\x00b"}, "path"},
		{"a long directory", runtime.ExecRequest{Dir: "/" + strings.Repeat("d", 4096)}, "path"},
		{"attached as another", runtime.ExecRequest{User: "a", Attach: true}, "attach"},
		{"attached elsewhere", runtime.ExecRequest{Dir: "/", Attach: true}, "attach"},
		{"a terminal", runtime.ExecRequest{Dir: "/", Terminal: &runtime.Terminal{
			Terminal: machine.Terminal{Term: strings.Repeat("x", 1000)}}}, "terminal"},
	} {
		if err := c.q.Check(); fault.CodeOf(err) != c.code || err != nil && !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v, want the code %q", c.name, err, c.code)
		}
	}
}
