package api

// The operations on tokens, and on members that are to lose all that theirs let them do.
const (
	ListTokens  Op = "GET /v1/souk/tokens"
	MakeToken   Op = "POST /v1/souk/tokens"
	RevokeToken Op = "DELETE /v1/souk/tokens/{token}"
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
	}
}
