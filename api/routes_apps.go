package api

// The operations on apps and their secrets.
const (
	CreateApp        Op = "POST /v1/apps"
	ListApps         Op = "GET /v1/apps"
	GetApp           Op = "GET /v1/apps/{app}"
	DeleteApp        Op = "DELETE /v1/apps/{app}"
	ListAddresses    Op = "GET /v1/apps/{app}/ip_assignments"
	GetAppDisconnect Op = "GET /v1/souk/apps/{app}/disconnect"
	SetAppDisconnect Op = "PUT /v1/souk/apps/{app}/disconnect"
	GetAppPolicy     Op = "GET /v1/souk/apps/{app}/policy"
	SetAppPolicy     Op = "PUT /v1/souk/apps/{app}/policy"
	GetAppBudget     Op = "GET /v1/souk/apps/{app}/eviction-budget"
	SetAppBudget     Op = "PUT /v1/souk/apps/{app}/eviction-budget"
	GetAppNamespace  Op = "GET /v1/souk/apps/{app}/namespace"
	SetAppNamespace  Op = "PUT /v1/souk/apps/{app}/namespace"
	ListSecrets      Op = "GET /v1/apps/{app}/secrets"
	SetSecrets       Op = "POST /v1/apps/{app}/secrets"
	GetSecret        Op = "GET /v1/apps/{app}/secrets/{name}"
	SetSecret        Op = "POST /v1/apps/{app}/secrets/{name}"
	DeleteSecret     Op = "DELETE /v1/apps/{app}/secrets/{name}"
	RollSecrets      Op = "POST /v1/souk/apps/{app}/secrets"
	PlanSecrets      Op = "POST /v1/souk/apps/{app}/plan-secrets"
)

func appRoutes() []Route {
	return []Route{
		{Op: CreateApp, Verb: VerbCreate, Kind: KindApp, About: "Create an app.",
			Query: "wait", In: NewApp{}, Out: App{}, Code: 201},
		{Op: ListApps, Verb: VerbList, Kind: KindApp, About: "List apps.",
			Query: "org_slug app_role", Out: AppList{}},
		{Op: GetApp, Verb: VerbGet, Kind: KindApp, About: "Describe an app.", Out: App{}},
		{Op: DeleteApp, Verb: VerbDelete, Kind: KindApp,
			About: "Destroy an app's machines and volumes, and the app.", Out: OK{}, Code: 202},
		{Op: ListAddresses, Verb: VerbGet, Kind: KindApp, About: "List an app's addresses: souk gives none.",
			Out: AddressList{}},
		{Op: GetAppDisconnect, Verb: VerbGet, Kind: KindApp,
			About: "Return what is to become of an app's machines on a worker that cannot be heard.",
			Out:   AppDisconnect{}},
		{Op: SetAppDisconnect, Verb: VerbUpdate, Kind: KindApp,
			About: "Set what is to become of an app's machines on a worker that cannot be heard.",
			In:    AppDisconnect{}, Out: AppDisconnect{}},
		{Op: GetAppPolicy, Verb: VerbGet, Kind: KindApp, About: "Return the policy that an app chose.",
			Out: AppPolicy{}},
		{Op: SetAppPolicy, Verb: VerbUpdate, Kind: KindApp, About: "Choose an app's policy.",
			In: AppPolicy{}, Out: AppPolicy{}},
		{Op: GetAppBudget, Verb: VerbGet, Kind: KindApp, About: "Return how much of an app a worker may evict.",
			Out: AppBudget{}},
		{Op: SetAppBudget, Verb: VerbUpdate, Kind: KindApp,
			About: "Set how much of an app a worker may evict, for machines that are made from now on.",
			In:    AppBudget{}, Out: AppBudget{}},
		{Op: GetAppNamespace, Verb: VerbGet, Kind: KindApp, About: "Return the namespace of an app.",
			Out: AppNamespace{}},
		{Op: SetAppNamespace, Verb: VerbUpdate, Kind: KindApp,
			About: "Put an app into a namespace; machines that are there stay in theirs.",
			In:    AppNamespace{}, Out: AppNamespace{}},
		{Op: ListSecrets, Verb: VerbList, Kind: KindSecret, About: "List secrets, without their values.",
			Query: "version show_secrets", Out: SecretList{}},
		{Op: SetSecrets, Verb: VerbUpdate, Kind: KindSecret, About: "Set secrets; null deletes one.",
			In: SecretValues{}, Out: SecretList{}},
		{Op: GetSecret, Verb: VerbGet, Kind: KindSecret, About: "Describe a secret, without its value.",
			Query: "version show_secrets", Out: Secret{}},
		{Op: SetSecret, Verb: VerbUpdate, Kind: KindSecret, About: "Set a secret.",
			In: SetValue{}, Out: SecretSet{}},
		{Op: DeleteSecret, Verb: VerbDelete, Kind: KindSecret, About: "Delete a secret.", Out: SecretVersion{}},
		{Op: RollSecrets, Verb: VerbUpdate, Kind: KindSecret, In: SecretsRoll{}, Out: SecretsRolled{},
			About: "Set secrets of an app, and replace the machines of its service that read them; null deletes one."},
		{Op: PlanSecrets, Verb: VerbPlan, Kind: KindService, In: SecretsRoll{}, Out: ReleasePlan{},
			About: "Say what a change of secrets would do to an app's service; nothing changes."},
	}
}
