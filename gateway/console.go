package gateway

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/fleet/find"
	"github.com/soukhq/souk/internal/pace"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime"
)

// lines writes NDJSON through a pace.Writer. Its methods may be called from many goroutines. Its handler must call
// flushRest before it returns.
type lines struct {
	mu      sync.Mutex
	w       http.ResponseWriter
	control *http.ResponseController
	soon    *pace.Writer
	begun   bool
	log     *slog.Logger
}

func newLines(w http.ResponseWriter, log *slog.Logger) *lines {
	c := http.NewResponseController(w)
	return &lines{w: w, control: c, soon: pace.New(w, c.Flush), log: log}
}

// flushRest sends the buffered rest. An error means that the client is gone, and does not matter.
func (l *lines) flushRest() { _ = l.soon.Close() }

// sendHeaders sends the headers, so that the client knows that the stream works before its first line.
func (l *lines) sendHeaders() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.openStream()
}

func (l *lines) openStream() error {
	if l.begun {
		return nil
	}
	l.begun = true
	l.w.Header().Set("Content-Type", api.NDJSON)
	l.w.WriteHeader(http.StatusOK)
	return l.control.Flush()
}

func (l *lines) sendLine(v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return fault.Wrap(err, fault.Internal, codeStream, "a line could not be written as JSON")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.openStream(); err != nil {
		return err
	}
	_, err = l.soon.Write(append(raw, '\n'))
	return err
}

// finishStream finishes a stream: an error before the first byte is an ordinary error answer, a later one the last line.
func (l *lines) finishStream(r *http.Request, err error) error {
	l.mu.Lock()
	begun := l.begun
	l.mu.Unlock()
	if err == nil || !begun {
		return err
	}
	e := asFault(err)
	_, status := statusOf(e)
	if sendErr := l.sendLine(bodyOf(e, status, requestID(r))); sendErr != nil {
		l.log.DebugContext(r.Context(), "a stream's reader is gone", "request", requestID(r), "error", sendErr)
	}
	return nil
}

// consoleAPI serves commands, files, output and events of running machines.
type consoleAPI struct {
	directory *directory
	log       *slog.Logger
}

func (a *consoleAPI) opHandlers() handlers {
	return handlers{
		"GET /v1/apps/{app}/machines/{id}/ps":         a.listProcesses,
		"POST /v1/apps/{app}/machines/{id}/exec":      a.execMachine,
		"GET /v1/souk/apps/{app}/machines/{id}/files": a.copyOut,
		"PUT /v1/souk/apps/{app}/machines/{id}/files": a.copyIn,
		"GET /v1/souk/apps/{app}/machines/{id}/logs":  a.streamLogs,
		"GET /v1/souk/events":                         a.streamEvents,
		"POST /v1/souk/apps/{app}/machines/{id}/exec": a.streamExec,

		"POST /v1/souk/apps/{app}/machines/{id}/ports/{port}": a.dialMachine,
	}
}

// streamLogs streams a machine's output to its end, or with follow until the client goes. For a destroyed machine it
// streams the last output, which its worker keeps for a while.
func (a *consoleAPI) streamLogs(w http.ResponseWriter, r *http.Request) error {
	tail, err := queryTail(r)
	if err != nil {
		return err
	}
	follow, err := queryBool(r, "follow")
	if err != nil {
		return err
	}
	hold, err := queryBool(r, "hold")
	if err != nil {
		return err
	}
	if hold && !mayDo(r, api.Route{Op: api.StartMachine, Verb: api.VerbOperate, Kind: api.KindMachine}) {
		return fault.New(fault.Denied, fault.CodeRole,
			"hold makes the machine's program wait, so it takes a token that may change machines, of the role %s: "+
				"leave hold out to read only", api.RoleOperator)
	}
	f, err := a.directory.machineNamed(r)
	if err != nil {
		return err
	}
	if f.Machine.State == machine.Destroyed && a.directory.Outlived(r.PathValue("app"), f.Machine) {
		return find.NotFound(find.MachineMissing)
	}
	l := newLines(w, a.log)
	defer l.flushRest()
	if follow {
		if err := l.sendHeaders(); err != nil {
			return l.finishStream(r, err)
		}
	}
	q := machine.LogQuery{Cursor: r.URL.Query().Get("cursor"), Tail: tail, Follow: follow, Hold: hold}
	err = f.Worker.Logs(r.Context(), r.PathValue("app"), f.Machine.ID, q,
		func(line machine.LogLine) error { return l.sendLine(line) })
	if err == nil {
		err = l.sendHeaders() // the output was empty
	}
	return l.finishStream(r, err)
}

