package runtime_test

import (
	"strings"
	"testing"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime"
)

// TestInvalidFilesAndDirectoriesAreRefused: what no host can give a program.
func TestInvalidFilesAndDirectoriesAreRefused(t *testing.T) {
	long := "/" + strings.Repeat("x", 4096)
	for name, c := range map[string]struct {
		dir             string
		files           runtime.Stdio
		container, kept bool
		code            fault.Code // "": it is accepted
		says            string
	}{
		"none": {"", runtime.Stdio{}, true, true, "", ""},
		"all": {"/a b", runtime.Stdio{In: "i", Out: "../o", Err: "/e", Append: true}, false, false,
			"", ""},
		"a terminal":         {"/srv", runtime.Stdio{}, false, true, "", ""},
		"files and terminal": {"", runtime.Stdio{In: "i"}, false, true, "stdio", "the terminal"},
		"of a container":     {"/srv", runtime.Stdio{}, true, false, "stdio", "those of its image"},
		"container's file":   {"", runtime.Stdio{Err: "e"}, true, false, "stdio", "those of its image"},
		"a relative one":     {"srv", runtime.Stdio{}, false, false, "path", `"srv"`},
		"a long one":         {long, runtime.Stdio{}, false, false, "path", "4096"},
		"a control":          {"/a\nb", runtime.Stdio{}, false, false, "path", `"/a\nb"`},
		"a NUL":              {"", runtime.Stdio{Out: "a\x00"}, false, false, "stdio", `"a\x00"`},
		"a long file":        {"", runtime.Stdio{Out: long}, false, false, "stdio", "4096"},
		"by the worker":      {"", runtime.Stdio{In: "i", InByWorker: true}, false, false, "stdio", "absolute"},
		"nothing by it":      {"", runtime.Stdio{InByWorker: true}, false, false, "stdio", "absolute"},
	} {
		err := c.files.Check(c.dir, c.container, c.kept)
		if c.code == "" && err == nil {
			continue
		}
		if fault.CodeOf(err) != c.code || !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v; want code %q and %q", name, err, c.code, c.says)
		}
	}
}
