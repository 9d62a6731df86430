package api

import "testing"

// TestRolesAllowOnlyTheirVerbsAndKinds: what each role may not, by verb and kind of all routes.
func TestRolesAllowOnlyTheirVerbsAndKinds(t *testing.T) {
	for _, r := range Routes() {
		reads := r.Verb == VerbList || r.Verb == VerbGet || r.Verb == VerbWatch || r.Verb == VerbPlan
		want := map[Role]bool{RoleAdmin: true, RoleOperator: true, RoleViewer: reads, "": r.Open, "king": r.Open}
		switch r.Kind {
		case KindToken:
			want[RoleOperator], want[RoleViewer] = false, false
		case KindPolicy:
			want[RoleOperator] = reads
		}
		for role, may := range want {
			if role.May(r) != may {
				t.Errorf("%q may %s: %v, not %v", role, r.Op, !may, may)
			}
		}
		if l := Least(r); !l.May(r) || want[RoleViewer] != (l == RoleViewer) {
			t.Errorf("%s needs %s", r.Op, l)
		}
	}
}
