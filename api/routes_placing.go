package api

import (
	"github.com/soukhq/souk/core/market"
	"github.com/soukhq/souk/machine"
)

// The operations on where machines go and why: gangs, plans, the market, decisions, policies.
const (
	CreateGang         Op = "POST /v1/souk/apps/{app}/gangs"
	PlanLaunch         Op = "POST /v1/souk/apps/{app}/plan"
	ListRegions        Op = "GET /v1/platform/regions"
	SimulatePlacements Op = "POST /v1/platform/placements"
	QuoteAt            Op = "POST /v1/souk/workers/{worker}/quote"
	HoldAt             Op = "POST /v1/souk/workers/{worker}/holds"
	ReleaseAt          Op = "DELETE /v1/souk/workers/{worker}/holds/{hold}"
	GrantAt            Op = "POST /v1/souk/workers/{worker}/machines"
	ExplainMachine     Op = "GET /v1/souk/apps/{app}/machines/{id}/explain"
	ListDecisions      Op = "GET /v1/souk/decisions"
	GetDecision        Op = "GET /v1/souk/decisions/{decision}"
	ListPolicies       Op = "GET /v1/souk/policies"
	ApplyPolicy        Op = "POST /v1/souk/policies"
	GetPolicy          Op = "GET /v1/souk/policies/{policy}"
	DeletePolicy       Op = "DELETE /v1/souk/policies/{policy}"
	RollbackPolicy     Op = "POST /v1/souk/policies/{policy}/rollback"
	PlanPolicy         Op = "POST /v1/souk/policy-plan"
	ChoosePolicies     Op = "PUT /v1/souk/policy-choice"
)

func placingRoutes() []Route {
	return []Route{
		{Op: CreateGang, Verb: VerbCreate, Kind: KindMachine,
			About: "Create several machines that start together, or none.", In: GangRequest{}, Out: Gang{}},
		{Op: PlanLaunch, Verb: VerbPlan, Kind: KindMachine,
			About: "Say what a launch would meet now, and what would help; nothing is reserved.",
			In:    machine.Launch{}, Out: Plan{}},
		{Op: ListRegions, Verb: VerbList, Kind: KindRegion, About: "List the regions that have workers.",
			Query: "size", Out: RegionList{}},
		{Op: SimulatePlacements, Verb: VerbPlan, Kind: KindMachine,
			About: "Say where machines would go now; nothing is reserved.",
			In:    PlacementsRequest{}, Out: Placements{}},
		{Op: QuoteAt, Verb: VerbPlan, Kind: KindMachine,
			About: "Ask a worker what it would say to a launch; nothing is reserved.", In: Bid{}, Out: market.Quote{}},
		{Op: HoldAt, Verb: VerbCreate, Kind: KindHold, About: "Have a worker keep room for a launch for a while.",
			In: Bid{}, Out: Held{}},
		{Op: ReleaseAt, Verb: VerbDelete, Kind: KindHold, About: "Give held room back.", Out: OK{}},
		{Op: GrantAt, Verb: VerbCreate, Kind: KindMachine,
			About: "Create a machine at a worker, with or without a hold.", In: Bid{}, Out: machine.Machine{}},
		{Op: ExplainMachine, Verb: VerbGet, Kind: KindDecision,
			About: "Say why a machine is where it is, or was, and what each worker would say now.",
			Query: "decision", Out: Explanation{}},
		{Op: ListDecisions, Verb: VerbList, Kind: KindDecision,
			About: "List decisions, newest first, those that placed nothing too.",
			Query: "app machine outcome since limit cursor", Out: DecisionPage{}},
		{Op: GetDecision, Verb: VerbGet, Kind: KindDecision, About: "Return one decision and its explanation.",
			Out: ExplainedDecision{}},
		{Op: ListPolicies, Verb: VerbList, Kind: KindPolicy, About: "List the policies of placement.",
			Out: PolicyList{}},
		{Op: ApplyPolicy, Verb: VerbUpdate, Kind: KindPolicy,
			About: "Put a policy file in force, as the next version of its policy.",
			In:    PolicyText{}, Out: PolicyApplied{}},
		{Op: GetPolicy, Verb: VerbGet, Kind: KindPolicy, About: "Return a policy's file and its versions.",
			Query: "version", Out: PolicyFile{}},
		{Op: DeletePolicy, Verb: VerbDelete, Kind: KindPolicy, About: "Take out a policy that nobody uses.",
			Out: OK{}},
		{Op: RollbackPolicy, Verb: VerbUpdate, Kind: KindPolicy,
			About: "Put an earlier version of a policy in force again.", In: Rollback{}, Out: PolicyApplied{}},
		{Op: PlanPolicy, Verb: VerbPlan, Kind: KindPolicy,
			About: "Say what a policy would place elsewhere; nothing is changed.",
			In:    PolicyQuestion{}, Out: PolicyPlan{}},
		{Op: ChoosePolicies, Verb: VerbUpdate, Kind: KindPolicy,
			About: "Choose the default policy and the shadow.", In: PolicyChoice{}, Out: PolicyList{}},
	}
}
