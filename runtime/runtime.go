// Package runtime is the interface between a worker and a technology that runs machines: processes, containers,
// sandboxes.
//
// # Vocabulary
//
// A *machine* is identified by its id. Each start of it is a new *attempt*: a number that only grows, assigned by the
// worker and journalled before the runtime is told. (machine, attempt) names one life of one process and is the key of
// every idempotent call. An *exit* is how such a life ended; the runtime keeps it until it is acknowledged, also over
// restarts of souk, so that no exit status is lost.
//
// # Lifecycle
//
//	Prepare -> Start(1) -> [Pause -> Resume]* -> exit(1) -> Ack(1) -> Start(2) -> ... -> Remove
//
// # Rules, which runtimetest checks for every runtime
//
//   - Prepare, Start, Pause, Resume, Kill and Remove are idempotent: a worker that was killed while it waited for the
//     answer repeats the call and gets the same answer, with no second effect.
//   - Start(m, n) while attempt n runs, or after it exited, returns that life and starts nothing. Start(m, n) while an
//     older attempt still runs is a Conflict: there are never two lives at once. Start(m, n) with n older than one seen
//     is a Conflict.
//   - Start of a machine that was never prepared, or was removed, is NotFound, unless Spec.Fresh asks to prepare it.
//   - A life continues when souk ends, and List returns it when souk is started again.
//   - Remove ends all processes of the machine before it deletes anything.
//   - Errors are *fault.Error. Invalid and Precondition are final; Unavailable is worth a retry.
//
// Capabilities that not every runtime has are separate interfaces, found by type assertion.
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

// Spec is everything that a runtime is told about a machine. Env and Files may hold secrets: they are never logged,
// listed or journalled.
type Spec struct {
	Machine string
	Attempt uint64 // 0 in Prepare
	Fresh   bool   // Start first does the work of Prepare, which saves a call for a new machine
	App     string
	Image   string
	Argv    []string // empty: the image's command, with Args
	Args    []string // arguments of the image's entry point that replace the image's own; nil: the image's own
	Env     []string // KEY=VALUE; complete except for what the image adds: nothing of souk's own environment
	User    string   // "": a user of its own where souk is root, else souk's user
	As      *As      // the user of the host to run as, only without User and Image; nil: as User says
	Home    bool     // HOME is the machine's directory, unless Env sets it
	// Dir is the directory of the host, absolute, that a program of the host starts in, and the commands beside it; "":
	// the machine's own. It is entered with the rights of the program's user.
	Dir       string
	Stdio     Stdio // files of the host for a program of the host; zero: none
	Files     []File
	Mounts    []Mount
	Shown     []Shown
	Resources cluster.Resources
	SharedCPU bool // cpu is a share that may burst, not a quota
	SwapMB    int  // -1: no limit is stated
	TTY       bool
	ReadOnly  bool   // the files of the image cannot be changed
	Runtime   string // which OCI runtime makes the container; "": the worker's default
	// its output is kept until a reader has taken it (machine.LogQuery.Hold), and the program waits for that
	Attach  bool
	Network machine.Network // as machine.NetworkOf returns it; zero: an image that declares nothing
	// Devices are those that the machine may use, by their names on its host; all others are denied. Where variables
	// list devices, the variables of the device take precedence over Env.
	Devices []string
}

// EnvMachine is the variable in Env that names the machine, so that a runtime can find the processes that a machine
// left.
const EnvMachine = "FLY_MACHINE_ID"

// File is written below the machine's directory before a start. Path is as the user wrote it ("/etc/app.conf"). A
// runtime that gives a machine no root of its own writes it below the machine's directory and refuses a path that leads
// out of it.
type File struct {
	Path string
	Mode uint32
	Data []byte
}

// Mount shows at Path of the machine the worker's directory Dir, or the file system in the file Dir (package loopfs).
type Mount struct {
	Volume string
	Dir    string
	Path   string
}

// Shown puts into the machine's directory, before a start, what is in the worker's directory Dir. The machine gets
// directories of its own, and hard links to the files: they take no room, and the machine can remove them. It cannot
// change the files if they belong to another user. A container has none.
type Shown struct {
	Dir string `json:"dir"` // absolute, on the file system of the machine's directory
}

// Status is one life of a machine, as the runtime knows it.
type Status struct {
	Machine   string
	Attempt   uint64
	PID       int // of the main process, 0 when it has ended
	Running   bool
	Paused    bool
	OnDisk    bool      // with Running and Paused: its memory is on disk, and it has no process until it is woken
	StartedAt time.Time // zero: not known
	Exit      *Exit     // set when it has ended and the exit is not yet acknowledged
}

// Exit is how a life ended. Code is that of a shell (128+n for signal n).
type Exit struct {
	Machine string
	Attempt uint64
	Code    int
	Signal  int
	OOM     bool
	Lost    bool // nobody saw the end (the whole host went down): Code is -1
	At      time.Time
	// CPU is the user and system time that the life used. It includes processes that the main process did not wait for
	// only where the life has a cgroup. 0: not known.
	CPU time.Duration `json:",omitempty"`
	// MaxRSS is the largest amount of memory in bytes that the life had in use at once; 0: not known. With a cgroup
	// whose peak can be had for one life, it is that of all processes together, with page cache. Otherwise it is that
	// of the largest single process, as wait4(2) reports it, which is not less than what the forking runtime itself
	// used.
	MaxRSS int64 `json:",omitempty"`
}

