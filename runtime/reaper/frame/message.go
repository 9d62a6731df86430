package frame

import (
	"time"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/devices"
	"github.com/soukhq/souk/runtime/hostnet/netplan"
	"github.com/soukhq/souk/runtime/reaper/cgroup"
)

// The operations.
const (
	OpHello   = "hello"
	OpPrepare = "prepare"
	OpCheck   = "check" // says whether a start would be refused, as far as can be seen while another attempt runs
	OpReady   = "ready" // makes ahead what a start of Attempt needs, as far as it can be; the answer says nothing of it
	OpStart   = "start"
	OpSignal  = "signal"
	OpKill    = "kill"
	OpRemove  = "remove"
	OpList    = "list"
	OpLife    = "life"
	OpAck     = "ack"
	OpPause   = "pause"
	OpResume  = "resume"
	OpWatch   = "watch"  // a connection of its own: KindGrown until it is closed
	OpExec    = "exec"   // a connection of its own: three descriptors come along, or one goes back; closing it kills
	OpAttach  = "attach" // a connection of its own: the near end of the machine's terminal comes with the first answer
	OpUpgrade = "upgrade"
	OpResize  = "resize"
	OpPing    = "ping"
	OpLeave   = "leave" // souk ends, and for all it knows nothing runs: the reaper does not wait for another souk

	OpHibernate = "hibernate" // Machine, Attempt
	OpWake      = "wake"      // as OpStart
)

// Request is what a worker asks.
type Request struct {
	Op      string   `json:"op"`
	Machine string   `json:"machine,omitempty"`
	Attempt uint64   `json:"attempt,omitempty"`
	Signal  int      `json:"signal,omitempty"`
	Argv    []string `json:"argv,omitempty"`
	User    string   `json:"user,omitempty"` // of an exec in a container; "": the container's own
	Dir     string   `json:"dir,omitempty"`  // of an exec, absolute; "": the machine's own
	Hello   *Hello   `json:"hello,omitempty"`
	Start   *Start   `json:"start,omitempty"`

	// Terminal gives an exec one. No descriptors come along then; the first answer has that of its near end, and the
	// second one says how the command ended.
	Terminal *machine.Terminal `json:"terminal,omitempty"`

	Backlog bool `json:"backlog,omitempty"` // an attach begins with what was written last

	Acks []Ack `json:"acks,omitempty"` // more acknowledgements than that of Machine and Attempt

	Limits *cgroup.Limits `json:"limits,omitempty"` // that Attempt is to have from now on

	Keep int `json:"keep,omitempty"` // how many machines may be ready at once; the oldest gives way
}

// Ack names an exit that has been journalled.
type Ack struct {
	Machine string `json:"machine"`
	Attempt uint64 `json:"attempt"`
}

// Hello opens a connection. With Exits set the reaper sends every exit that is not acknowledged, then each new one.
type Hello struct {
	Version int    `json:"version"`
	Oldest  int    `json:"oldest"`
	Build   string `json:"build"`
	Exits   bool   `json:"exits,omitempty"`
}

// Welcome answers Hello.
type Welcome struct {
	Version int          `json:"version"`
	Build   string       `json:"build"`
	PID     int          `json:"pid"`
	Dir     string       `json:"dir,omitempty"`  // "": of a reaper that does not say
	Tree    *cgroup.Tree `json:"tree,omitempty"` // nil: no cgroups
	Lacks   []string     `json:"lacks,omitempty"`
	View    bool         `json:"view,omitempty"`     // machines have a mount namespace
	NoUsers string       `json:"no_users,omitempty"` // why machines have no users of their own
}

