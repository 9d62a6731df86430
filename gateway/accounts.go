package gateway

import (
	"net/http"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/accounts"
	"github.com/soukhq/souk/fault"
)

// What the tasks of a Unix user did is seen by this user and admins. What others did is seen with a token of all apps,
// in a namespace but the default one also with a token of one of its apps, and with the token that the jobs came by.

// mayAccount reports whether a request may see an entry.
func (a *jobsAPI) mayAccount(r *http.Request, e *accounts.Entry) bool {
	q := of(r)
	for i := range q.who {
		t := &q.who[i]
		if !t.Role.May(q.to) {
			continue
		}
		user := e.User()
		own := user != nil && t.UnixUser != nil && *t.UnixUser == *user
		// Others has the sums of Unix users, too
		open := user == nil && e.Owner != accounts.Others || t.Role == api.RoleAdmin
		if own || open && (t.App == "" || a.isNamespaceOf(e.Namespace, t.App) || user == nil && e.Owner == t.Name) {
			return true
		}
	}
	return false
}

// isNamespaceOf reports whether an app is of a namespace other than the default one, which is everybody's.
func (a *jobsAPI) isNamespaceOf(namespace, app string) bool {
	if namespace == "" || namespace == cluster.DefaultNamespace {
		return false
	}
	space, err := a.catalog.NamespaceOf(app)
	return err == nil && space.Name == namespace
}

func (a *jobsAPI) listAccounts(w http.ResponseWriter, r *http.Request) error {
	b, err := a.buyerOrError()
	if err != nil {
		return err
	}
	invalid := func(err error) error {
		return fault.Wrap(err, fault.Invalid, codeAccounts, "these accounts cannot be listed")
	}
	since := accounts.Day(0)
	if text := r.URL.Query().Get("since"); text != "" {
		if since, err = accounts.ParseDay(text); err != nil {
			return invalid(err)
		}
	}
	by, err := accounts.ParseBy(r.URL.Query().Get("by"))
	if err != nil {
		return invalid(err)
	}
	list, silent, err := b.Accounts(r.Context(), since)
	if err != nil {
		return err
	}
	seen := list[:0]
	for i := range list {
		if a.mayAccount(r, &list[i]) {
			seen = append(seen, list[i])
		}
	}
	setMissing(w, workersOf(silent))
	answerJSON(w, http.StatusOK, api.AccountList{Accounts: accounts.Lines(seen, by)})
	return nil
}
