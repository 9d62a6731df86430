package batch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

const (
	outputsPage = 1000             // tasks whose output is found with one question to the loop
	outputWait  = 10 * time.Second // how long the next line of a running task may take
)

// placedOutput is an output with the connection to the worker that runs the task; nil: it is not connected.
type placedOutput struct {
	jobs.Output
	conn RunnerConn
}

// TaskOutput emits the output of those tasks of a job that have begun, in order of index: of the running attempt, else of
// the newest that ended. Output that is not here does not end it: a line says why.
func (b *Buyer) TaskOutput(ctx context.Context, ref string, q jobs.OutputQuery,
	emit func(jobs.TaskLine) error) error {
	job, err := b.Status(ctx, ref)
	if err != nil {
		return err
	}
	r := &outputReader{b: b, job: job.ID, tail: q.Tail, emit: emit, silent: map[cluster.WorkerID]error{}}
	for from := 0; from >= 0; {
		page, next, err := b.findOutputs(ctx, job.ID, from, outputsPage, q.Tasks)
		if err != nil {
			return err
		}
		for i := range page {
			if err := r.readTask(ctx, &page[i]); err != nil {
				return err
			}
		}
		from = next
	}
	return nil
}

// findOutputs asks the loop where the output of tasks is; see jobs.Dispatcher.Outputs.
func (b *Buyer) findOutputs(ctx context.Context, job string, from, limit int, list jobs.Indices) (page []placedOutput,
	next int, err error) {
	type found struct {
		list []jobs.Output
		next int
	}
	f, err := askLoop(ctx, b, func(time.Time) (f found, err error) {
		f.list, f.next, err = b.dispatcher.Outputs(job, from, limit, list)
		return f, err
	})
	if err != nil {
		return nil, -1, err
	}
	page = make([]placedOutput, len(f.list))
	b.connsMu.Lock()
	defer b.connsMu.Unlock()
	for i, o := range f.list {
		page[i] = placedOutput{o, b.conns[o.Worker]}
	}
	return page, f.next, nil
}

// outputReader reads the output of tasks, one after the other.
type outputReader struct {
	b      *Buyer
	job    string
	tail   *int
	emit   func(jobs.TaskLine) error
	silent map[cluster.WorkerID]error // workers that did not answer, which are not asked again, and why
}

// errReaderGone marks an error of emit: nothing more is read then.
var errReaderGone = errors.New("the reader is gone")

// readTask emits the output of one task. An error ends the whole.
func (r *outputReader) readTask(ctx context.Context, o *placedOutput) error {
	err := r.readRunning(ctx, o)
	if fault.Is(err, fault.NotFound) && !errors.Is(err, errReaderGone) { // it has no output yet, or has ended since
		page, _, again := r.b.findOutputs(ctx, r.job, o.Index, 1, jobs.Indices{{First: o.Index, Last: o.Index}})
		if again != nil {
			return again
		}
		if err = nil; len(page) == 1 && page[0].Live == nil {
			o = &page[0]
		}
	}
	if err == nil && o.Live == nil && o.Result != nil {
		err = r.b.files.readOutput(o.Result, r.job, r.tail, r.emitLine(o.Index))
	}
	switch {
	case ctx.Err() != nil:
		return lateError(ctx)
	case err == nil, errors.Is(err, errReaderGone):
		return err
	}
	return r.emit(jobs.TaskLine{Index: o.Index, Missing: err.Error()})
}

func (r *outputReader) emitLine(index int) func(machine.LogLine) error {
	return func(l machine.LogLine) error {
		if err := r.emit(jobs.TaskLine{Index: index, LogLine: l}); err != nil {
			return fmt.Errorf("%w: %w", errReaderGone, err)
		}
		return nil
	}
}

// readRunning emits the output of a task that runs. NotFound: there is none.
func (r *outputReader) readRunning(ctx context.Context, o *placedOutput) error {
	if o.Live == nil {
		return nil
	}
	if o.conn == nil && r.silent[o.Worker] == nil {
		r.silent[o.Worker] = fault.New(fault.Unavailable, codeOutput,
			"the output of this task is at worker %s, which is not connected", o.Worker)
	}
	if err := r.silent[o.Worker]; err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	late := time.AfterFunc(outputWait, cancel)
	defer late.Stop()
	emit := r.emitLine(o.Index)
	err := o.conn.Output(ctx, *o.Live, machine.LogQuery{Tail: r.tail}, func(l machine.LogLine) error {
		late.Stop() // whoever reads may take its time
		defer late.Reset(outputWait)
		return emit(l)
	})
	switch {
	case err == nil || errors.Is(err, errReaderGone) || fault.Is(err, fault.NotFound):
		return err
	case ctx.Err() != nil:
		err = fault.New(fault.Unavailable, codeOutput,
			"the output of this task is at worker %s, which did not answer within %v", o.Worker, outputWait)
	default:
		err = fault.Wrap(err, fault.Unavailable, codeOutput,
			"the output of this task could not be read at worker %s", o.Worker)
	}
	r.silent[o.Worker] = err
	return err
}
