package cluster_test

import (
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/soukhq/souk/cluster"
)

var (
	names = rapid.StringMatching(`[A-Za-z0-9._/-]{1,12}`)
	texts = rapid.OneOf(rapid.SampledFrom([]string{"", "true", "1", "a,b", `"`, ` a`, "=x", "!", "in", "NaN", "-0",
		"0x10", "1e400", "é", "\n"}), rapid.String())
)

func values(t *rapid.T, label string) cluster.Value {
	switch rapid.IntRange(0, 2).Draw(t, label) {
	case 0:
		return cluster.Number(rapid.Float64Range(-math.MaxFloat64, math.MaxFloat64).Draw(t, label))
	case 1:
		return cluster.Truth(rapid.Bool().Draw(t, label))
	}
	return cluster.Text(strings.ToValidUTF8(texts.Draw(t, label), "?"))
}

func requirements(t *rapid.T) cluster.Requirement {
	q := cluster.Requirement{Attribute: names.Draw(t, "attribute"),
		Op: rapid.SampledFrom([]cluster.Op{cluster.Equal, cluster.Unequal, cluster.Less,
			cluster.AtMost, cluster.More, cluster.AtLeast, cluster.In, cluster.NotIn, cluster.Exists,
			cluster.NotExists}).Draw(t, "op")}
	n := 1
	switch q.Op {
	case cluster.In, cluster.NotIn:
		n = rapid.IntRange(1, 4).Draw(t, "values")
	case cluster.Exists, cluster.NotExists:
		n = 0
	}
	for range n {
		q.Values = append(q.Values, values(t, "value"))
	}
	return q
}

func TestParseRequirementAcceptsUserSpellings(t *testing.T) {
	for _, c := range []struct {
		in   string
		want cluster.Requirement
	}{
		{"arch == arm64", cluster.Requirement{Attribute: "arch", Op: cluster.Equal,
			Values: []cluster.Value{cluster.Text("arm64")}}},
		{"arch==arm64", cluster.Requirement{Attribute: "arch", Op: cluster.Equal,
			Values: []cluster.Value{cluster.Text("arm64")}}},
		{"arch ==arm64", cluster.Requirement{Attribute: "arch", Op: cluster.Equal,
			Values: []cluster.Value{cluster.Text("arm64")}}},
		{"gpu.count>=2", cluster.Requirement{Attribute: "gpu.count", Op: cluster.AtLeast,
			Values: []cluster.Value{cluster.Number(2)}}},
		{"zone in a, b,c", cluster.Requirement{Attribute: "zone", Op: cluster.In,
			Values: []cluster.Value{cluster.Text("a"), cluster.Text("b"), cluster.Text("c")}}},
		{"min in a,b", cluster.Requirement{Attribute: "min", Op: cluster.In,
			Values: []cluster.Value{cluster.Text("a"), cluster.Text("b")}}},
		{`zone not_in "a,b",c`, cluster.Requirement{Attribute: "zone", Op: cluster.NotIn,
			Values: []cluster.Value{cluster.Text("a,b"), cluster.Text("c")}}},
		{"memory.ecc", cluster.Requirement{Attribute: "memory.ecc", Op: cluster.Exists}},
		{"exists in", cluster.Requirement{Attribute: "in", Op: cluster.Exists}},
		{"!spot", cluster.Requirement{Attribute: "spot", Op: cluster.NotExists}},
		{"absent spot", cluster.Requirement{Attribute: "spot", Op: cluster.NotExists}},
		{`name == "true"`, cluster.Requirement{Attribute: "name", Op: cluster.Equal,
			Values: []cluster.Value{cluster.Text("true")}}},
		{"ssd != true", cluster.Requirement{Attribute: "ssd", Op: cluster.Unequal,
			Values: []cluster.Value{cluster.Truth(true)}}},
		{"note == two words", cluster.Requirement{Attribute: "note", Op: cluster.Equal,
			Values: []cluster.Value{cluster.Text("two words")}}},
	} {
		q, err := cluster.ParseRequirement(c.in)
		if err != nil || !reflect.DeepEqual(q, c.want) {
			t.Errorf("%q: %+v, %v", c.in, q, err)
		}
	}
}

