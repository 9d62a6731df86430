package jobs

import (
	"reflect"
	"slices"
	"testing"

	"github.com/soukhq/souk/cluster"
	"pgregory.net/rapid"
)

// TestConditionTextIsCanonical: it says the same, whatever their order, and is read back as what it was written from.
func TestConditionTextIsCanonical(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		drawn := rapid.Custom(func(t *rapid.T) cluster.Requirement {
			ops := []cluster.Op{cluster.Equal, cluster.AtLeast, cluster.Exists, cluster.In}
			q := cluster.Requirement{Attribute: rapid.SampledFrom([]string{"a", "b", "in"}).Draw(t, "attribute"),
				Op: rapid.SampledFrom(ops).Draw(t, "op")}
			if q.Op != cluster.Exists {
				q.Values = []cluster.Value{cluster.Text(rapid.StringN(0, 9, 30).Draw(t, "value"))}
			}
			return q
		})
		list := slices.DeleteFunc(rapid.SliceOfN(drawn, 0, 5).Draw(t, "list"),
			func(q cluster.Requirement) bool { return q.Valid() != "" })
		text := conditionText(list)
		if other := conditionText(rapid.Permutation(slices.Clone(list)).Draw(t, "order")); other != text {
			t.Fatalf("%q and %q", text, other)
		}
		back, ok := parseConditions(text)
		if !ok || conditionText(back) != text {
			t.Fatalf("%q is read back as %v, %v", text, back, ok)
		}
		for _, q := range list {
			if !slices.ContainsFunc(back, func(b cluster.Requirement) bool { return reflect.DeepEqual(b, q) }) {
				t.Fatalf("%v is not in %v", q, back)
			}
		}
	})
}
