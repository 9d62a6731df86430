package gateway

import (
	"net/http"
	"slices"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/store/catalog"
)

// A machine that was made by a Unix user is his, as a job is (see jobowners.go): of an operator's token that is not his
// every change of it is refused, and to read its output, to enter it or to copy its files.

// forOwner refuses requests about the machine of a Unix user by others than him and admins.
func (d *directory) forOwner(to api.Route, do handler) handler {
	if to.Verb.Reads() && to.Kind != api.KindLog {
		return do
	}
	return func(w http.ResponseWriter, r *http.Request) error {
		if err := d.checkOwner(r, to); err != nil {
			return err
		}
		return do(w, r)
	}
}

func (d *directory) checkOwner(r *http.Request, to api.Route) error {
	app := appOf(r)
	may := func(t api.Token) bool { return t.May(to, app) }
	if r.PathValue("id") == "" || slices.ContainsFunc(of(r).who, func(t api.Token) bool {
		return may(t) && t.Role == api.RoleAdmin
	}) {
		return nil
	}
	owner, err := d.unixUserOf(r)
	if fault.Is(err, fault.NotFound) {
		return nil // the handler says what is missing
	}
	if err != nil || owner == nil || slices.ContainsFunc(of(r).who, func(t api.Token) bool {
		return may(t) && t.UnixUser != nil && *t.UnixUser == *owner
	}) {
		return err
	}
	return fault.New(fault.Denied, fault.CodeOwner, "machine %s belongs to the Unix user %s: only %s and a token "+
		"with the role admin may do this", clipText(r.PathValue("id"), 80), owner.Name, owner.Name)
}

// unixUserOf returns the Unix user whose machine a request is about; nil: it is its app's. That never changes, so the
// fleet's report of it does; a destroyed machine is asked for at its worker.
func (d *directory) unixUserOf(r *http.Request) (*cluster.UnixUser, error) {
	app, id := r.PathValue("app"), r.PathValue("id")
	if x, known := d.Fleet.Snapshot().Machine(id); known && x.App == app {
		return x.UnixUser, nil
	}
	f, err := d.machineNamed(r)
	if err != nil {
		return nil, err
	}
	return f.Machine.UnixUser, nil
}

// checkAppsUser refuses a request that changes something in the own app of a Unix user, where it is not his, nor an
// admin's. It is for apps that no path names.
func checkAppsUser(r *http.Request, app string) error {
	q := of(r)
	if slices.ContainsFunc(q.who, func(t api.Token) bool { return t.May(q.to, app) }) || !api.IsUserApp(app) {
		return nil
	}
	return errUsersApp(q.to, app)
}

func errUsersApp(to api.Route, app string) error {
	return fault.New(fault.Denied, fault.CodeOwner,
		"the app %s is a Unix user's own, as all whose names begin so: only this user and a token with the role admin "+
			"may %s a %s there", app, to.Verb, to.Kind)
}

// settleOwnerOf sets in a launch whose machine it makes: the Unix user's of the token that may make it in an app.
func settleOwnerOf(r *http.Request, app string, l *machine.Launch) error {
	if err := checkAppsUser(r, app); err != nil {
		return err
	}
	q := of(r)
	l.UnixUser = nil
	for _, t := range q.who {
		if !t.May(q.to, app) {
			continue
		}
		if l.UnixUser = t.UnixUser; t.Role == api.RoleAdmin || t.UnixUser == nil {
			break
		}
		if u := machine.User(l.Config); u != "" && u != t.UnixUser.Name && machine.IsHostImage(l.Config.Image) {
			return fault.New(fault.Denied, fault.CodeOwner, "what the Unix user %s makes runs as %s, not as %s: leave "+
				"the user out", t.UnixUser.Name, t.UnixUser.Name, clipText(u, 80))
		}
		break
	}
	return nil
}

// ownAppMaker opens apps, and makes the own app of a Unix user.
type ownAppMaker interface {
	OpenApp(name string) (catalog.App, error)
	CreateApp(name, org, network, role string) (catalog.App, error)
}

// isSendersApp reports whether an app is the own one of the Unix user who sent a request. It is there once it is used.
func isSendersApp(r *http.Request, app string) bool {
	return slices.ContainsFunc(of(r).who, func(t api.Token) bool {
		return t.UnixUser != nil && t.App == app && api.AppOfUser(*t.UnixUser) == app
	})
}

// openAppFor is OpenApp, which makes the own app of the Unix user who asks when he first needs it.
func openAppFor(r *http.Request, apps ownAppMaker, name string) (catalog.App, error) {
	app, err := apps.OpenApp(name)
	if !fault.Is(err, fault.NotFound) || !isSendersApp(r, name) {
		return app, err
	}
	if app, err = apps.CreateApp(name, "", "", ""); fault.Is(err, fault.Conflict) {
		return apps.OpenApp(name) // another request made it
	}
	return app, err
}
