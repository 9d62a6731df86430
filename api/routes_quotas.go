package api

import (
	"github.com/soukhq/souk/core/quota"
)

// The operations on namespaces and the price.
const (
	ListNamespaces  Op = "GET /v1/souk/namespaces"
	CreateNamespace Op = "POST /v1/souk/namespaces"
	DeleteNamespace Op = "DELETE /v1/souk/namespaces/{namespace}"
	GetQuota        Op = "GET /v1/souk/namespaces/{namespace}/quota"
	SetQuota        Op = "PUT /v1/souk/namespaces/{namespace}/quota"
	GetPrice        Op = "GET /v1/souk/price"
	SetPrice        Op = "PUT /v1/souk/price"
)

func quotaRoutes() []Route {
	return []Route{
		{Op: ListNamespaces, Verb: VerbList, Kind: KindNamespace,
			About: "List namespaces, with what they may spend and do.", Out: NamespaceList{}},
		{Op: CreateNamespace, Verb: VerbCreate, Kind: KindNamespace, About: "Create a namespace.",
			In: NewNamespace{}, Out: Namespace{}, Code: 201},
		{Op: DeleteNamespace, Verb: VerbDelete, Kind: KindNamespace,
			About: "Remove a namespace that no app is in.", Out: OK{}},
		{Op: GetQuota, Verb: VerbGet, Kind: KindNamespace,
			About: "Tell what a namespace may spend, and where it does.", Out: Namespace{}},
		{Op: SetQuota, Verb: VerbUpdate, Kind: KindNamespace,
			About: "Set what a namespace may spend, and occupy at once; a null budget is no limit.",
			In:    QuotaRequest{}, Out: Namespace{}},
		{Op: GetPrice, Verb: VerbGet, Kind: KindPrice, About: "Return what resources cost.", Out: quota.Price{}},
		{Op: SetPrice, Verb: VerbUpdate, Kind: KindPrice, About: "Set what resources cost from now on.",
			In: quota.Price{}, Out: quota.Price{}},
	}
}