// ExecRequest runs another command beside the machine's main process, with its directory, environment and limits. Stdin
// may be nil. A nil Stdout or Stderr is discarded.
type ExecRequest struct {
	Argv []string
	// a user of the container, named as in an image; "": the machine's user, the only one for a program of the host
	User   string
	Dir    string // absolute, as the machine sees it; "": the machine's
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer

	Terminal *Terminal // nil: none

	// Attach runs no command: Terminal shows the terminal of the main process, which Spec.TTY gives it, and the exit
	// code returned is that of the main process. Several may be attached. When ctx ends first, the machine continues,
	// and the error is a Timeout. With Backlog the latest output is shown first.
	Attach  bool
	Backlog bool
}

// maxUser and maxDir are the limits that Check enforces, in bytes.
const (
	maxUser = 256
	maxDir  = 4096
)

// Check refuses requests that are invalid for every machine. It does not look at Argv.
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

// Terminal gives a command a terminal of its own as its stdin, stdout and stderr: what it reads comes from
// ExecRequest.Stdin, and all that it writes goes to ExecRequest.Stdout. The end of Stdin does not reach the command.
// Each size that Resize delivers is passed on to the terminal. It leads a session of its own and is hung up at the end,
// as with any terminal.
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

// Runtime runs machines. Every method may be called concurrently. Calls for one machine are made one after the other,
// except Exec, Processes, Logs and Kill. A call that was cancelled may still be carried out, but never after a later
// call for the same machine has returned.
type Runtime interface {
	// Name is the technology: "process", "fake".
	Name() string
	// CanRun reports whether the image can be run here, by the OCI runtime that its machine asks for, if any. The error
	// says what to do instead.
	CanRun(image, by string) error
	// Prepare makes what outlives a start: the machine's directory.
	Prepare(ctx context.Context, s Spec) error
	// Start starts attempt s.Attempt and returns once the program has been executed (exec(2) succeeded), not before.
	Start(ctx context.Context, s Spec) (Status, error)
	// Signal sends sig to the main process. 0 stands for the machine's stop signal: that of its image, else SIGINT. It
	// is a Precondition when nothing runs.
	Signal(ctx context.Context, machine string, sig syscall.Signal) error
	// SignalAll sends sig to all processes of the machine, but for the init of a container, which passes signals on. It
	// is a Precondition when nothing runs.
	SignalAll(ctx context.Context, machine string, sig syscall.Signal) error
	// Kill ends every process of the machine at once. It returns nil when nothing runs.
	Kill(ctx context.Context, machine string) error
	// Remove kills the machine's processes and deletes everything of the machine. It returns nil when there is nothing.
	Remove(ctx context.Context, machine string) error
	// List returns every machine that the runtime knows, with its latest attempt.
	List(ctx context.Context) ([]Status, error)
	// Exits delivers each exit, including those from before this process began, at least once until it is acknowledged.
	Exits() <-chan Exit
	// Ack forgets an exit that has been journalled. It returns nil when there is none.
	Ack(ctx context.Context, machine string, attempt uint64) error
	// Exec runs a command and returns its exit code. It is a Precondition when the machine does not run. When ctx ends
	// first, the command is killed and the error is a Timeout.
	Exec(ctx context.Context, machine string, r ExecRequest) (int, error)
	// Processes lists the machine's processes, the main one first.
	Processes(ctx context.Context, machine string) ([]machine.Process, error)
	// Logs calls emit for each line in order, once for each line.
	Logs(ctx context.Context, machine string, q machine.LogQuery, emit func(machine.LogLine) error) error
	// Close closes the runtime. What it runs continues.
	Close() error
}

// Puller is a runtime that must download images to the host first.
type Puller interface {
	// Pull makes an image ready to start a machine from, and keeps it at least until the machine is started or removed.
	// An image that is present is not downloaded again. For the host's own programs it does nothing.
	Pull(ctx context.Context, machine, image string) (Pulled, error)
}

// Pulled is what is known about an image once it is on the host.
type Pulled struct {
	Digest  string   // the digest of its name now, "sha256:..."; "" for the host's own programs
	Volumes []string // directories in which it keeps data (VOLUME): absolute and clean, sorted, each once
}

// Checker is a runtime that can check in advance what a start would refuse, as far as possible while another attempt of
// the machine runs: for example a missing program or user. It changes nothing that runs. A nil error promises nothing:
// some failures show only in execve.
type Checker interface {
	Check(ctx context.Context, s Spec) error
}

// Readier is a runtime that can prepare a start in advance.
type Readier interface {
	// Ready announces the next start of a stopped machine, should it come. It returns at once. What it prepares is used
	// if Start is called with the same Spec, and is removed with the machine. If it fails, the start only takes longer.
	Ready(s Spec)
}

