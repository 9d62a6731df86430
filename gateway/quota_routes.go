package gateway

import (
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/catalog"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/quota"
)

// namespacesAPI serves namespaces, what they may spend and what they do.
type namespacesAPI struct {
	catalog   namespaceCatalog
	directory *directory
	spent     *spendings
}

// namespaceCatalog is what it needs of the catalog.
type namespaceCatalog interface {
	App(name string) (catalog.App, error)
	AppsByNamespace() map[string][]string
	Namespaces() []catalog.Namespace
	Namespace(name string) (catalog.Namespace, error)
	NamespaceOf(app string) (catalog.Namespace, error)
	CreateNamespace(name string) error
	DeleteNamespace(name string) error
	SetNamespace(app, name string) error
	SetBudget(name string, b *quota.Budget, weight float64) error
	Price() quota.Price
	SetPrice(p quota.Price) error
}

// handlers returns what it serves.
func (g *namespacesAPI) handlers() handlers {
	return handlers{
		"GET /v1/souk/namespaces":                   g.listNamespaces,
		"POST /v1/souk/namespaces":                  g.createNamespace,
		"DELETE /v1/souk/namespaces/{namespace}":    g.deleteNamespace,
		"GET /v1/souk/namespaces/{namespace}/quota": g.getQuota,
		"PUT /v1/souk/namespaces/{namespace}/quota": g.setQuota,
		"GET /v1/souk/price":                        g.getPrice,
		"PUT /v1/souk/price":                        g.setPrice,
		"GET /v1/souk/apps/{app}/namespace":         g.getAppNamespace,
		"PUT /v1/souk/apps/{app}/namespace":         g.setAppNamespace,
	}
}

// inform tells of namespaces as they stand now.
func (g *namespacesAPI) inform(r *http.Request, rows []catalog.Namespace) []api.Namespace {
	told := g.spent.hear(r.Context(), g.directory.workers())
	apps := g.catalog.AppsByNamespace()
	now := time.Now()
	out := make([]api.Namespace, 0, len(rows))
	for _, n := range rows {
		i := api.Namespace{Name: n.Name, Apps: apps[n.Name], Budget: n.Budget, Weight: n.Weight, Workers: []api.WorkerSpending{}}
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
		a, sum := quota.Of(b, all, now), quota.Fold(b, all, now)
		i.Spent, i.Lent, i.Rate, i.LentRate, i.Used, i.Machines = a.Spent, a.Lent, a.Rate, sum.LentRate, a.Used, sum.Machines
		if n.Budget != nil {
			balance := a.Balance()
			i.Owed, i.Balance = a.Owed, &balance
		}
		out = append(out, i)
	}
	return out
}

func (g *namespacesAPI) listNamespaces(w http.ResponseWriter, r *http.Request) error {
	answer(w, http.StatusOK, api.NamespaceList{Namespaces: g.inform(r, g.catalog.Namespaces())})
	return nil
}

func (g *namespacesAPI) createNamespace(w http.ResponseWriter, r *http.Request) error {
	var in api.NewNamespace
	if err := readJSON(w, r, &in, false); err != nil {
		return err
	}
	if err := g.catalog.CreateNamespace(in.Name); err != nil {
		return err
	}
	return g.answerNamespace(w, r, in.Name, http.StatusCreated)
}

func (g *namespacesAPI) answerNamespace(w http.ResponseWriter, r *http.Request, name string, code int) error {
	n, err := g.catalog.Namespace(name)
	if err != nil {
		return err
	}
	answer(w, code, g.inform(r, []catalog.Namespace{n})[0])
	return nil
}

func (g *namespacesAPI) deleteNamespace(w http.ResponseWriter, r *http.Request) error {
	if err := g.catalog.DeleteNamespace(r.PathValue("namespace")); err != nil {
		return err
	}
	return answerOK(w)
}

func (g *namespacesAPI) getQuota(w http.ResponseWriter, r *http.Request) error {
	return g.answerNamespace(w, r, r.PathValue("namespace"), http.StatusOK)
}

func (g *namespacesAPI) setQuota(w http.ResponseWriter, r *http.Request) error {
	var in api.QuotaRequest
	if err := readJSON(w, r, &in, false); err != nil {
		return err
	}
	name := r.PathValue("namespace")
	n, err := g.catalog.Namespace(name)
	if err != nil {
		return err
	}
	weight := n.Weight
	if in.Weight != nil {
		weight = *in.Weight
	}
	if err := g.catalog.SetBudget(name, in.Budget, weight); err != nil {
		return err
	}
	return g.answerNamespace(w, r, name, http.StatusOK)
}

func (g *namespacesAPI) getPrice(w http.ResponseWriter, _ *http.Request) error {
	answer(w, http.StatusOK, g.catalog.Price())
	return nil
}

func (g *namespacesAPI) setPrice(w http.ResponseWriter, r *http.Request) error {
	var in quota.Price
	if err := readJSON(w, r, &in, false); err != nil {
		return err
	}
	if err := g.catalog.SetPrice(in); err != nil {
		return err
	}
	return g.getPrice(w, r)
}

func (g *namespacesAPI) getAppNamespace(w http.ResponseWriter, r *http.Request) error {
	if _, err := g.catalog.App(r.PathValue("app")); err != nil {
		return err
	}
	n, err := g.catalog.NamespaceOf(r.PathValue("app"))
	if err != nil {
		return err
	}
	answer(w, http.StatusOK, api.AppNamespace{Namespace: n.Name})
	return nil
}

func (g *namespacesAPI) setAppNamespace(w http.ResponseWriter, r *http.Request) error {
	var in api.AppNamespace
	if err := readJSON(w, r, &in, false); err != nil {
		return err
	}
	if err := g.catalog.SetNamespace(r.PathValue("app"), in.Namespace); err != nil {
		return err
	}
	return g.getAppNamespace(w, r)
}