// streamEvents streams the events of every worker, from now on. A client that reads slowly holds back only itself.
func (a *consoleAPI) streamEvents(w http.ResponseWriter, r *http.Request) error {
	app := r.URL.Query().Get("app")
	if app != "" {
		if _, err := a.directory.Apps.App(app); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	l, workers := newLines(w, a.log), a.directory.Workers()
	defer l.flushRest()
	var deaf atomic.Int64 // workers whose streams have not begun yet
	deaf.Store(int64(len(workers)))
	all := make(chan struct{}) // closed when all streams and the answer have begun
	if len(workers) == 0 {
		close(all)
	}
	_, errs := find.AskSome(len(workers), workers, func(k Worker) (struct{}, error) {
		listens := false
		err := k.Events(ctx, app, func(e machine.EventOf) error {
			if e.ID == "" {
				if listens {
					return nil
				}
				if listens = true; deaf.Add(-1) > 0 {
					return nil
				}
				defer close(all)
				return l.sendHeaders()
			}
			select { // the client may rely on all streams once it gets a line
			case <-all:
				return l.sendLine(e)
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		cancel() // without one worker the stream would look complete: end it
		return struct{}{}, err
	})
	for _, err := range errs {
		if err != nil && !errors.Is(err, context.Canceled) {
			return l.finishStream(r, err)
		}
	}
	return nil
}

type frameWriter struct {
	to     *lines
	stream string
}

// Write sends one frame.
func (f frameWriter) Write(p []byte) (int, error) {
	if err := f.to.sendLine(api.ExecFrame{Stream: f.stream, Data: p}); err != nil {
		return 0, err
	}
	return len(p), nil
}

// streamExec runs a command with its streams on the connection: the body's first line is an api.ExecCommand, the rest
// is stdin or terminal events.
func (a *consoleAPI) streamExec(w http.ResponseWriter, r *http.Request) error {
	if err := bothWays(w, r); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	stdin := bufio.NewReader(untilGone{r.Body, cancel})
	order, err := readOrder(stdin)
	if err != nil {
		return err
	}
	f, err := a.directory.machineNamed(r)
	if err != nil {
		return err
	}
	l := newLines(w, a.log)
	defer l.flushRest()
	req := runtime.ExecRequest{Argv: order.Command, User: order.User, Dir: order.Workdir, Stdin: stdin,
		Stdout: frameWriter{l, "stdout"}, Stderr: frameWriter{l, "stderr"}}
	if order.Terminal != nil {
		if err := l.sendHeaders(); err != nil {
			return l.finishStream(r, err)
		}
		keys := newKeys(ctx, stdin, *order.Terminal)
		defer keys.closeInput()
		req.Stdin, req.Terminal = keys.typed, &keys.terminal
		req.Attach, req.Backlog = order.Attach, order.Backlog
	}
	code, err := f.Worker.Exec(ctx, r.PathValue("app"), f.Machine.ID, req)
	if err == nil {
		err = l.sendLine(api.ExecFrame{ExitCode: &code})
	}
	return l.finishStream(r, err)
}

// untilGone reads a client's body. An error means that the client has gone, which the server itself notices only after
// the body's end.
type untilGone struct {
	body io.Reader
	gone context.CancelFunc
}

// Read reads the body.
func (u untilGone) Read(p []byte) (int, error) {
	n, err := u.body.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		u.gone()
	}
	return n, err
}

// readOrder reads the first line, within MaxBody.
func readOrder(r *bufio.Reader) (api.ExecCommand, error) {
	var order api.ExecCommand
	line, err := bufio.NewReaderSize(io.LimitReader(oneByte{r}, MaxBody), 1).ReadBytes('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return order, fault.Wrap(err, fault.Invalid, machine.CodeBody,
			"the first line could not be read; send {\"command\": [...]}")
	}
	if len(line) >= MaxBody {
		return order, fault.New(fault.Invalid, fault.CodeTooLarge, "the first line is longer than %d bytes; send less",
			MaxBody)
	}
	if line = bytes.TrimSpace(line); len(line) == 0 {
		return order, fault.New(fault.Invalid, machine.CodeBody,
			"the body is empty; its first line is {\"command\": [...]}")
	}
	if err := decodeStrict(line, &order); err != nil {
		return order, err
	}
	asked := runtime.ExecRequest{User: order.User, Dir: order.Workdir, Attach: order.Attach}
	if order.Terminal != nil {
		asked.Terminal = &runtime.Terminal{Terminal: *order.Terminal}
	}
	if err := asked.Check(); err != nil {
		return order, err
	}
	if order.Attach {
		if order.Terminal == nil || len(order.Command) > 0 {
			return order, fault.New(fault.Invalid, runtime.CodeAttach,
				"attach shows the terminal of the machine's own program; send a terminal with it, and no command")
		}
		return order, nil
	}
	if len(order.Command) == 0 {
		return order, fault.New(fault.Invalid, codeCommand,
			"no command was named; the first line is {\"command\": [\"sh\"]}")
	}
	return order, nil
}

// oneByte reads a byte at a time, so that reading the first line consumes nothing of stdin.
type oneByte struct{ r *bufio.Reader }

// Read returns at most one byte.
func (o oneByte) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	return o.r.Read(p[:1])
}

// maxInput bounds one line of terminal input, in bytes.
const maxInput = 1 << 20

// keys splits a client's terminal events into typed input and window sizes.
type keys struct {
	typed    *io.PipeReader
	terminal runtime.Terminal
}

// newKeys reads lines until one is malformed, which then is the error of typed, or the client has gone.
func newKeys(ctx context.Context, from *bufio.Reader, t machine.Terminal) *keys {
	typed, feed := io.Pipe()
	sizes := make(chan machine.WindowSize)
	go func() {
		for {
			err := oneInput(ctx, from, feed, sizes)
			if err != nil {
				_ = feed.CloseWithError(err) // CloseWithError never fails
				return
			}
		}
	}()
	return &keys{typed, runtime.Terminal{Terminal: t, Resize: sizes}}
}

// closeInput discards later input. The reading goroutine ends with the request.
func (k *keys) closeInput() { _ = k.typed.Close() }

func oneInput(ctx context.Context, from *bufio.Reader, typed io.Writer, sizes chan<- machine.WindowSize) error {
	line, err := readLine(from)
	if err != nil {
		return err
	}
	if line = bytes.TrimSpace(line); len(line) == 0 {
		return nil
	}
	var in api.ExecInput
	if err := decodeStrict(line, &in); err != nil {
		return err
	}
	if in.Size != nil {
		select {
		case sizes <- *in.Size:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if len(in.Data) == 0 {
		return nil
	}
	_, err = typed.Write(in.Data)
	return err
}

// readLine reads one line of at most maxInput bytes.
func readLine(from *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := from.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case err == nil:
			return line, nil
		case len(line) > maxInput:
			return nil, fault.New(fault.Invalid, fault.CodeTooLarge,
				"a line of what is typed is longer than %d bytes; send less", maxInput)
		case err != bufio.ErrBufferFull: //nolint:errorlint // bufio gives it bare
			return nil, err
		}
	}
}
