package lifecycle

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/soukhq/souk/machine"
)

// TestRowReadsBack: what is encoded once and kept is what the row holds, whatever was replaced since.
func TestRowReadsBack(t *testing.T) {
	small := &machine.Config{Image: "souk/host", Env: map[string]string{"A": "<&>\u2028"}}
	large := &machine.Config{Image: "souk/host", Env: map[string]string{"A": strings.Repeat("x", keptFixed)}}
	there := &machine.Placement{Policy: "spread", Worker: "w1"}
	r := &row{Machine: machine.Machine{ID: "0a", State: machine.Created, Config: small}}
	steps := []struct {
		name string
		do   func()
		kept bool
	}{
		{"as it is made", func() {}, true},
		{"another state", func() { r.Machine.State = machine.Started }, true},
		{"a placement", func() { r.Machine.Placement = there }, true},
		{"another config", func() { r.Machine.Config = &machine.Config{Image: "souk/host:2"} }, true},
		{"a config that is not kept", func() { r.Machine.Config = large }, false},
		{"and again", func() { r.Machine.State = machine.Stopped }, false},
		{"no placement", func() { r.Machine.Config, r.Machine.Placement = small, nil }, true},
	}
	for _, s := range steps {
		s.do()
		rec := r.record()
		got, err := decodeRow(rec)
		if err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
		if d := cmp.Diff(r.Machine, got.Machine); d != "" {
			t.Errorf("%s:\n%s", s.name, d)
		}
		if kept := r.fixed.text != nil; kept != s.kept {
			t.Errorf("%s: kept is %v", s.name, kept)
		}
		plain, err := json.Marshal(r)
		if err != nil || len(plain) != len(rec.Value) {
			t.Errorf("%s: the record has %d bytes, the row %d (%v):\n%s", s.name, len(rec.Value), len(plain), err, rec.Value)
		}
	}
}
