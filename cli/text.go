package cli

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/machine"
)

// StatesText joins states for a sentence: "started or stopped".
func StatesText(states []machine.State) string {
	text := string(states[0])
	for _, s := range states[1:] {
		text += " or " + string(s)
	}
	return text
}

// NumberOf returns a count with its noun: "1 machine", "3 machines".
func NumberOf(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// Shape prints the size of a machine.
func Shape(cfg *machine.Config) string {
	l := (&machine.Machine{Config: cfg}).Line()
	return LineShape(&l)
}

// LineShape prints the size of a machine: "shared-1x 256MB"; with CPU given in cores: "0.3 cpu 40MB", or "0.3 shared
// cpu 40MB" where it may burst.
func LineShape(m *machine.Line) string {
	switch {
	case m.CPUs == 0 && m.MemoryMB == 0:
		return "-"
	case m.CPUMilli != 0 && m.CPUKind == machine.Shared:
		return Cores(m.CPUMilli) + " shared cpu " + strconv.Itoa(m.MemoryMB) + "MB"
	case m.CPUMilli != 0:
		return Cores(m.CPUMilli) + " cpu " + strconv.Itoa(m.MemoryMB) + "MB"
	}
	return cmp.Or(m.CPUKind, "shared") + "-" + strconv.Itoa(m.CPUs) + "x " + strconv.Itoa(m.MemoryMB) + "MB"
}

// DeviceText prints a GPU of a worker: "GPU-0a1b (h200, NVIDIA H200, 143771 MiB), free".
func DeviceText(g *cluster.GPU) string {
	text, is := g.Text(), ""
	switch {
	case g.Health != "": // Text contains it already
	case g.Free >= 1000:
		is = ", free"
	case g.Free > 0:
		is = fmt.Sprintf(", %g free", float64(g.Free)/1000)
	default:
		is = ", held"
	}
	if g.ID != "" {
		text = g.ID + " (" + text + ")"
	}
	return strings.Map(Printable, text+is)
}

// Command prints what a machine runs.
func Command(cfg *machine.Config) string {
	if cfg == nil {
		return "-"
	}
	return strings.Map(Printable, (&machine.Machine{Config: cfg}).Line().Command)
}

// Pairs returns names and values in the order of the names: "a=1 b=2".
func Pairs(kv map[string]string) string {
	parts := make([]string, 0, len(kv))
	for _, k := range slices.Sorted(maps.Keys(kv)) {
		parts = append(parts, k+"="+strings.Map(Printable, kv[k]))
	}
	return strings.Join(parts, " ")
}

// Heard reports, by a machine's host_status, whether its worker is reachable.
func Heard(hostStatus string) bool { return hostStatus == "ok" || hostStatus == "" }

// StateText returns a machine's state, or its last known state if its worker is unreachable.
func StateText(m *machine.Machine) string {
	x := m.LastExit()
	switch {
	case !Heard(m.HostStatus) && m.State != machine.Destroyed:
		silent := fmt.Sprintf("%s is not heard", m.Worker)
		if m.SilentMS > 0 {
			silent = fmt.Sprintf("%s not heard for %s", m.Worker, ageText(time.Duration(m.SilentMS)*time.Millisecond))
		}
		return fmt.Sprintf("%s (%s); last seen %s", unknownState, silent, m.State)
	case m.Returns:
		return fmt.Sprintf("%s: it made room for machine %s of app %s, and is started again when there is room",
			m.State, m.Preempted.By, m.Preempted.ByApp)
	case m.Preempted != nil && m.State == machine.Stopped:
		return fmt.Sprintf("%s: it made room for machine %s of app %s; \"souk start\" bids for room again", m.State,
			m.Preempted.By, m.Preempted.ByApp)
	case m.Failing() && m.State == machine.Started:
		return fmt.Sprintf("%s, and no request goes there: a check does not pass", m.State)
	case x != nil && x.OOMKilled:
		return fmt.Sprintf("%s, exit code %d: out of memory", m.State, x.ExitCode)
	case x != nil && !x.Lost:
		return fmt.Sprintf("%s, exit code %d", m.State, x.ExitCode)
	}
	return string(m.State)
}

// ageText prints a duration for a sentence, in its largest unit: "6 s", "5 min", "2 h".
func ageText(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%.0f s", max(1, d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%.0f min", d.Minutes())
	}
	return fmt.Sprintf("%.0f h", d.Hours())
}

