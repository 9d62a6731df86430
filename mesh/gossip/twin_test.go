package gossip

import (
	"net"
	"slices"
	"testing"

	"github.com/hashicorp/memberlist"
)

// TestSuspicionOfOurIDElsewhereIsTold: a suspicion about another process with our id is reported before that process
// counts as alive, so that a starting member asks it first.
func TestSuspicionOfOurIDElsewhereIsTold(t *testing.T) {
	var told []string
	m := start(t, Options{Self: "a", Conflict: func(_, api string) { told = append(told, api) }})
	node := func(name, ip string, state memberlist.NodeStateType) *memberlist.Node {
		return &memberlist.Node{Name: name, Addr: net.ParseIP(ip), Port: 1, State: state,
			Meta: []byte(`{"a":"https://` + name + `-` + ip + `"}`)}
	}
	err := delegate{m.Cluster}.NotifyMerge([]*memberlist.Node{node("a", "10.0.0.1", memberlist.StateSuspect),
		node("a", "10.0.0.2", memberlist.StateDead), node("b", "10.0.0.3", memberlist.StateSuspect),
		node("a", "10.0.0.4", memberlist.StateLeft)})
	if err != nil || !slices.Equal(told, []string{"https://a-10.0.0.1", "https://a-10.0.0.2"}) {
		t.Errorf("told of %v, %v", told, err)
	}
	if conf := m.memberlistConfig(); conf.Merge == nil {
		t.Error("memberlist does not tell whom others know")
	}
}