// Pauser is a runtime that can suspend. A paused machine keeps its memory; its processes get no CPU.
type Pauser interface {
	Pause(ctx context.Context, machine string) error
	Resume(ctx context.Context, machine string) error
}

// Codes of the errors of a program that cannot be executed.
const (
	CodeNoProgram     fault.Code = "program"        // no program has that name, or its interpreter is missing
	CodeNotExecutable fault.Code = "not_executable" // the program is a directory, not executable, or for another CPU
	CodeNoDirectory   fault.Code = "workdir"        // the working directory is missing, or is no directory
)

// Hibernator is a runtime that can suspend a machine to disk, where it takes no memory and survives a shutdown of the
// host. The same attempt continues from there: its processes keep their SOUK_FENCE.
//
// A checkpoint is used once. If writing or reading one was killed, the request is repeated, with the same result as
// without the interruption. Of a life and its checkpoint never more than one can continue.
type Hibernator interface {
	// Hibernate writes the memory of the running attempt to disk and ends its processes, without an exit. If that is
	// not possible, the machine continues and the error is a Precondition with code CodeAwake that says why.
	Hibernate(ctx context.Context, machine string, attempt uint64) error
	// Wake continues attempt s.Attempt, from disk or from where Pause left it. s is what it was started with. If its
	// checkpoint is no longer usable, the attempt has ended, its exit is lost, and the error is a Precondition with
	// code CodeForgotten.
	Wake(ctx context.Context, s Spec) (Status, error)
}

// Codes of a Hibernator's errors.
const (
	CodeAwake     fault.Code = "awake"     // the machine cannot be suspended to disk, so it keeps running
	CodeForgotten fault.Code = "forgotten" // the machine's memory cannot be restored from its checkpoint
)

// Resizer is a runtime that can change the CPU and memory limits of attempt s.Attempt while it runs, to those of
// s.Resources, with s.SharedCPU and s.SwapMB. It may be repeated. An attempt that does not run is a Precondition with
// code "not_running"; memory below what it uses is one with code "memory_in_use". After a final error nothing has
// changed.
type Resizer interface {
	Resize(ctx context.Context, s Spec) error
}

// Pinger is a runtime that can report that it works. Ping returns nil when it does, by the same path that a start
// takes.
type Pinger interface {
	Ping(ctx context.Context) error
}

// Acker is a runtime that can forget many exits in one call. Only Machine and Attempt are used.
type Acker interface {
	AckAll(ctx context.Context, exits []Exit) error
}

// Remover is a runtime that can remove many machines in one call. After an error some may not be removed; it can be
// repeated, as Remove can.
type Remover interface {
	RemoveAll(ctx context.Context, machines []string) error
}

// Meter is a runtime that can measure what a machine uses.
type Meter interface {
	Usage(ctx context.Context, machine string) (Usage, error)
}

// HostMeter is a runtime that can measure the use of its whole host; nil: it cannot be read.
type HostMeter interface{ HostUse() *machine.HostUse }

// Place is a path of a machine. With a mount it is Path below that volume, else below the machine's directory.
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

// FileKeeper is a runtime that can keep files of a machine that has ended, before Remove.
type FileKeeper interface {
	// KeepFiles moves what matches patterns from the machine's directory into the directory to, which exists on the
	// same file system, under the same paths. A pattern is a path below the machine's directory, each part a pattern of
	// path.Match; a directory is moved whole. Symlinks are moved, not followed. What is moved already is left alone, so
	// it may be repeated. The directory to is given to the machine's user, so that whose files are in it can be told.
	KeepFiles(ctx context.Context, machine string, patterns []string, to string) error
}

// Connector is a runtime that gives machines networks of their own.
type Connector interface {
	// Connect returns the address of a machine, "" where it is that of its host, and the reasons why the network that
	// its config asks for is not possible: ports of the host that are taken, or what is not allowed here. It changes
	// nothing.
	Connect(app, id string, c *machine.Config) (address string, no []machine.Clause)
}

// Listener is a runtime that can tell which sockets that listen on a TCP port of its host belong to a machine.
type Listener interface {
	// Listening lists the sockets of the host's network that listen on a port, including those of other programs. It
	// returns an error if it cannot be determined which of them are the machine's.
	Listening(ctx context.Context, machine string, port int) ([]Listening, error)
}

// Listening is a socket of the host's network that accepts connections.
type Listening struct {
	At netip.Addr
	// Own is the path of a symbolic link in a process of the machine that has the socket; it leads to Link while the
	// process has it. "": no process of the machine has it.
	Own, Link string
}

// Halter is a runtime that can detect that the process that listens on a machine's port is stopped by a signal, so that
// no connection there is answered. False: it is not, or that cannot be determined.
type Halter interface {
	Halted(ctx context.Context, machine string, port int) bool
}

// Doctor is a runtime that can report what it has and lacks on this host.
type Doctor interface {
	Examine(ctx context.Context) []cluster.Finding
}