// RetryText says what is tried again, why, and when next.
func RetryText(r *machine.Retry, now time.Time) string {
	next := "it is tried again now"
	if wait, later := until(r.Next, now); later {
		next = "next try in " + ageText(wait)
	}
	times := fmt.Sprintf("failed %d times", r.Tries)
	if r.Tries == 1 {
		times = "failed once"
	}
	if r.Operation == "restart" {
		return fmt.Sprintf("%s; %s", strings.Map(Printable, r.Reason), next)
	}
	return fmt.Sprintf("%s %s; %s: %s", r.Operation, times, next, strings.Map(Printable, r.Reason))
}

// until returns the time from now to a moment in RFC 3339, 0 if it has passed; false: moment is not a time.
func until(moment string, now time.Time) (time.Duration, bool) {
	at, err := time.Parse(time.RFC3339Nano, moment)
	return max(0, at.Sub(now)), err == nil
}

// TimeFormat is how a moment is printed: in the reader's own time, with its zone.
const TimeFormat = "2006-01-02T15:04:05.000Z07:00"

// EventText prints an event in one line: when, what, the state it led to, and the reason or the exit code.
func EventText(e machine.Event) string {
	text := fmt.Sprintf("%s %-8s %s", time.UnixMilli(e.Timestamp).Format(TimeFormat), e.Type, e.Status)
	if e.Request != nil && e.Request.ExitEvent != nil {
		x := e.Request.ExitEvent
		text += fmt.Sprintf(", exit code %d", x.ExitCode)
		if x.OOMKilled {
			text += ", out of memory"
		}
		if x.Lost && e.Message == "" { // otherwise the message says so
			text += ", its end was not seen"
		}
		if x.RequestedStop {
			text += ", as asked"
		}
	}
	if e.Message != "" {
		text += ": " + strings.Map(Printable, e.Message)
	}
	return text
}

// Age prints how long ago an RFC 3339 time was, in its largest unit: "3s", "5m", "2h", "4d".
func Age(at string, now time.Time) string {
	t, err := time.Parse(time.RFC3339Nano, at)
	if err != nil {
		return "?"
	}
	d := max(now.Sub(t), 0)
	switch {
	case d < time.Minute:
		return strconv.Itoa(int(d.Seconds())) + "s"
	case d < time.Hour:
		return strconv.Itoa(int(d.Minutes())) + "m"
	case d < 48*time.Hour:
		return strconv.Itoa(int(d.Hours())) + "h"
	}
	return strconv.Itoa(int(d.Hours()/24)) + "d"
}

// Millis prints a duration in milliseconds with significant digits only.
func Millis(d time.Duration) string {
	switch f := float64(d) / float64(time.Millisecond); {
	case f < 10:
		return fmt.Sprintf("%.2f ms", f)
	case f < 100:
		return fmt.Sprintf("%.1f ms", f)
	default:
		return fmt.Sprintf("%.0f ms", f)
	}
}

// ClausesText prints why a worker said no: "memory: wanted 512 MiB, had 100 MiB free of 900 MiB; ...".
func ClausesText(cs []machine.Clause) string {
	parts := make([]string, len(cs))
	for i, x := range cs {
		x = placement.InUnits(x)
		parts[i] = fmt.Sprintf("%s: wanted %s, had %s", x.Code, x.Wanted, x.Had)
	}
	return strings.Join(parts, "; ")
}
