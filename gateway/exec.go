package gateway

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/fleet/find"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime"
)

// Bounds of an exec that is answered at its end. The exec stream is bounded only by its connection.
const (
	MaxExecOutput  = 1 << 20 // bytes each of stdout and stderr; more is dropped and Truncated set
	maxExecTimeout = 3600    // seconds
	defaultExec    = 60
)

func argvOf(b api.ExecRequest) ([]string, error) {
	switch {
	case b.Container != "":
		return nil, fault.New(fault.Unimplemented, runtime.CodeContainer,
			"a machine of souk has no containers inside; leave container out")
	case b.Cmd != "" && len(b.Command) > 0:
		return nil, fault.New(fault.Invalid, codeCommand, "both cmd and command were sent; send one")
	case len(b.Command) > 0:
		return b.Command, nil
	}
	argv, err := shellWords(b.Cmd)
	if err == nil && len(argv) == 0 {
		err = fault.New(fault.Invalid, codeCommand,
			"no command was named; send {\"cmd\": \"ls -l\"} or {\"command\": [\"ls\", \"-l\"]}")
	}
	return argv, err
}

// execMachine runs a command in a machine and answers when it has ended. A command that fails is an answer, not an
// error.
func (a *consoleAPI) execMachine(w http.ResponseWriter, r *http.Request) error {
	var in api.ExecRequest
	if err := readJSON(w, r, &in, false); err != nil {
		return err
	}
	app, id := r.PathValue("app"), r.PathValue("id")
	argv, err := argvOf(in)
	if err != nil {
		return err
	}
	if in.Timeout == 0 {
		in.Timeout = defaultExec
	}
	if in.Timeout < 0 || in.Timeout > maxExecTimeout {
		return fault.New(fault.Invalid, lifecycle.CodeTimeout,
			"a command may take from 1 to %d seconds, not %d", maxExecTimeout, in.Timeout)
	}
	if in.Machine != "" && in.Machine != id {
		return fault.New(fault.Invalid, fault.CodeID,
			"the body names machine %s and the path %s; send the path's, or none", clipText(in.Machine, 40), id)
	}
	ctx, cancel := context.WithTimeout(r.Context(), time.Duration(in.Timeout)*time.Second)
	defer cancel()
	var stdout, stderr bounded
	req := runtime.ExecRequest{Argv: argv, User: in.User, Dir: in.Workdir, Stdin: strings.NewReader(in.Stdin),
		Stdout: &stdout, Stderr: &stderr}
	if err := req.Check(); err != nil {
		return err
	}
	code, err := find.Owner(ctx, a.directory.Directory, app, id, find.MachineMissing,
		func(k Worker) (int, error) { return k.Exec(ctx, app, id, req) })
	if err != nil {
		return err
	}
	out := api.ExecResult{ExitCode: code, Stdout: stdout.textSoFar(), Stderr: stderr.textSoFar()}
	if stdout.cut || stderr.cut {
		out.Truncated = fmt.Sprintf("stdout and stderr are cut after %d bytes each; the exec stream has no bound",
			MaxExecOutput)
	}
	answerJSON(w, http.StatusOK, out)
	return nil
}

// bounded keeps the first MaxExecOutput bytes and discards the rest, so that a full pipe does not block the command.
type bounded struct {
	mu  sync.Mutex
	buf bytes.Buffer
	cut bool
}

// Write always accepts all of p.
func (b *bounded) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if room := MaxExecOutput - b.buf.Len(); len(p) > room {
		b.cut = true
		b.buf.Write(p[:room])
		return len(p), nil
	}
	return b.buf.Write(p)
}

func (b *bounded) textSoFar() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// shellWords splits a command line as a POSIX shell splits words: blanks, single and double quotes, backslashes.
// Nothing is expanded: $, *, | and the like stand for themselves.
func shellWords(line string) ([]string, error) {
	var words []string
	var word strings.Builder
	inWord, quote := false, rune(0)
	escaped := false
	for _, c := range line {
		switch {
		case escaped:
			if quote == '"' && !strings.ContainsRune("\"\\$`", c) {
				word.WriteRune('\\')
			}
			word.WriteRune(c)
			escaped = false
		case c == '\\' && quote != '\'':
			escaped, inWord = true, true
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(c)
		case c == '\'' || c == '"':
			quote, inWord = c, true
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
			if inWord {
				words = append(words, word.String())
				word.Reset()
				inWord = false
			}
		default:
			word.WriteRune(c)
			inWord = true
		}
	}
	if quote != 0 || escaped {
		return nil, fault.New(fault.Invalid, codeCommand,
			"cmd ends inside a quotation; close it, or send command as a list")
	}
	if inWord {
		words = append(words, word.String())
	}
	return words, nil
}

// filePath reads path=, which names something inside the machine. The runtime confines it to the machine.
func filePath(r *http.Request) (string, error) {
	p := r.URL.Query().Get("path")
	if p == "" || strings.ContainsRune(p, 0) || len(p) > 4096 {
		return "", fault.New(fault.Invalid, fault.CodePath,
			"path= must name a file or a directory of the machine, in at most 4096 bytes")
	}
	for part := range strings.SplitSeq(p, "/") {
		if part == ".." {
			return "", fault.New(fault.Invalid, fault.CodePath,
				"path=%q leaves the machine; name a path without \"..\"",
				clipText(p, 80))
		}
	}
	clean := path.Clean(p)
	if strings.HasSuffix(p, "/") && clean != "/" { // a trailing slash follows a symlink
		clean += "/"
	}
	return clean, nil
}

