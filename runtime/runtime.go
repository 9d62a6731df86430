// Package runtime is what a worker needs of a technology that runs machines: processes, containers, sandboxes.
//
// # Vocabulary
//
// A *machine* is known by its id. Each time it is started it is a new *attempt*: a number that only grows, given by
// the worker and journalled before the runtime hears of it. (machine, attempt) names one life of one process and is
// the key of every idempotent call. An *exit* is how such a life ended; the runtime keeps it until it is acknowledged,
// also over restarts of souk, so that no exit status is ever lost.
//
// # Lifecycle
//
//	Prepare -> Start(1) -> [Pause -> Resume]* -> exit(1) -> Ack(1) -> Start(2) -> ... -> Remove
//
// # Rules, which runtimetest holds every runtime to
//
//   - Prepare, Start, Pause, Resume, Kill and Remove are idempotent: a worker that was killed while it waited for the
//     answer repeats the call and gets the same answer, with no second effect.
//   - Start(m, n) while attempt n runs, or after it exited, answers that life and starts nothing. Start(m, n) while an
//     older attempt still runs is a Conflict: never two lives at once. Start(m, n) with n older than one seen is a Conflict.
//   - Start of a machine that was never prepared, or was removed, is NotFound, unless Spec.Fresh says to prepare it.
//   - A life goes on when souk ends, and is there again in List when souk comes back.
//   - Remove ends whatever still runs of the machine, all its processes, before it deletes anything.
//   - Errors are *fault.Error. Invalid and Precondition are final; Unavailable is worth a retry.
//
// Capabilities that not every runtime has are interfaces of their own, asked for by type assertion.
package runtime

