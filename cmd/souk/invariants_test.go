package main

import (
	"testing"

	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/gossip"
	"github.com/soukhq/souk/member"
	"github.com/soukhq/souk/runtime"
)

func TestDisagreement(t *testing.T) {
	is := func(worker, digest string) client.Examination {
		return client.Examination{Worker: worker, Findings: []runtime.Finding{{Name: member.FindingRegistry, Have: member.DigestWord + digest + ", of 2 workers"}}}
	}
	a, b := gossip.Member{ID: "a", State: gossip.Alive}, gossip.Member{ID: "b", State: gossip.Alive}
	dead := gossip.Member{ID: "b", State: gossip.Dead}
	for _, tc := range []struct {
		name    string
		members []gossip.Member
		ex      []client.Examination
		bad     int
	}{
		{"one", []gossip.Member{a, b}, []client.Examination{is("a", "1"), is("b", "1")}, 0},
		{"a process that is alone", nil, []client.Examination{{Worker: "a"}}, 0},
		{"other records", []gossip.Member{a, b}, []client.Examination{is("a", "1"), is("b", "2")}, 1},
		{"dead", []gossip.Member{a, dead}, []client.Examination{is("a", "1"), is("b", "1")}, 1},
		{"silent", []gossip.Member{a, b}, []client.Examination{is("a", "1"), {Worker: "b"}}, 1},
		{"never met", []gossip.Member{a}, []client.Examination{is("a", "1"), {Worker: "b"}}, 1},
	} {
		if why := disagreement(tc.members, tc.ex, digestsOf(tc.ex)); len(why) != tc.bad {
			t.Errorf("%s: %q, want %d", tc.name, why, tc.bad)
		}
	}
}
