package wire

import (
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/auction"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/core/scheduler/shell"
	"github.com/soukhq/souk/core/share"
	"github.com/soukhq/souk/fault"
)

// taskOrders is jobs.Orders for the wire: lives are text, and the terms of a job are sent before, once.
type taskOrders struct {
	Bulletin *jobs.Bulletin `json:"bulletin,omitempty"`
	Back     []jobs.Offer   `json:"back,omitempty"`
	Save     []jobs.Shape   `json:"save,omitempty"`
	Grants   []taskGrant    `json:"grants,omitempty"`
	Watch    []taskLife     `json:"watch,omitempty"`
	Kill     []taskLife     `json:"kill,omitempty"`
	Withdraw []taskLife     `json:"withdraw,omitempty"`
	Recorded []taskLife     `json:"recorded,omitempty"`
	Parcels  []shell.Parcel `json:"parcels,omitempty"`
}

type taskGrant struct {
	Slot  int32        `json:"s"`
	Offer int32        `json:"o"`
	Job   int32        `json:"j"`
	Task  int32        `json:"t"`
	Life  taskLife     `json:"l"`
	Token *shell.Token `json:"token,omitempty"`
}

// taskReport is a jobs.Message for the wire, or a part of one.
type taskReport struct {
	Record  *cluster.Record    `json:"record,omitempty"` // nil: that of the last report, with other use
	Used    *cluster.Resources `json:"used,omitempty"`
	Full    bool               `json:"full,omitempty"`
	More    bool               `json:"more,omitempty"` // the next frame goes on with it
	Running []taskLife         `json:"running,omitempty"`
	Offers  []jobs.SlotOffer   `json:"offers,omitempty"`
	Free    int                `json:"free,omitempty"`
	Passed  []jobs.Shape       `json:"passed,omitempty"`
	Replies []taskReply        `json:"replies,omitempty"`
	Results []taskResult       `json:"results,omitempty"`
	Places  []jobs.PlaceAnswer `json:"places,omitempty"`
	Rivals  []jobs.Claim       `json:"rivals,omitempty"`
	// Accounts and Shares are those of jobs.Report.
	Accounts bool             `json:"accounts,omitempty"`
	Shares   []share.Standing `json:"shares,omitempty"`
}

type taskReply struct {
	jobs.Offer
	Answer auction.Reply `json:"a"`
	Life   taskLife      `json:"l"`
	Unpaid time.Duration `json:"u,omitempty"`
}

type taskResult struct {
	jobs.Result
	Life   taskLife `json:"life"`
	Output []byte   `json:"output,omitempty"`
}

// taskLife is a jobs.Life as its text.
type taskLife jobs.Life