func TestParseRequirementErrorsSayWhatIsWrong(t *testing.T) {
	for in, want := range map[string]string{
		"":                                     `attribute name ""`,
		"a b":                                  `operator "b" of attribute a: use one of ==`,
		"a ~ b":                                `operator "" of attribute a`,
		"a =< 3":                               `operator "=<"`,
		"a ==":                                 "a == takes 1 to 1 values, not 0",
		"a in":                                 "a in takes 1 to 64 values, not 0",
		"== 3":                                 `attribute name "== 3"`,
		"!":                                    `attribute name ""`,
		"a == " + strings.Repeat("x", 300):     "holds 300 bytes; at most 256",
		"a == \xff":                            "not UTF-8",
		strings.Repeat("x", 65) + " == 1":      "use 1 to 64 letters",
		"a in " + strings.Repeat("x,", 70):     "takes 1 to 64 values, not 71",
		"a[0] == 3":                            `operator ""`,
		"exists " + strings.Repeat("long", 20): "use one of",
	} {
		if _, err := cluster.ParseRequirement(in); err == nil || !strings.Contains(err.Error(), want) ||
			!strings.HasPrefix(err.Error(), "the requirement ") {
			t.Errorf("%q: %v, want %q in it", in, err, want)
		}
	}
}

func TestRequirementRoundTripsThroughItsText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := requirements(t)
		back, err := cluster.ParseRequirement(q.String())
		if err != nil || !reflect.DeepEqual(q, back) {
			t.Fatalf("%+v prints as %q, which reads as %+v, %v", q, q, back, err)
		}
	})
}

func TestValueRoundTripsThroughTextAndJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v, o := values(t, "v"), values(t, "o")
		if back := cluster.ParseValue(v.String()); back != v {
			t.Fatalf("%#v prints as %s, which reads as %#v", v, v, back)
		}
		if (v.String() == o.String()) != (v == o) {
			t.Fatalf("%#v and %#v print as %s and %s", v, o, v, o)
		}
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		var back cluster.Value
		if err := json.Unmarshal(b, &back); err != nil || back != v {
			t.Fatalf("%#v is %s in JSON, which reads as %#v, %v", v, b, back, err)
		}
	})
}

func TestValueJSONAcceptsOnlyStringNumberOrBool(t *testing.T) {
	for _, s := range []string{"null", "[]", "{}", "[1]", "1e999", "NaN", "Infinity", "", `"`} {
		var v cluster.Value
		if err := json.Unmarshal([]byte(s), &v); s != "null" && err == nil {
			t.Errorf("%s was taken as %v", s, v)
		}
	}
	var a cluster.Attributes
	if err := json.Unmarshal([]byte(`{"a":{"b":1}}`), &a); err == nil ||
		!strings.Contains(err.Error(), "an attribute is a text, a number, or true or false") {
		t.Error(err)
	}
}

func TestValuesOfOneTypeHaveATotalOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := values(t, "a"), values(t, "b"), values(t, "c")
		ab, ok := a.Compare(b)
		ba, ok2 := b.Compare(a)
		if ok != ok2 || ok != (a.Type() == b.Type() && a.Type() != "truth") {
			t.Fatalf("%v and %v: comparable %v and %v", a, b, ok, ok2)
		}
		if ok && (ab != -ba || (ab == 0) != (a == b)) {
			t.Fatalf("%v and %v: %d and %d", a, b, ab, ba)
		}
		bc, ok3 := b.Compare(c)
		if ac, _ := a.Compare(c); ok && ok3 && ab <= 0 && bc <= 0 && ac > 0 {
			t.Fatalf("%v <= %v <= %v, and the first is not <= the last", a, b, c)
		}
	})
}

// TestUndefinedRequirementSatisfiesNothing: neither where the attribute is not there, nor where it has another type,
// and no operator and its opposite are both met.
func TestUndefinedRequirementSatisfiesNothing(t *testing.T) {
	opposite := map[cluster.Op]cluster.Op{cluster.Equal: cluster.Unequal, cluster.Less: cluster.AtLeast,
		cluster.AtMost: cluster.More,
		cluster.In:     cluster.NotIn, cluster.Exists: cluster.NotExists}
	rapid.Check(t, func(t *rapid.T) {
		q, v := requirements(t), values(t, "had")
		presence := q.Op == cluster.Exists || q.Op == cluster.NotExists
		if got := q.Of(v, false); !presence && got != cluster.Undefined {
			t.Fatalf("%s of nothing is %v", q, got)
		}
		other := true
		for _, w := range q.Values {
			other = other && w.Type() != v.Type()
		}
		if got := q.Of(v, true); !presence && other && got != cluster.Undefined {
			t.Fatalf("%s of %v is %v", q, v, got)
		}
		if op, has := opposite[q.Op]; has {
			p := cluster.Requirement{Attribute: q.Attribute, Op: op, Values: q.Values}
			x, y := q.Of(v, true), p.Of(v, true)
			if (x == cluster.Undefined) != (y == cluster.Undefined) ||
				(x != cluster.Undefined && (x == cluster.Met) == (y == cluster.Met)) {
				t.Fatalf("%s is %v and %s is %v of %v", q, x, p, y, v)
			}
		}
	})
}