import (
	"context"
	"io"
	"net/netip"
	"path"
	"strings"
	"syscall"
	"time"
	"unicode"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// Spec is all a runtime is told of a machine. Env and Files may hold secrets: they are never logged, listed or
// journalled.
type Spec struct {
	Machine   string
	Attempt   uint64 // 0 in Prepare
	Fresh     bool   // Start does what Prepare does first: one call instead of two for a machine that is new
	App       string
	Image     string
	Argv      []string // empty: what the image says, with Args
	Args      []string // of the image's entry point, in the place of the image's own; nil: those
	Env       []string // KEY=VALUE, complete but for what the image adds: nothing of souk's own environment is
	User      string   // "": one of its own where souk is root, else as souk runs
	Home      bool     // HOME is the machine's directory, unless Env says otherwise
	Files     []File
	Mounts    []Mount
	Resources cluster.Resources
	SharedCPU bool // cpu is a share that may burst, not a quota
	SwapMB    int  // -1: no statement
	TTY       bool
	ReadOnly  bool            // what the image has cannot be written over
	Runtime   string          // which of several the container is made by; "": the worker's usual one
	Attach    bool            // what it prints is kept for who reads it (machine.LogQuery.Hold), and it waits for him
	Network   machine.Network // as machine.NetworkOf has it; zero: as of an image that says nothing
	// Devices are those that the machine may use, by what their host knows them as; it is denied all others. Where
	// variables say which they are, those of the device count before those of Env.
	Devices []string
}

// EnvMachine is the variable in Env that names the machine: by it a runtime may find what a machine left behind.
const EnvMachine = "FLY_MACHINE_ID"

// File is written below the machine's directory before a start. Path is as the user said it ("/etc/app.conf"); a
// runtime that gives a machine no root of its own puts it below the machine's directory and refuses to leave it.
type File struct {
	Path string
	Mode uint32
	Data []byte
}

// Mount shows the directory Dir of the worker at Path of the machine, or the file system that is in the file Dir
// (package loopfs).
type Mount struct {
	Volume string
	Dir    string
	Path   string
}

// Status is one life of a machine, as the runtime knows it.
type Status struct {
	Machine   string
	Attempt   uint64
	PID       int // of the main process, 0 when it has ended
	Running   bool
	Paused    bool
	OnDisk    bool      // Running and Paused, and what it had in memory is on disk: it has no process until it is woken
	StartedAt time.Time // zero: not known
	Exit      *Exit     // set when it has ended and the exit is not yet acknowledged
}

// Exit is how a life ended. Code is as a shell tells it (128+n for signal n).
type Exit struct {
	Machine string
	Attempt uint64
	Code    int
	Signal  int
	OOM     bool
	Lost    bool // nobody saw the end (the whole machine went down): Code is -1
	At      time.Time
}

// ExecRequest runs one more command beside the machine's main process, in its directory, environment and limits.
// Stdin may be nil. Stdout and Stderr may be nil to discard.
type ExecRequest struct {
	Argv   []string
	User   string // of the container, named as an image's is; "": the machine's, which is all that a program has
	Dir    string // absolute, as the machine sees it; "": the machine's
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer

	Terminal *Terminal // nil: none

	// Attach runs no command: Terminal is where to show that of the main process, which Spec.TTY gives it, and its exit
	// code is what is returned. Several may be attached. When ctx ends first, the machine goes on, and the error is a
	// Timeout. With Backlog what was written last is shown first.
	Attach  bool
	Backlog bool
}

// maxUser and maxDir bound what Check takes, in bytes.
const (
	maxUser = 256
	maxDir  = 4096
)

// Check refuses what can be run in no machine. It does not look at Argv.
func (r *ExecRequest) Check() error {
	switch {
	case r.Attach && (r.User != "" || r.Dir != ""):
		return fault.New(fault.Invalid, CodeAttach, "attach shows the machine's own program, which has its user and "+
			"its directory already: leave the user and the directory out")
	case len(r.User) > maxUser || strings.ContainsFunc(r.User, unicode.IsControl) ||
		strings.Count(r.User, ":") > 1 || strings.HasPrefix(r.User, ":"):
		return fault.New(fault.Invalid, CodeUser,
			"%.80q names no user: use a name or a number, and a group behind a colon where it is another", r.User)
	case r.Dir != "" && (!path.IsAbs(r.Dir) || len(r.Dir) > maxDir || strings.ContainsRune(r.Dir, 0)):
		return fault.New(fault.Invalid, fault.CodePath,
			"a command begins in a directory that is named by its absolute path, such as /srv, not in %.80q", r.Dir)
	case r.Terminal != nil:
		return r.Terminal.Check()
	}
	return nil
}

// Terminal is one that a command gets for itself, as its stdin, stdout and stderr: what it reads there comes from
// ExecRequest.Stdin, and all that it writes goes to ExecRequest.Stdout. The end of Stdin means nothing to it. It is
// told each size that Resize gives, and of its own session and its end as by any terminal.
type Terminal struct {
	machine.Terminal
	Resize <-chan machine.WindowSize // nil: its size does not change
}

// Usage is what a machine's processes use now and have used since the attempt began.
type Usage struct {
	CPU       time.Duration
	MemoryMiB int64
	Processes int
	OOMKills  int64
	Throttled time.Duration
}

// Runtime runs machines. Every method may be called from many goroutines; calls for one machine are made one after
// the other, but for Exec, Processes, Logs and Kill. A call that was given up may be carried out all the same, but not
// after one for the same machine that was made later has been answered.
type Runtime interface {
	// Name is the technology: "process", "fake".
	Name() string
	// CanRun says whether the image can be run here, by the OCI runtime that its machine asks for, if any; the error
	// says what to do instead.
	CanRun(image, by string) error
	// Prepare makes what outlives a start: the machine's directory.
	Prepare(ctx context.Context, s Spec) error
	// Start starts attempt s.Attempt and answers once the program has been executed (exec(2) succeeded), not before.
	Start(ctx context.Context, s Spec) (Status, error)
	// Signal sends sig to the main process; 0 is the one that it is to be stopped by: its image's, else SIGINT.
	// Precondition when nothing runs.
	Signal(ctx context.Context, machine string, sig syscall.Signal) error
	// Kill ends every process of the machine at once. nil when nothing runs.
	Kill(ctx context.Context, machine string) error
	// Remove kills and deletes all there is of the machine. nil when there is nothing.
	Remove(ctx context.Context, machine string) error
	// List gives every machine the runtime knows of, with its latest attempt.
	List(ctx context.Context) ([]Status, error)
	// Exits delivers each exit at least once until it is acknowledged, those from before this process began too.
	Exits() <-chan Exit
	// Ack forgets an exit that has been journalled. nil when there is none.
	Ack(ctx context.Context, machine string, attempt uint64) error
	// Exec runs a command and gives its exit code. Precondition when the machine does not run; when ctx ends first
	// the command is killed and the error is a Timeout.
	Exec(ctx context.Context, machine string, r ExecRequest) (int, error)
	// Processes lists the machine's processes, the main one first.
	Processes(ctx context.Context, machine string) ([]machine.Process, error)
	// Logs calls emit for each line in order. A line is given once.
	Logs(ctx context.Context, machine string, q machine.LogQuery, emit func(machine.LogLine) error) error
	// Close lets go of the runtime without touching what it runs.
	Close() error
}

// Puller is a runtime whose images are brought to the host first.
type Puller interface {
	// Pull makes an image ready to start a machine from, and keeps it at least until the machine is started or removed.
	// An image that is here is not asked for again. Of one of the host's own programs nothing is done.
	Pull(ctx context.Context, machine, image string) (Pulled, error)
}

// Pulled is what is known of an image once it is here.
type Pulled struct {
	Digest  string   // that its name means now, "sha256:..."; "" of the host's own programs
	Volumes []string // directories in which it keeps data (VOLUME): absolute and clean, sorted, each once
}

// Checker is a runtime that can say beforehand what a start would refuse, as far as that shows while another attempt of
// the machine runs: a program that is not there, a user who does not exist. It changes nothing of what runs. nil promises
// nothing: what only execve tells, the start does.
type Checker interface {
	Check(ctx context.Context, s Spec) error
}

// Readier is a runtime that can make ahead what a start needs.
type Readier interface {
	// Ready says which start of a machine at rest comes next, should one come. It returns at once. What is made for it
	// is of use when Start is called with the same, and is removed with the machine; that it could not be made shows
	// nowhere but in how long the start takes.
	Ready(s Spec)
}

// Pauser is a runtime that can suspend. A paused machine keeps its memory; its processes get no CPU.
type Pauser interface {
	Pause(ctx context.Context, machine string) error
	Resume(ctx context.Context, machine string) error
}

// Codes of the errors of a program that cannot be executed.
const (
	CodeNoProgram     fault.Code = "program"        // there is none of that name, or its interpreter is missing
	CodeNotExecutable fault.Code = "not_executable" // it is a directory, its user may not, or it is for another CPU
	CodeNoDirectory   fault.Code = "workdir"        // the directory that it is to begin in is missing, or is none
)

// Hibernator is a runtime that can suspend a machine to disk, where it takes no memory and outlives the host's going
// down. It is the same attempt that goes on from there: its processes have the SOUK_FENCE that they had.
//
// A checkpoint is used once. What was killed while it wrote or read one is asked for again, and then has the life that
// it would have had; of a life and its checkpoint there is never more than one that can go on.
type Hibernator interface {
	// Hibernate writes what the attempt that runs has in memory to disk and ends its processes, with no exit. A
	// Precondition with code CodeAwake says why that is not possible: the machine goes on.
	Hibernate(ctx context.Context, machine string, attempt uint64) error
	// Wake has attempt s.Attempt go on, from disk or from where Pause left it; s is what it was started with. When its
	// checkpoint cannot be used any more the attempt has ended, its exit is lost, and the error is a Precondition with
	// code CodeForgotten.
	Wake(ctx context.Context, s Spec) (Status, error)
}

// Codes of a Hibernator's errors.
const (
	CodeAwake     fault.Code = "awake"     // the machine cannot be suspended to disk, so it goes on
	CodeForgotten fault.Code = "forgotten" // the machine's memory cannot be had from its checkpoint any more
)

// Resizer is a runtime that can change how much CPU and memory attempt s.Attempt may have while it runs: to those of
// s.Resources, with s.SharedCPU and s.SwapMB. It may be repeated. An attempt that does not run is a Precondition with
// code "not_running"; memory below what it uses is one with code "memory_in_use". What is final has changed nothing.
type Resizer interface {
	Resize(ctx context.Context, s Spec) error
}

// Pinger is a runtime that can say that it is able to act. Ping answers when it is, by the way that a start takes.
type Pinger interface {
	Ping(ctx context.Context) error
}

// Acker is a runtime that can forget many exits in one call. Only Machine and Attempt count.
type Acker interface {
	AckAll(ctx context.Context, exits []Exit) error
}

// Meter is a runtime that can tell what a machine uses.
type Meter interface {
	Usage(ctx context.Context, machine string) (Usage, error)
}

// HostMeter is a runtime that can tell what all that runs on its host uses; nil: that cannot be read.
type HostMeter interface{ HostUse() *machine.HostUse }

// Place is a path of a machine. With a mount it lies in that volume, at Path below it; else below the machine's
// directory.
type Place struct {
	Machine string
	Mount   *Mount
	Path    string
}

// Copier is a runtime that can read and write a machine's files as tar streams. Paths cannot leave the machine's
// directory, or the volume.
type Copier interface {
	CopyOut(ctx context.Context, from Place, w io.Writer) error
	CopyIn(ctx context.Context, to Place, r io.Reader) error
}

// Connector is a runtime that gives machines networks of their own.
type Connector interface {
	// Connect returns the address that a machine has, "" where it is that of its host, and what stands against the
	// network that its config asks for: ports of the host that are taken, or what is not allowed here. It changes
	// nothing.
	Connect(app, id string, c *machine.Config) (address string, no []machine.Clause)
}

// Listener is a runtime that can tell which of the sockets that listen on a TCP port of its host are a machine's.
type Listener interface {
	// Listening lists the sockets of the host's network that listen on a port, those of other programs too. The error says
	// that it cannot be told which of them are the machine's.
	Listening(ctx context.Context, machine string, port int) ([]Listening, error)
}

// Listening is a socket of the host's network that takes connections.
type Listening struct {
	At netip.Addr
	// Own is the path at which a process of the machine has it, a symbolic link to Link for as long as it does; "": none
	// has it.
	Own, Link string
}

// Halter is a runtime that can tell whether what listens on a machine's port is stopped by a signal, so that no connection
// there is answered. False: it is not, or that cannot be told.
type Halter interface {
	Halted(ctx context.Context, machine string, port int) bool
}

// Doctor is a runtime that can say what it has and lacks on this host.
type Doctor interface {
	Examine(ctx context.Context) []cluster.Finding
}
