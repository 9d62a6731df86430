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

	GetComparison            Op = "GET /v1/souk/scheduler/comparison"
	StartComparison          Op = "PUT /v1/souk/scheduler/comparison"
	StopComparison           Op = "DELETE /v1/souk/scheduler/comparison"
	GetNamespaceComparison   Op = "GET /v1/souk/namespaces/{namespace}/scheduler/comparison"
	StartNamespaceComparison Op = "PUT /v1/souk/namespaces/{namespace}/scheduler/comparison"
	StopNamespaceComparison  Op = "DELETE /v1/souk/namespaces/{namespace}/scheduler/comparison"
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
		{Op: GetComparison, Verb: VerbGet, Kind: KindScheduler,
			About: "Tell how jobs fare in the comparison of schedulers that runs in the cluster, or in the last one.",
			Out:   SchedulerComparison{}},
		{Op: StartComparison, Verb: VerbUpdate, Kind: KindScheduler,
			About: "Start a comparison of two schedulers on the cluster's jobs that name none.",
			In:    NewSchedulerComparison{}, Out: SchedulerComparison{}},
		{Op: StopComparison, Verb: VerbDelete, Kind: KindScheduler,
			About: "End the cluster's comparison of schedulers: jobs have the default again.",
			Out:   SchedulerComparison{}},
		{Op: GetNamespaceComparison, Verb: VerbGet, Kind: KindScheduler,
			About: "Tell how jobs fare in the comparison of schedulers that runs in a namespace, or in the last one.",
			Out:   SchedulerComparison{}},
		{Op: StartNamespaceComparison, Verb: VerbUpdate, Kind: KindScheduler,
			About: "Start a comparison of two schedulers on a namespace's jobs that name none.",
			In:    NewSchedulerComparison{}, Out: SchedulerComparison{}},
		{Op: StopNamespaceComparison, Verb: VerbDelete, Kind: KindScheduler,
			About: "End a namespace's comparison of schedulers: jobs have the default again.",
			Out:   SchedulerComparison{}},
	}
}
