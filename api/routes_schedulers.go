package api

// The operations on the default schedulers of the cluster and of namespaces.
const (
	ListDefaultSchedulers   Op = "GET /v1/souk/schedulers"
	GetDefaultScheduler     Op = "GET /v1/souk/scheduler"
	SetDefaultScheduler     Op = "PUT /v1/souk/scheduler"
	UnsetDefaultScheduler   Op = "DELETE /v1/souk/scheduler"
	GetNamespaceScheduler   Op = "GET /v1/souk/namespaces/{namespace}/scheduler"
	SetNamespaceScheduler   Op = "PUT /v1/souk/namespaces/{namespace}/scheduler"
	UnsetNamespaceScheduler Op = "DELETE /v1/souk/namespaces/{namespace}/scheduler"
)

func schedulerRoutes() []Route {
	return []Route{
		{Op: ListDefaultSchedulers, Verb: VerbList, Kind: KindScheduler,
			About: "List the schedulers of jobs that name none: the cluster's, and each namespace's.",
			Out:   SchedulerDefaultList{}},
		{Op: GetDefaultScheduler, Verb: VerbGet, Kind: KindScheduler,
			About: "Return the cluster's scheduler of jobs that name none.", Out: SchedulerDefault{}},
		{Op: SetDefaultScheduler, Verb: VerbUpdate, Kind: KindScheduler,
			About: "Set the cluster's scheduler of jobs that name none.", In: SchedulerChoice{},
			Out: SchedulerDefault{}},
		{Op: UnsetDefaultScheduler, Verb: VerbDelete, Kind: KindScheduler,
			About: "Unset the cluster's scheduler of jobs that name none: the auction finds workers for them.",
			Out:   SchedulerDefault{}},
		{Op: GetNamespaceScheduler, Verb: VerbGet, Kind: KindScheduler,
			About: "Return the scheduler of a namespace's jobs that name none.", Out: SchedulerDefault{}},
		{Op: SetNamespaceScheduler, Verb: VerbUpdate, Kind: KindScheduler,
			About: "Set the scheduler of a namespace's jobs that name none.", In: SchedulerChoice{},
			Out: SchedulerDefault{}},
		{Op: UnsetNamespaceScheduler, Verb: VerbDelete, Kind: KindScheduler,
			About: "Unset the scheduler of a namespace's jobs that name none: they have the cluster's.",
			Out:   SchedulerDefault{}},
	}
}
