package api

import (
	"bytes"
	"encoding/json"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/machine"
)

// LeaseRequest is the request to acquire or refresh a lease.
type LeaseRequest struct {
	TTL         *int   `json:"ttl,omitempty"` // seconds
	Description string `json:"description,omitempty"`
	Owner       string `json:"owner,omitempty"`
}

// LeaseAnswer is a lease as the Machines API wraps it.
type LeaseAnswer struct {
	Status string        `json:"status"`
	Data   machine.Lease `json:"data"`
}

// Started is the answer to a start.
type Started struct {
	Message  string        `json:"message"`
	Status   string        `json:"status"`
	Previous machine.State `json:"previous_state"`
	Migrated bool          `json:"migrated"`
	NewHost  string        `json:"new_host"`

	Begun *machine.Begun `json:"begun,omitempty"` // nil: the start is done
}

// StopRequest says how to stop a machine; the machine's config gives what it leaves out.
type StopRequest struct {
	ID      string           `json:"id,omitempty"`
	Signal  string           `json:"signal,omitempty"`
	Timeout machine.Duration `json:"timeout,omitzero"`
}

// SignalRequest is the request to send a signal.
type SignalRequest struct {
	Signal machine.SignalText `json:"signal"` // 9 or "SIGKILL"
}

// Waited is the answer to a wait.
type Waited struct {
	OK      bool          `json:"ok"`
	State   machine.State `json:"state"`
	Version string        `json:"version"`
	EventID string        `json:"event_id,omitempty"`
}

// MoveRequest says where a machine should move.
type MoveRequest struct {
	// To is the id of the only worker that may take it. Left out: any other may. It is required for a replica of a
	// service.
	To cluster.WorkerID `json:"to,omitempty"`
	// Plan only checks the move: the answer has planned set, or is the error that the move would have. Nothing changes.
	Plan bool `json:"plan,omitempty"`
}

// Moved is the answer to a move: the machine as it is now, and where it was.
type Moved struct {
	From    string           `json:"from"` // the machine's old id
	Worker  cluster.WorkerID `json:"worker"`
	Machine *machine.Machine `json:"machine"` // as it is now
	DownMS  float64          `json:"down_ms"` // between its stop and its start, 0 where it did not run
	// Already says that it was at To before, so nothing was done, except that a pending move elsewhere is cancelled.
	Already bool `json:"already,omitempty"`
	// Begun says that it is a replica of a service, whose steward continues: it makes another machine at To, and then
	// removes this one. The service's status shows the progress.
	Begun bool `json:"begun,omitempty"`
	// Planned says that it would move now; nothing was done.
	Planned bool `json:"planned,omitempty"`
}

// MachineLines is a page of machines in one line each, in order of id.
type MachineLines struct {
	Machines   []machine.Line `json:"machines"`
	NextCursor string         `json:"next_cursor,omitempty"` // absent: these were the last
}

// linesHead is the start of a page of lines.
const linesHead = `{"machines":`

// AppendJSON appends the page as json.Marshal writes it.
func (p *MachineLines) AppendJSON(b []byte) []byte {
	b = append(b, linesHead+"["...)
	for i := range p.Machines {
		if i > 0 {
			b = append(b, ',')
		}
		b = p.Machines[i].AppendJSON(b)
	}
	b = append(b, ']')
	if p.NextCursor != "" {
		b = machine.AppendText(append(b, `,"next_cursor":`...), p.NextCursor)
	}
	return append(b, '}')
}

// UnmarshalJSON reads a page written by AppendJSON ten times as fast as encoding/json, which it uses for any other
// form.
func (p *MachineLines) UnmarshalJSON(b []byte) error {
	type plain MachineLines
	if text, ours := bytes.CutPrefix(b, []byte(linesHead)); ours {
		if lines, rest, ok := machine.ParseLines(text); ok {
			rest, more := bytes.CutPrefix(rest, []byte(","))
			tail := plain{}
			err := json.Unmarshal(append([]byte("{"), rest...), &tail)
			if err == nil && tail.Machines == nil && more != bytes.HasPrefix(rest, []byte("}")) {
				p.Machines, p.NextCursor = lines, tail.NextCursor
				return nil
			}
		}
	}
	return json.Unmarshal(b, (*plain)(p))
}

// MachinePage is a page of an organization's machines, in order of id.
type MachinePage struct {
	Machines      []*machine.Machine `json:"machines"`
	NextCursor    string             `json:"next_cursor,omitempty"`
	LastMachineID string             `json:"last_machine_id,omitempty"`
	LastUpdatedAt string             `json:"last_updated_at,omitempty"`
}
