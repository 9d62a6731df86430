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
	OpCheck   = "check" // checks whether a start would be refused, as far as that is visible while another attempt runs
	OpReady   = "ready" // prepares a start of Attempt as far as possible; the answer does not report the result
	OpStart   = "start"
	OpSignal  = "signal"
	OpKill    = "kill"
	OpRemove  = "remove"
	OpList    = "list"
	OpLife    = "life"
	OpAck     = "ack"
	OpPause   = "pause"
	OpResume  = "resume"
	OpWatch   = "watch" // on a connection of its own: KindGrown until it is closed
	// on a connection of its own: three descriptors are sent, or one is returned; closing it kills the command
	OpExec    = "exec"
	OpAttach  = "attach" // on a connection of its own: the first answer carries the near end of the machine's terminal
	OpUpgrade = "upgrade"
	OpResize  = "resize"
	OpPing    = "ping"
	OpLeave   = "leave" // souk ends, and believes that nothing runs: the reaper need not wait for another souk

	OpFindDir = "find_dir" // Dir, and Start.As: checks whether a program of that user could start there

	OpHibernate = "hibernate" // Machine, Attempt
	OpWake      = "wake"      // same arguments as OpStart
)

// Request is a worker's request.
type Request struct {
	Op      string   `json:"op"`
	Machine string   `json:"machine,omitempty"`
	Attempt uint64   `json:"attempt,omitempty"`
	Signal  int      `json:"signal,omitempty"`
	All     bool     `json:"all,omitempty"` // OpSignal: to all processes, not only to the main one
	Argv    []string `json:"argv,omitempty"`
	User    string   `json:"user,omitempty"` // of an exec in a container; "": the container's own
	Dir     string   `json:"dir,omitempty"`  // of an exec or OpFindDir, absolute; "": the machine's own
	Hello   *Hello   `json:"hello,omitempty"`
	Start   *Start   `json:"start,omitempty"`

	// Terminal gives an exec a terminal. The request then carries no descriptors; the first answer carries the
	// terminal's near end, and the second one the command's exit code.
	Terminal *machine.Terminal `json:"terminal,omitempty"`

	Backlog bool `json:"backlog,omitempty"` // an attach first returns the latest output

	Machines []string `json:"machines,omitempty"` // OpRemove: all of them, with no Machine

	Acks []Ack `json:"acks,omitempty"` // further acknowledgements, besides that of Machine and Attempt

	Limits *cgroup.Limits `json:"limits,omitempty"` // new limits of Attempt

	Keep int `json:"keep,omitempty"` // greatest number of prepared machines; the oldest is dropped
}

// Ack acknowledges an exit that has been journalled.
type Ack struct {
	Machine string `json:"machine"`
	Attempt uint64 `json:"attempt"`
}

// Hello opens a connection. If Exits is set, the reaper sends every exit that is not acknowledged, then each new one.
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
	Dir     string       `json:"dir,omitempty"`  // the reaper's directory; "": not reported
	Tree    *cgroup.Tree `json:"tree,omitempty"` // nil: no cgroups
	Lacks   []string     `json:"lacks,omitempty"`
	View    bool         `json:"view,omitempty"`     // machines have their own mount namespace
	NoUsers string       `json:"no_users,omitempty"` // why machines have no users of their own
	As      bool         `json:"as,omitempty"`       // it knows Start.As
	Stdio   bool         `json:"stdio,omitempty"`    // it knows Start.Dir, Start.Stdio and OpFindDir
}

