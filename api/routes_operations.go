package api

import (
	"github.com/soukhq/souk/machine"
)

// The operations on what is done to a machine and in it.
const (
	StartMachine    Op = "POST /v1/apps/{app}/machines/{id}/start"
	StopMachine     Op = "POST /v1/apps/{app}/machines/{id}/stop"
	RestartMachine  Op = "POST /v1/apps/{app}/machines/{id}/restart"
	SuspendMachine  Op = "POST /v1/apps/{app}/machines/{id}/suspend"
	ResizeMachine   Op = "POST /v1/apps/{app}/machines/{id}/resize"
	SignalMachine   Op = "POST /v1/apps/{app}/machines/{id}/signal"
	CordonMachine   Op = "POST /v1/apps/{app}/machines/{id}/cordon"
	UncordonMachine Op = "POST /v1/apps/{app}/machines/{id}/uncordon"
	MoveMachine     Op = "POST /v1/souk/apps/{app}/machines/{id}/move"
	ExecMachine     Op = "POST /v1/apps/{app}/machines/{id}/exec"
	StreamExec      Op = "POST /v1/souk/apps/{app}/machines/{id}/exec"
	DialMachine     Op = "POST /v1/souk/apps/{app}/machines/{id}/ports/{port}"
	CopyOut         Op = "GET /v1/souk/apps/{app}/machines/{id}/files"
	CopyIn          Op = "PUT /v1/souk/apps/{app}/machines/{id}/files"
	StreamLogs      Op = "GET /v1/souk/apps/{app}/machines/{id}/logs"
	StreamEvents    Op = "GET /v1/souk/events"
)

func operationRoutes() []Route {
	return []Route{
		{Op: StartMachine, Verb: VerbOperate, Kind: KindMachine, About: "Start a machine.", Out: Started{}},
		{Op: StopMachine, Verb: VerbOperate, Kind: KindMachine, About: "Stop a machine: signal, wait, kill.",
			In: StopRequest{}, Out: OK{}},
		{Op: RestartMachine, Verb: VerbOperate, Kind: KindMachine, About: "Stop and start a machine.",
			Query: "force_stop timeout signal", Out: OK{}},
		{Op: SuspendMachine, Verb: VerbOperate, Kind: KindMachine,
			About: "Suspend a machine: in memory, or to disk where that can be.", Query: "to_disk", Out: OK{}},
		{Op: ResizeMachine, Verb: VerbUpdate, Kind: KindMachine,
			About: "Change a machine's CPU and memory while it runs on.", In: machine.Resize{}, Out: machine.Machine{}},
		{Op: SignalMachine, Verb: VerbOperate, Kind: KindMachine,
			About: "Send a signal to a machine's main process.", In: SignalRequest{}, Out: OK{}},
		{Op: CordonMachine, Verb: VerbOperate, Kind: KindMachine, About: "Keep traffic from a machine.", Out: OK{}},
		{Op: UncordonMachine, Verb: VerbOperate, Kind: KindMachine, About: "Let traffic to a machine again.",
			Out: OK{}},
		{Op: MoveMachine, Verb: VerbOperate, Kind: KindMachine, In: MoveRequest{}, Out: Moved{},
			About: "Make a machine anew at another worker; of a replica of a service another is made there first."},
		{Op: ExecMachine, Verb: VerbExec, Kind: KindMachine,
			About: "Run a command in a machine and answer when it ends.", In: ExecRequest{}, Out: ExecResult{}},
		{Op: StreamExec, Verb: VerbExec, Kind: KindMachine,
			About: "Run a command in a machine, with streams both ways.", Out: ExecFrame{}, Media: NDJSON},
		{Op: DialMachine, Verb: VerbExec, Kind: KindMachine, Media: Bytes,
			About: "Connect to a port of a machine, with streams both ways; no service needs to have it."},
		{Op: CopyOut, Verb: VerbExec, Kind: KindMachine, About: "Read a machine's files as a tar stream.",
			Query: "path", Media: Tar},
		{Op: CopyIn, Verb: VerbExec, Kind: KindMachine, About: "Write a tar stream into a machine's files.",
			Query: "path", Code: 204},
		{Op: StreamLogs, Verb: VerbWatch, Kind: KindLog, About: "Stream a machine's output.",
			Query: "tail follow hold cursor", Out: machine.LogLine{}, Media: NDJSON},
		{Op: StreamEvents, Verb: VerbWatch, Kind: KindMachine, About: "Stream events from now on.",
			Query: "app", Out: machine.EventOf{}, Media: NDJSON},
	}
}
