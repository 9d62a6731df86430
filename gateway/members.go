package gateway

import (
	"net/http"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cluster"
)

func (g *membersAPI) listMembers(w http.ResponseWriter, _ *http.Request) error {
	out := api.MemberList{Members: []cluster.Member{}}
	if g.members != nil {
		out.Members = append(out.Members, g.members()...)
	}
	answer(w, http.StatusOK, out)
	return nil
}