// Start is a runtime.Spec for the wire. The contents of Files are the body, one after the other.
type Start struct {
	Argv   []string        `json:"argv"`
	Env    []string        `json:"env,omitempty"`
	User   string          `json:"user,omitempty"`
	Files  []File          `json:"files,omitempty"`
	Mounts []runtime.Mount `json:"mounts,omitempty"`
	Limits cgroup.Limits   `json:"limits"`
	Fresh  bool            `json:"fresh,omitempty"` // prepare the machine first
	Home   bool            `json:"home,omitempty"`  // HOME is the machine's directory, unless Env says otherwise

	Root bool `json:"root,omitempty"` // User may be root

	Attach   bool  `json:"attach,omitempty"` // the log has a reader who is waited for
	LogBytes int64 `json:"log_bytes"`        // of one log file
	LogFiles int   `json:"log_files"`

	Container *Container `json:"container,omitempty"` // nil: a process of the host

	Terminal *machine.Terminal `json:"terminal,omitempty"` // nil: its output goes through pipes, and it has no input
}

// Container makes a start that of a container: User, Files and Mounts are the container's then.
type Container struct {
	Engine   string   `json:"engine"`         // path of the OCI runtime
	Layers   []string `json:"layers"`         // directories, topmost first
	Init     string   `json:"init,omitempty"` // path of a program that is its first process; "": its own program is
	ReadOnly bool     `json:"read_only,omitempty"`
	Dir      string   `json:"dir,omitempty"` // where it begins; "": /
	Hostname string   `json:"hostname,omitempty"`
	HostNet  bool     `json:"host_net,omitempty"` // the host's network; else Network

	StopSignal int `json:"stop_signal,omitempty"` // that it is to be stopped by; 0: the image says none

	Volumes []string `json:"volumes,omitempty"` // directories that it keeps data in: absolute and clean

	Network *netplan.Network `json:"network,omitempty"` // nil: none but loopback

	Nodes []devices.Node  `json:"nodes,omitempty"` // of devices, that it may use beside those that each container has
	Shown []devices.Mount `json:"shown,omitempty"` // what it sees for them, to read
	Hooks []devices.Hook  `json:"hooks,omitempty"` // what the OCI runtime runs for them
}

// File is a runtime.File without its contents.
type File struct {
	Path string `json:"path"`
	Mode uint32 `json:"mode"`
	Size int    `json:"size"`
}

// Reply answers a Request.
type Reply struct {
	Error   *Error           `json:"error,omitempty"`
	Welcome *Welcome         `json:"welcome,omitempty"`
	Status  *runtime.Status  `json:"status,omitempty"`
	Group   *Group           `json:"group,omitempty"` // with OpLife, of a life that runs in a cgroup
	List    []runtime.Status `json:"list,omitempty"`

	Container bool     `json:"container,omitempty"` // with OpLife: that life is one of a container
	Sandbox   *Sandbox `json:"sandbox,omitempty"`   // with OpLife, of a life that runs in one
	Code      int      `json:"code,omitempty"`
}

// Sandbox is a container whose programs run on a kernel of their own, which is asked what they are.
type Sandbox struct {
	Engine string `json:"engine"` // path of the OCI runtime
	State  string `json:"state"`  // what it keeps
	ID     string `json:"id"`
}

// Group names a life's cgroup, and what that had counted before the life began.
type Group struct {
	Name      string        `json:"name"`
	CPU       time.Duration `json:"cpu,omitempty"`
	Throttled time.Duration `json:"throttled,omitempty"`
}

// Error is a fault on the wire.
type Error struct {
	Kind fault.Kind `json:"kind"`
	Code fault.Code `json:"code,omitempty"`
	Text string     `json:"text"`
}

// ToError makes err fit for the wire; nil stays nil.
func ToError(err error) *Error {
	if err == nil {
		return nil
	}
	e := fault.As(err)
	return &Error{Kind: e.Kind, Code: e.Code, Text: e.Error()}
}

// Err gives the fault back; nil stays nil.
func (e *Error) Err() error {
	if e == nil {
		return nil
	}
	return &fault.Error{Kind: e.Kind, Code: e.Code, Text: e.Text}
}

// HelloTimeout bounds how long either side waits for the first frame of a connection.
const HelloTimeout = 10 * time.Second