// MarshalText implements encoding.TextMarshaler.
func (l taskLife) MarshalText() ([]byte, error) { return []byte(jobs.Life(l).String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (l *taskLife) UnmarshalText(b []byte) error {
	life, ok := jobs.ParseLife(string(b))
	if !ok {
		return fault.New(fault.Invalid, fault.CodeFrame, "%.60q names no attempt of a task", b)
	}
	*l = taskLife(life)
	return nil
}

func toLives(list []jobs.Life) (out []taskLife) {
	for _, l := range list {
		out = append(out, taskLife(l))
	}
	return out
}

func fromLives(list []taskLife) (out []jobs.Life) {
	for _, l := range list {
		out = append(out, jobs.Life(l))
	}
	return out
}

// termsOf lists the terms that orders name, some of them more than once.
func termsOf(o *jobs.Orders) (out []*jobs.Terms) {
	for _, g := range o.Grants {
		out = append(out, g.Terms)
	}
	for _, w := range o.Watch {
		out = append(out, w.Terms)
	}
	return out
}

// encodeOrders makes orders for the wire.
func encodeOrders(o *jobs.Orders) *taskOrders {
	out := &taskOrders{Bulletin: o.Bulletin, Back: o.Back, Save: o.Save, Kill: toLives(o.Kill),
		Withdraw: toLives(o.Withdraw), Recorded: toLives(o.Recorded), Parcels: o.Parcels}
	for _, g := range o.Grants {
		x := taskGrant{g.Slot, g.Granted.Offer, g.Granted.Job, g.Granted.Task, taskLife(g.Life), g.Token}
		out.Grants = append(out.Grants, x)
	}
	for _, w := range o.Watch {
		out.Watch = append(out.Watch, taskLife(w.Life))
	}
	return out
}

// decodeOrders reads orders. known are the terms of jobs so far. A grant without terms is refused: Invalid.
func decodeOrders(worker cluster.WorkerID, in *taskOrders, known map[string]*jobs.Terms) (*jobs.Orders, error) {
	out := &jobs.Orders{Worker: worker, Bulletin: in.Bulletin, Back: in.Back, Save: in.Save, Kill: fromLives(in.Kill),
		Withdraw: fromLives(in.Withdraw), Recorded: fromLives(in.Recorded), Parcels: in.Parcels}
	for _, g := range in.Grants {
		t := known[g.Life.Job]
		if t == nil {
			return nil, fault.New(fault.Invalid, fault.CodeFrame,
				"a task of job %s was granted, but the buyer has not sent the terms of that job", g.Life.Job)
		}
		out.Grants = append(out.Grants, jobs.Grant{Slot: g.Slot, Life: jobs.Life(g.Life), Terms: t, Token: g.Token,
			Granted: auction.TaskGrant{Offer: g.Offer, Job: g.Job, Task: g.Task}})
	}
	for _, l := range in.Watch {
		if t := known[l.Job]; t != nil {
			out.Watch = append(out.Watch, jobs.Watch{Life: jobs.Life(l), Terms: t})
		}
	}
	return out, nil
}

// reportEncoder makes a runner's messages for the wire. The record is sent again only when more than use has changed.
type reportEncoder struct{ last *cluster.Record }

// encodeReport makes a message for the wire, in parts of about reportBytes.
func (e *reportEncoder) encodeReport(m jobs.Message) (parts []*taskReport) {
	part := &taskReport{Full: m.Full, Running: toLives(m.Running), Offers: m.Offers, Free: m.Free, Passed: m.Passed,
		Places: m.Places, Rivals: m.Rivals, Accounts: m.Accounts, Shares: m.Shares}
	if e.last != nil && e.last.SameButUse(&m.Record) {
		part.Used = &m.Record.Used
	} else {
		e.last, part.Record = &m.Record, &m.Record
	}
	for _, r := range m.Replies {
		part.Replies = append(part.Replies, taskReply{r.Offer, r.Answer, taskLife(r.Life), r.Unpaid})
	}
	size := 0
	for i, r := range m.Results {
		x := taskResult{Result: r, Life: taskLife(r.Life())}
		if i < len(m.Outputs) {
			x.Output = m.Outputs[i]
		}
		if size += len(x.Output)*4/3 + 400; size > reportBytes {
			part.More = true
			parts = append(parts, part)
			part, size = &taskReport{Full: m.Full, Free: m.Free, Accounts: m.Accounts}, len(x.Output)*4/3+400
		}
		part.Results = append(part.Results, x)
	}
	return append(parts, part)
}

// reportDecoder reads a runner's messages.
type reportDecoder struct {
	worker cluster.WorkerID
	last   cluster.Record
}

// addPart adds a part of a report to a message.
func (d *reportDecoder) addPart(m *jobs.Message, part *taskReport) {
	if part.Record != nil {
		d.last = *part.Record
	}
	if part.Used != nil {
		d.last.Used = *part.Used
	}
	worker := d.worker
	m.Worker, m.Record, m.Full, m.Free = worker, d.last, part.Full, part.Free
	m.Accounts, m.Shares = part.Accounts, append(m.Shares, part.Shares...)
	m.Running = append(m.Running, fromLives(part.Running)...)
	m.Offers = append(m.Offers, part.Offers...)
	m.Passed = append(m.Passed, part.Passed...)
	m.Places = append(m.Places, part.Places...)
	m.Rivals = append(m.Rivals, part.Rivals...)
	for _, r := range part.Replies {
		x := jobs.Reply{Offer: r.Offer, Answer: r.Answer, Life: jobs.Life(r.Life), Unpaid: r.Unpaid}
		m.Replies = append(m.Replies, x)
	}
	for _, x := range part.Results {
		r := x.Result
		r.Job, r.Index, r.Attempt = x.Life.Job, x.Life.Index, x.Life.Attempt
		r.CPU, r.Memory, r.GPUs, r.Worker = x.Life.CPU, x.Life.Memory, x.Life.GPUs, worker
		m.Results, m.Outputs = append(m.Results, r), append(m.Outputs, x.Output)
	}
}
