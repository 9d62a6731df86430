package machine

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/soukhq/souk/cluster"
)

// Line is a machine as one line of a table: few fields, so that a list of thousands is encoded and decoded fast.
type Line struct {
	ID         string           `json:"id"`
	Name       string           `json:"name"`
	App        string           `json:"app"`
	State      State            `json:"state"`
	Worker     cluster.WorkerID `json:"worker,omitempty"`
	Region     string           `json:"region"`
	HostStatus string           `json:"host_status"` // ok, unknown or unreachable
	CreatedAt  string           `json:"created_at"`  // RFC 3339
	CPUKind    string           `json:"cpu_kind,omitempty"`
	CPUs       int              `json:"cpus,omitempty"`      // 0, like memory: its worker is unreachable
	CPUMilli   int              `json:"cpu_milli,omitempty"` // instead of cpus
	MemoryMB   int              `json:"memory_mb,omitempty"`
	Command    string           `json:"command,omitempty"` // cut to MaxLineCommand bytes

	ExitCode *int  `json:"exit_code,omitempty"`  // of its last end; nil: it runs, or has never ended
	OOM      bool  `json:"oom_killed,omitempty"` // its last end was out of memory
	Returns  bool  `json:"returns,omitempty"`    // as in Machine
	SilentMS int64 `json:"silent_ms,omitempty"`  // as in Machine
	Failing  bool  `json:"failing,omitempty"`    // a check that requests depend on does not pass

	Restarts int    `json:"restarts,omitempty"` // as in Machine
	Tries    int    `json:"tries,omitempty"`    // failed tries of what is being retried; 0: nothing is
	NextTry  string `json:"next_try,omitempty"` // RFC 3339; "": none, or the try is in progress

	Replica string `json:"replica,omitempty"` // its replica of its app's service, as in Replica.Slot
	Gang    string `json:"gang,omitempty"`    // its gang, in the form for commands: GangPrefix and the gang's ID
	Rank    int    `json:"rank,omitempty"`    // in its gang, from 0
}

// MaxLineCommand bounds a line's command, bytes.
const MaxLineCommand = 200

// Line returns the machine as one line.
func (m *Machine) Line() Line {
	l := Line{ID: m.ID, Name: m.Name, App: m.App, State: m.State, Worker: m.Worker, Region: m.Region,
		HostStatus: m.HostStatus, CreatedAt: m.CreatedAt, Command: commandLine(m.Config),
		Returns: m.Returns, SilentMS: m.SilentMS, Failing: m.Failing(), Restarts: m.Restarts}
	if m.Replica != nil {
		l.Replica = m.Replica.Slot()
	}
	l.Gang, l.Rank = GangOf(m.Config)
	if m.Retry != nil {
		l.Tries, l.NextTry = m.Retry.Tries, m.Retry.Next
	}
	if x := m.LastExit(); x != nil {
		l.ExitCode, l.OOM = &x.ExitCode, x.OOMKilled
	}
	if m.Config != nil && m.Config.Guest != nil {
		g := m.Config.Guest
		l.CPUKind, l.CPUs, l.CPUMilli, l.MemoryMB = g.CPUKind, g.CPUs, g.CPUMilli, g.MemoryMB
	}
	return l
}

// LastExit returns how a machine that does not run ended; nil if it runs, or has never ended.
func (m *Machine) LastExit() *ExitEvent {
	if m.State != Stopped && m.State != Failed && m.State != Destroyed && m.State != Restarting {
		return nil
	}
	for i := range m.Events {
		if r := m.Events[i].Request; r != nil && r.ExitEvent != nil {
			return r.ExitEvent
		}
	}
	return nil
}

// commandLine returns the command of a config, cut to MaxLineCommand bytes between runes.
func commandLine(c *Config) string {
	if c == nil {
		return ""
	}
	argv := c.Init.Exec
	if len(argv) == 0 {
		argv = slices.Concat(c.Init.runEntrypoint(), c.Init.Cmd)
	}
	if c.Image != "" && !IsHostImage(c.Image) {
		argv = append([]string{c.Image}, argv...)
	}
	var b strings.Builder
	for i, arg := range argv {
		if i > 0 {
			b.WriteByte(' ')
		}
		if b.WriteString(arg[:min(len(arg), MaxLineCommand+1)]); b.Len() > MaxLineCommand {
			break
		}
	}
	s := b.String()
	if len(s) <= MaxLineCommand {
		return s
	}
	n := MaxLineCommand
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