func TestNonFiniteNumbersAreRefused(t *testing.T) {
	for _, f := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		v := cluster.Number(f)
		if why := (cluster.Attributes{"a": v}).Valid(); why != "attribute a holds a number that is not finite" {
			t.Errorf("%v: %q", f, why)
		}
		if why := (cluster.Requirement{Attribute: "a", Op: cluster.Less,
			Values: []cluster.Value{v}}).Valid(); why != "a <: a value holds a number that is not finite" {
			t.Errorf("%v: %q", f, why)
		}
		if q := cluster.ParseValue(v.String()); q.Type() != "text" {
			t.Errorf("%v reads as the %s %v", f, q.Type(), q)
		}
	}
	if cluster.Number(math.Copysign(0, -1)) != cluster.Number(0) ||
		cluster.Number(math.Copysign(0, -1)).String() != "0" {
		t.Error("the two zeros differ")
	}
}

func TestAttributesAreBounded(t *testing.T) {
	many := cluster.Attributes{}
	for i := range cluster.MaxAttributes + 1 {
		many["a"+strings.Repeat("x", i%60)+strings.Repeat("y", i/60)] = cluster.Truth(true)
	}
	for want, a := range map[string]cluster.Attributes{
		"":                                   {"arch": cluster.Text("arm64")},
		"257 attributes are too many":        many,
		`attribute name "a b": use 1 to 64`:  {"a b": cluster.Text("")},
		"attribute a holds 257 bytes":        {"a": cluster.Text(strings.Repeat("x", 257))},
		"attribute a holds a text that is n": {"a": cluster.Text("\xff")},
	} {
		if got := a.Valid(); !strings.HasPrefix(got, want) || (want == "") != (got == "") {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func FuzzParseRequirementRoundTrips(f *testing.F) {
	for _, s := range []string{"arch == arm64", "zone in a,b", `a not_in "x,y", z`, "!spot", "exists exists", "a=<>!b",
		`a == "\xff"`, "a in ,", "in in in"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		q, err := cluster.ParseRequirement(s)
		if err != nil {
			return
		}
		back, err := cluster.ParseRequirement(q.String())
		if err != nil || !reflect.DeepEqual(q, back) {
			t.Fatalf("%q reads as %+v, prints as %q, which reads as %+v, %v", s, q, q, back, err)
		}
		q.Of(cluster.Text(s), true)
	})
}

// FuzzRecordJSONRoundTrips: what decodes is written and read back as it was, and can be reckoned with.
func FuzzRecordJSONRoundTrips(f *testing.F) {
	f.Add([]byte(`{"worker":"w","state":"ready","capacity":{"cpu_milli":1000,"named":{"x":3}},"attributes":{"a":1,"b":"t","c":true},"gpus":[{"kind":"a","free_milli":3}]}`))
	f.Add([]byte(`{"require":[{"attribute":"a","op":"in","values":[1,"x"]}],"prefer":[{"attribute":"b","op":"exists","weight":-3}],"apps":{"a":-1},"volumes":{"v":""}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var r, back cluster.Record
		if json.Unmarshal(b, &r) != nil {
			return
		}
		out, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err) // every record can be told
		}
		if err := json.Unmarshal(out, &back); err != nil {
			t.Fatalf("%s: %v", out, err)
		}
		again, err := json.Marshal(back)
		if err != nil || string(again) != string(out) {
			t.Fatalf("%s\n%s\n%v", out, again, err)
		}
		_, _, _, _ = r.Free(), r.Newer(back), r.Attributes.Valid(), r.Capacity.String()
		for i := range r.Require {
			_ = r.Require[i].String()
			_ = r.Require[i].Valid()
		}
	})
}