// begunWriter records whether anything was written.
type begunWriter struct {
	w     http.ResponseWriter
	begun bool
}

// Write sends the headers with the first byte.
func (b *begunWriter) Write(p []byte) (int, error) {
	if !b.begun {
		b.begun = true
		b.w.Header().Set("Content-Type", api.Tar)
	}
	return b.w.Write(p)
}

func (a *consoleAPI) copyOut(w http.ResponseWriter, r *http.Request) error {
	p, err := filePath(r)
	if err != nil {
		return err
	}
	f, err := a.directory.machineNamed(r)
	if err != nil {
		return err
	}
	b := &begunWriter{w: w}
	err = f.Worker.CopyOut(r.Context(), r.PathValue("app"), f.Machine.ID, p, b)
	if err != nil && b.begun {
		a.log.WarnContext(r.Context(), "a copy broke off", "request", requestID(r), "error", err)
		panic(http.ErrAbortHandler) // a tar stream that simply ended would look complete
	}
	return err
}

func (a *consoleAPI) copyIn(w http.ResponseWriter, r *http.Request) error {
	p, err := filePath(r)
	if err != nil {
		return err
	}
	f, err := a.directory.machineNamed(r)
	if err != nil {
		return err
	}
	if err := f.Worker.CopyIn(r.Context(), r.PathValue("app"), f.Machine.ID, p, r.Body); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// dialMachine connects to a port of a machine: it sends the body to the port, and answers with what the machine sends.
func (a *consoleAPI) dialMachine(w http.ResponseWriter, r *http.Request) error {
	port, err := strconv.Atoi(r.PathValue("port"))
	if err != nil || port < 1 || port > 65535 {
		return fault.New(fault.Invalid, machine.CodePort, "a port is 1 to 65535, not %q", clipText(r.PathValue("port"),
			20))
	}
	if err := bothWays(w, r); err != nil {
		return err
	}
	control := http.NewResponseController(w)
	f, err := a.directory.machineNamed(r)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	c, err := f.Worker.Dial(ctx, r.PathValue("app"), f.Machine.ID, port)
	if err != nil {
		return err
	}
	defer c.Close()
	w.Header().Set("Content-Type", api.Bytes)
	w.WriteHeader(http.StatusOK)
	if err := control.Flush(); err != nil {
		return nil //nolint:nilerr // who asked is gone
	}
	go func() {
		if _, err := io.Copy(c, untilGone{r.Body, cancel}); err == nil {
			_ = c.CloseWrite() // fails if the machine has closed already
		}
	}()
	if _, err := io.Copy(atOnce{w, control}, c); err != nil {
		panic(http.ErrAbortHandler) // the client must not take this for the machine's own close
	}
	return nil
}

// atOnce flushes each write.
type atOnce struct {
	w       io.Writer
	control *http.ResponseController
}

// Write writes and flushes p.
func (a atOnce) Write(p []byte) (int, error) {
	n, err := a.w.Write(p)
	if err == nil {
		err = a.control.Flush()
	}
	return n, err
}

// processOrder reads ps's sort_by and order; nil: the worker's own order.
func processOrder(by, order string) (func(a, b machine.Process) int, error) {
	var less func(a, b machine.Process) int
	switch by {
	case "":
	case "pid":
		less = func(a, b machine.Process) int { return cmp.Compare(a.PID, b.PID) }
	case "stime":
		less = func(a, b machine.Process) int { return cmp.Compare(a.Stime, b.Stime) }
	case "rtime":
		less = func(a, b machine.Process) int { return cmp.Compare(a.Rtime, b.Rtime) }
	case "cpu":
		less = func(a, b machine.Process) int { return cmp.Compare(a.CPU, b.CPU) }
	case "rss":
		less = func(a, b machine.Process) int { return cmp.Compare(a.RSS, b.RSS) }
	case "command":
		less = func(a, b machine.Process) int { return cmp.Compare(a.Command, b.Command) }
	case "directory":
		less = func(a, b machine.Process) int { return cmp.Compare(a.Directory, b.Directory) }
	default:
		return nil, fault.New(fault.Invalid, codeQuery,
			"processes are sorted by pid, stime, rtime, cpu, rss, command or directory, not %q", clipText(by, 40))
	}
	switch {
	case order == "" || order == "asc" || less == nil && order == "desc":
		return less, nil
	case order == "desc":
		return func(a, b machine.Process) int { return less(b, a) }, nil
	}
	return nil, fault.New(fault.Invalid, codeQuery, "order is asc or desc, not %q", clipText(order, 40))
}

func (a *consoleAPI) listProcesses(w http.ResponseWriter, r *http.Request) error {
	less, err := processOrder(r.URL.Query().Get("sort_by"), r.URL.Query().Get("order"))
	if err != nil {
		return err
	}
	app, id := r.PathValue("app"), r.PathValue("id")
	list, err := find.Owner(r.Context(), a.directory.Directory, app, id, find.MachineMissing,
		func(k Worker) ([]machine.Process, error) { return k.Processes(r.Context(), app, id) })
	if err != nil {
		return err
	}
	out := append([]machine.Process{}, list...)
	for i := range out {
		if out[i].ListenSockets == nil {
			out[i].ListenSockets = []machine.ListenSocket{}
		}
	}
	if less != nil {
		slices.SortStableFunc(out, less)
	}
	answerJSON(w, http.StatusOK, out)
	return nil
}
