package bench

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"
)

func TestQuantilePicksP50AndP99(t *testing.T) {
	var ds []time.Duration
	for i := 100; i >= 1; i-- {
		ds = append(ds, time.Duration(i)*time.Millisecond)
	}
	if p50, p99 := Quantile(ds, 0.5), Quantile(ds, 0.99); p50 != 50 || p99 != 99 {
		t.Errorf("p50 %v, p99 %v", p50, p99)
	}
	if one := Quantile([]time.Duration{time.Millisecond}, 0.99); one != 1 {
		t.Errorf("of one: %v", one)
	}
}

// The keys of a row of launches are fixed: programs read them.
func TestBenchRowKeysAreStable(t *testing.T) {
	raw, err := json.Marshal(timedRow("x", []time.Duration{2}, []time.Duration{1}))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	dec := json.NewDecoder(bytes.NewReader(raw))
	for dec.More() {
		tok, err := dec.Token()
		if err != nil {
			t.Fatal(err)
		}
		if s, is := tok.(string); is && s != "x" {
			got = append(got, s)
		}
	}
	want := "name n p50_ms p99_ms floor_p50_ms ratio_p50 ratio_p99 per_second floor_per_second"
	if strings.Join(got, " ") != want {
		t.Errorf("keys are %v, want %s", got, want)
	}
}
