package gateway

import (
	"slices"
	"strings"
	"testing"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/core/accounts"
	"github.com/soukhq/souk/fleet/buyers"
)

// TestAccountsAreSeenByThoseWhoMay: what Unix users did is shown to them and to admins, what others did to tokens of all
// apps, to those of the namespace, and to the token itself.
func TestAccountsAreSeenByThoseWhoMay(t *testing.T) {
	s := newShop(t, forUnixUsers()).open()
	desk := newDeskJobs()
	s.with(func(o *Options) { o.Tokens, o.Jobs = roleTokens{}, buyers.New(buyers.Options{Own: desk}) })
	alice, err := roleTokens{}.Judge("operator+alice")
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range [][3]string{{"POST", "/v1/souk/namespaces", `{"name":"ml"}`},
		{"POST", "/v1/apps", `{"app_name":"train","org_slug":"personal"}`},
		{"PUT", "/v1/souk/apps/train/namespace", `{"namespace":"ml"}`}} {
		if r := s.send(x[0], x[1], x[2], as("admin")); r.code/100 != 2 {
			t.Fatalf("%s: %d %s", x[1], r.code, r.raw)
		}
	}
	for _, k := range []accounts.Key{{Owner: "alice", Unix: true, UID: alice.UnixUser.UID},
		{Owner: "alice", Unix: true, UID: 99}, {Owner: "ci"}, {Owner: "t"},
		{Namespace: "ml", Owner: "nightly"}, {Owner: accounts.Others}} {
		k.Day = 20000
		desk.accounts = append(desk.accounts, accounts.Entry{Key: k, Sums: accounts.Sums{Jobs: 1}})
	}
	for who, want := range map[string]string{
		"admin":                     "alice alice ci nightly others t",
		"operator":                  "ci nightly t",
		"viewer":                    "ci nightly t",
		"viewer+alice":              "alice ci nightly t",
		"operator@unix-alice+alice": "alice t",
		"operator@unix-bob+bob":     "t",
		"operator@train":            "nightly t",
		"operator@train+bob":        "nightly t",
		"operator@default":          "t",
	} {
		var list api.AccountList
		s.send("GET", "/v1/souk/accounts?since=2024-01-01", nil, as(who)).into(t, &list)
		var got []string
		for _, l := range list.Accounts {
			got = append(got, l.Owner)
		}
		slices.Sort(got)
		if strings.Join(got, " ") != want {
			t.Errorf("%s sees the accounts of %v, not of %s", who, got, want)
		}
	}
	for _, query := range []string{"since=yesterday", "by=app"} {
		if r := s.send("GET", "/v1/souk/accounts?"+query, nil, as("admin")); r.code != 400 && r.code != 422 {
			t.Errorf("%s: %d %s", query, r.code, r.raw)
		}
	}
	var list api.AccountList
	s.send("GET", "/v1/souk/accounts?by=namespace", nil, as("admin")).into(t, &list)
	if len(list.Accounts) != 2 || list.Accounts[0].Jobs+list.Accounts[1].Jobs != 6 || list.Accounts[0].Day != nil {
		t.Errorf("by namespace: %+v", list)
	}
}