// Start is a runtime.Spec for the wire. The contents of Files are in the body, one after the other.
type Start struct {
	Argv   []string        `json:"argv"`
	Env    []string        `json:"env,omitempty"`
	User   string          `json:"user,omitempty"`
	As     *runtime.As     `json:"as,omitempty"` // nil: as User says
	Files  []File          `json:"files,omitempty"`
	Mounts []runtime.Mount `json:"mounts,omitempty"`
	Shown  []runtime.Shown `json:"shown,omitempty"`
	Limits cgroup.Limits   `json:"limits"`
	Fresh  bool            `json:"fresh,omitempty"` // prepare the machine first
	Home   bool            `json:"home,omitempty"`  // set HOME to the machine's directory, unless Env has it

	Root bool `json:"root,omitempty"` // User may be root
	// NoPeople refuses a User who is a person, or in a group of people: As alone runs programs for them.
	NoPeople bool `json:"no_people,omitempty"`

	Attach   bool  `json:"attach,omitempty"` // wait for a reader of the log
	LogBytes int64 `json:"log_bytes"`        // of one log file
	LogFiles int   `json:"log_files"`

	Container *Container `json:"container,omitempty"` // nil: a process of the host

	Terminal *machine.Terminal `json:"terminal,omitempty"` // nil: its output goes to pipes, and it has no input

	Dir   string        `json:"dir,omitempty"` // of a process of the host, absolute; "": the machine's own
	Stdio runtime.Stdio `json:"stdio,omitzero"`
}

// OpensFiles reports whether the start looks for a directory or files of the host with the rights of its user.
func (s *Start) OpensFiles() bool { return s.Dir != "" || !s.Stdio.IsZero() }

// CheckStdio refuses a Dir and a Stdio that are invalid on every host.
func (s *Start) CheckStdio() error {
	return s.Stdio.Check(s.Dir, s.Container != nil, s.Terminal != nil || s.Attach)
}

// Container makes the start that of a container; User, Files and Mounts then apply inside it.
type Container struct {
	Engine   string   `json:"engine"`         // path of the OCI runtime
	Layers   []string `json:"layers"`         // directories, topmost first
	Init     string   `json:"init,omitempty"` // path of a program to be process 1; "": the machine's own program
	ReadOnly bool     `json:"read_only,omitempty"`
	Dir      string   `json:"dir,omitempty"` // working directory; "": /
	Hostname string   `json:"hostname,omitempty"`
	HostNet  bool     `json:"host_net,omitempty"` // use the host's network instead of Network

	StopSignal int `json:"stop_signal,omitempty"` // the image's stop signal; 0: none

	Volumes []string `json:"volumes,omitempty"` // the image's data directories: absolute and clean

	Network *netplan.Network `json:"network,omitempty"` // nil: only loopback

	// device nodes that it may use, besides those that every container has
	Nodes []devices.Node  `json:"nodes,omitempty"`
	Shown []devices.Mount `json:"shown,omitempty"` // files for the devices, read-only
	Hooks []devices.Hook  `json:"hooks,omitempty"` // programs that the OCI runtime runs for the devices
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
	Group   *Group           `json:"group,omitempty"` // with OpLife, if the life runs in a cgroup
	List    []runtime.Status `json:"list,omitempty"`

	Container bool     `json:"container,omitempty"` // with OpLife: the life runs in a container
	Sandbox   *Sandbox `json:"sandbox,omitempty"`   // with OpLife, if the life runs in a sandbox
	Code      int      `json:"code,omitempty"`
}

// Sandbox is a container on its own kernel, which must be queried for its processes.
type Sandbox struct {
	Engine string `json:"engine"` // path of the OCI runtime
	State  string `json:"state"`  // its state directory
	ID     string `json:"id"`
}

// Group names a life's cgroup, with the group's counters from before the life began.
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

// ToError converts err for the wire; nil stays nil.
func ToError(err error) *Error {
	if err == nil {
		return nil
	}
	e := fault.As(err)
	return &Error{Kind: e.Kind, Code: e.Code, Text: e.Error()}
}

// Err converts back to a fault; nil stays nil.
func (e *Error) Err() error {
	if e == nil {
		return nil
	}
	return &fault.Error{Kind: e.Kind, Code: e.Code, Text: e.Text}
}

// HelloTimeout bounds how long either side waits for the first frame of a connection.
const HelloTimeout = 10 * time.Second
