package fault_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/soukhq/souk/fault"
)

type verdict struct{ needs int }

// TestDetailIsFoundByTypeOnTheOuterFault: a detail is found by its type, on the outermost fault alone.
func TestDetailIsFoundByTypeOnTheOuterFault(t *testing.T) {
	no := &fault.Error{Kind: fault.Exhausted, Text: "full", Detail: verdict{3}}
	for name, tt := range map[string]struct {
		err  error
		want int // 0: none
	}{
		"nothing":           {nil, 0},
		"no fault":          {errors.New("full"), 0},
		"a nil fault":       {(*fault.Error)(nil), 0},
		"none":              {fault.New(fault.Exhausted, "", "full"), 0},
		"another type":      {&fault.Error{Detail: &verdict{3}}, 0},
		"it":                {no, 3},
		"inside of another": {fmt.Errorf("asked: %w", no), 3},
		"of the cause":      {fault.Wrap(no, fault.Internal, "", "not asked"), 0},
	} {
		d, is := fault.Detail[verdict](tt.err)
		if d.needs != tt.want || is != (tt.want > 0) {
			t.Errorf("%s: %v, %v", name, d, is)
		}
	}
}
