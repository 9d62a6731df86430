package api

// The operations on tokens, and on evictions of members.
const (
	ListTokens  Op = "GET /v1/souk/tokens"
	MakeToken   Op = "POST /v1/souk/tokens"
	RevokeToken Op = "DELETE /v1/souk/tokens/{token}"

	EvictMember   Op = "POST /v1/souk/members/{member}/evict"
	CheckEviction Op = "GET /v1/souk/members/{member}/eviction"
)

func tokenRoutes() []Route {
	return []Route{
		{Op: ListTokens, Verb: VerbList, Kind: KindToken, About: "List the tokens of the API, without their secrets.",
			Out: TokenList{}},
		{Op: MakeToken, Verb: VerbCreate, Kind: KindToken,
			About: "Make a token, and tell its secret, which is told this once.", In: NewToken{}, Out: MadeToken{},
			Code: 201},
		{Op: RevokeToken, Verb: VerbDelete, Kind: KindToken,
			About: "Let a token in no more, by its id or its name, nor what was made with it.", Query: "by reason",
			Out: TokenList{}},
		{Op: EvictMember, Verb: VerbOperate, Kind: KindMember,
			About: "Take from who has a member's disk all that it lets them do; asked again, it carries on.",
			In:    EvictRequest{}, Out: MemberEviction{}},
		{Op: CheckEviction, Verb: VerbGet, Kind: KindMember,
			About: "Try at every member what the disk of a member that was removed lets who has it do.",
			Out:   EvictionCheck{}},
	}
}
