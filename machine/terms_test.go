package machine_test

import (
	"encoding/json"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/soukhq/souk/machine"
)

// Terms are written as a map of the same names and values is.
func TestTermsEncodeAsAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.OneOf(rapid.Float64(), rapid.SampledFrom([]float64{0, math.Copysign(0, -1),
			1e21, 1e-6, -1e-7, 52.999999488,
			math.Inf(1), math.NaN()}))
		m := rapid.MapOf(rapid.String(), value).Draw(t, "terms")
		var ts machine.Terms
		for name, v := range m {
			ts = ts.Set(name, v)
		}
		want, err := json.Marshal(m)
		got, err2 := json.Marshal(ts)
		if (err == nil) != (err2 == nil) || (err == nil && ts != nil && string(got) != string(want)) {
			t.Fatalf("%s, %v; a map is %s, %v", got, err2, want, err)
		}
	})
}
