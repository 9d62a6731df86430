package gateway

import (
	"net/http"

	"github.com/soukhq/souk/gossip"
)

// memberList is the answer to GET /v1/souk/members.
type memberList struct {
	Members []gossip.Member `json:"members"` // none: this process is alone
}

func (g *membersAPI) listMembers(w http.ResponseWriter, _ *http.Request) error {
	out := memberList{Members: []gossip.Member{}}
	if g.members != nil {
		out.Members = append(out.Members, g.members()...)
	}
	answer(w, http.StatusOK, out)
	return nil
}
