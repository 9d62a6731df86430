package api_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/machine"
)

func TestMachineLinesRoundTrip(t *testing.T) {
	two := []machine.Line{{ID: "1", Name: "web", Command: `sh -c "a & b"`}, {ID: "2", CPUs: 3}}
	for _, p := range []api.MachineLines{{Machines: []machine.Line{}}, {Machines: two}, {Machines: two, NextCursor: `"2`}} {
		text := p.AppendJSON(nil)
		if want, err := json.Marshal(p); err != nil || string(text) != string(want) {
			t.Errorf("written %s, encoding/json has %s, %v", text, want, err)
		}
		var got api.MachineLines
		if err := got.UnmarshalJSON(append(text, '\n')); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(p, got); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	}
}

func TestMachineLinesReadAnyValidJSON(t *testing.T) {
	for text, want := range map[string]*api.MachineLines{
		`{ "machines": [ {"id": "1", "new": {}} ] }`:      {Machines: []machine.Line{{ID: "1"}}},
		`{"next_cursor":"1","machines":[{"id":"1"}]}`:     {Machines: []machine.Line{{ID: "1"}}, NextCursor: "1"},
		`{"machines":[{"id":"1"}],"new":[],"also":{}}`:    {Machines: []machine.Line{{ID: "1"}}},
		`{"machines":[{"id":"1"}],"machines":[]}`:         {Machines: []machine.Line{}},
		`{"machines":null}`:                               {},
		`{"machines":[{"id":"1"}],}`:                      nil,
		`{"machines":[{"id":"1"}]"next_cursor":"1"}`:      nil,
		`{"machines":[{"id":"1"}]`:                        nil,
		`{"machines":[{"id":"1"}]}}`:                      nil,
		`{"machines":[{"id":1}]}`:                         nil,
		`{"machines":[{"id":"1"}],"next_cursor":{}}`:      nil,
		`{"machines":[{"id":"1"}],"next_cursor":"1"}more`: nil,
	} {
		var got api.MachineLines
		err := got.UnmarshalJSON([]byte(text))
		if (err == nil) != (want != nil) {
			t.Errorf("%s: %v", text, err)
		}
		if want != nil {
			if d := cmp.Diff(*want, got); d != "" {
				t.Errorf("%s (-want +got):\n%s", text, d)
			}
		}
	}
}
