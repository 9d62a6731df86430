package gateway

import (
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/broker/known"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/quota"
	"github.com/soukhq/souk/store/catalog"
)

// namespacesAPI serves namespaces with their budgets and what they spend.
type namespacesAPI struct {
	catalog  namespaceCatalog
	accounts known.Accounts
}

// namespaceCatalog is what namespacesAPI needs of the catalog.
type namespaceCatalog interface {
	App(name string) (catalog.App, error)
	AppsByNamespace() map[string][]string
	AllNamespaces() []catalog.Namespace
	Namespace(name string) (catalog.Namespace, error)
	NamespaceOf(app string) (catalog.Namespace, error)
	CreateNamespace(name string) error
	DeleteNamespace(name string) error
	SetNamespace(app, name string) error
	SetQuota(name string, b *quota.Budget, weight float64, most quota.Caps) error
	Price() quota.Price
	SetPrice(p quota.Price) error
}

func (a *namespacesAPI) opHandlers() handlers {
	return handlers{
		"GET /v1/souk/namespaces":                   a.listNamespaces,
		"POST /v1/souk/namespaces":                  a.createNamespace,
		"DELETE /v1/souk/namespaces/{namespace}":    a.deleteNamespace,
		"GET /v1/souk/namespaces/{namespace}/quota": a.getQuota,
		"PUT /v1/souk/namespaces/{namespace}/quota": a.setQuota,
		"GET /v1/souk/price":                        a.getPrice,
		"PUT /v1/souk/price":                        a.setPrice,
		"GET /v1/souk/apps/{app}/namespace":         a.getAppNamespace,
		"PUT /v1/souk/apps/{app}/namespace":         a.setAppNamespace,
	}
}

// namespacesNow returns namespaces with their current accounts.
func (a *namespacesAPI) namespacesNow(rows []catalog.Namespace) []api.Namespace {
	told := a.accounts.Spendings()
	apps := a.catalog.AppsByNamespace()
	now := time.Now()
	out := make([]api.Namespace, 0, len(rows))
	for _, n := range rows {
		i := api.Namespace{Name: n.Name, Apps: apps[n.Name], Budget: n.Budget, Weight: n.Weight, Max: n.Max,
			Workers: []api.WorkerSpending{}}
		if i.Weight == 0 {
			i.Weight = 1
		}
		if i.Apps == nil {
			i.Apps = []string{}
		}
		var all []cluster.Spending
		for _, id := range slices.Sorted(maps.Keys(told)) {
			if s, some := told[id][n.Name]; some {
				all = append(all, s)
				i.Workers = append(i.Workers, api.WorkerSpending{Worker: id, Spending: s})
			}
		}
		var b quota.Budget
		if n.Budget != nil {
			b = *n.Budget
		}
		account, sum := quota.Of(b, all, now), quota.Fold(b, all, now)
		i.Spent, i.Lent, i.Rate, i.LentRate, i.Used, i.Machines = account.Spent, account.Lent, account.Rate,
			sum.LentRate, account.Used, sum.Machines
		if n.Budget != nil {
			balance := account.Balance()
			i.Owed, i.Balance = account.Owed, &balance
		}
		out = append(out, i)
	}
	return out
}

func (a *namespacesAPI) listNamespaces(w http.ResponseWriter, _ *http.Request) error {
	answerJSON(w, http.StatusOK, api.NamespaceList{Namespaces: a.namespacesNow(a.catalog.AllNamespaces())})
	return nil
}

func (a *namespacesAPI) createNamespace(w http.ResponseWriter, r *http.Request) error {
	var in api.NewNamespace
	if err := readJSON(w, r, &in, false); err != nil {
		return err
	}
	if err := a.catalog.CreateNamespace(in.Name); err != nil {
		return err
	}
	return a.answerNamespace(w, in.Name, http.StatusCreated)
}

func (a *namespacesAPI) answerNamespace(w http.ResponseWriter, name string, code int) error {
	n, err := a.catalog.Namespace(name)
	if err != nil {
		return err
	}
	answerJSON(w, code, a.namespacesNow([]catalog.Namespace{n})[0])
	return nil
}

func (a *namespacesAPI) deleteNamespace(w http.ResponseWriter, r *http.Request) error {
	if err := a.catalog.DeleteNamespace(r.PathValue("namespace")); err != nil {
		return err
	}
	return answerOK(w)
}

func (a *namespacesAPI) getQuota(w http.ResponseWriter, r *http.Request) error {
	return a.answerNamespace(w, r.PathValue("namespace"), http.StatusOK)
}

func (a *namespacesAPI) setQuota(w http.ResponseWriter, r *http.Request) error {
	var in api.QuotaRequest
	if err := readJSON(w, r, &in, false); err != nil {
		return err
	}
	name := r.PathValue("namespace")
	n, err := a.catalog.Namespace(name)
	if err != nil {
		return err
	}
	weight := n.Weight
	if in.Weight != nil {
		weight = *in.Weight
	}
	most := n.Max
	if in.Max != nil {
		most = *in.Max
	}
	if err := a.catalog.SetQuota(name, in.Budget, weight, most); err != nil {
		return err
	}
	return a.answerNamespace(w, name, http.StatusOK)
}

func (a *namespacesAPI) getPrice(w http.ResponseWriter, _ *http.Request) error {
	answerJSON(w, http.StatusOK, a.catalog.Price())
	return nil
}

func (a *namespacesAPI) setPrice(w http.ResponseWriter, r *http.Request) error {
	var in quota.Price
	if err := readJSON(w, r, &in, false); err != nil {
		return err
	}
	if err := a.catalog.SetPrice(in); err != nil {
		return err
	}
	return a.getPrice(w, r)
}

func (a *namespacesAPI) getAppNamespace(w http.ResponseWriter, r *http.Request) error {
	if _, err := a.catalog.App(r.PathValue("app")); err != nil {
		return err
	}
	n, err := a.catalog.NamespaceOf(r.PathValue("app"))
	if err != nil {
		return err
	}
	answerJSON(w, http.StatusOK, api.AppNamespace{Namespace: n.Name})
	return nil
}

func (a *namespacesAPI) setAppNamespace(w http.ResponseWriter, r *http.Request) error {
	var in api.AppNamespace
	if err := readJSON(w, r, &in, false); err != nil {
		return err
	}
	if err := a.catalog.SetNamespace(r.PathValue("app"), in.Namespace); err != nil {
		return err
	}
	return a.getAppNamespace(w, r)
}
