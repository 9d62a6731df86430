package machine

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/soukhq/souk/fault"
)

// namedSignals are the signals that have a name, by the name without "SIG".
func namedSignals() map[string]syscall.Signal {
	return map[string]syscall.Signal{
		"HUP": syscall.SIGHUP, "INT": syscall.SIGINT, "QUIT": syscall.SIGQUIT, "ILL": syscall.SIGILL,
		"TRAP": syscall.SIGTRAP, "ABRT": syscall.SIGABRT, "BUS": syscall.SIGBUS, "FPE": syscall.SIGFPE,
		"KILL": syscall.SIGKILL, "USR1": syscall.SIGUSR1, "SEGV": syscall.SIGSEGV, "USR2": syscall.SIGUSR2,
		"PIPE": syscall.SIGPIPE, "ALRM": syscall.SIGALRM, "TERM": syscall.SIGTERM, "STKFLT": syscall.SIGSTKFLT,
		"CHLD": syscall.SIGCHLD, "CONT": syscall.SIGCONT, "STOP": syscall.SIGSTOP, "TSTP": syscall.SIGTSTP,
		"TTIN": syscall.SIGTTIN, "TTOU": syscall.SIGTTOU, "URG": syscall.SIGURG, "XCPU": syscall.SIGXCPU,
		"XFSZ": syscall.SIGXFSZ, "VTALRM": syscall.SIGVTALRM, "PROF": syscall.SIGPROF, "WINCH": syscall.SIGWINCH,
		"IO": syscall.SIGIO, "PWR": syscall.SIGPWR, "SYS": syscall.SIGSYS,
	}
}

// otherNames returns further names of the same signals, which are parsed but not listed.
func otherNames() map[string]syscall.Signal {
	return map[string]syscall.Signal{"IOT": syscall.SIGABRT, "CLD": syscall.SIGCHLD, "POLL": syscall.SIGIO}
}

// The C library reserves the first two real-time signals, so programs have those from 34 on.
const (
	rtMin      = 34
	rtMax      = 64
	lastSignal = rtMax
)

// ParseSignal parses a signal in the forms of an image's STOPSIGNAL: "SIGTERM", "term", "15", "SIGRTMIN+3", "rtmax-1".
func ParseSignal(s string) (syscall.Signal, error) {
	if n, err := strconv.Atoi(s); err == nil && n >= 1 && n <= lastSignal {
		return syscall.Signal(n), nil
	}
	name := strings.TrimPrefix(strings.ToUpper(s), "SIG")
	if v, ok := namedSignals()[name]; ok {
		return v, nil
	}
	if v, ok := otherNames()[name]; ok {
		return v, nil
	}
	if n, ok := realTime(name); ok {
		return syscall.Signal(n), nil
	}
	return 0, fault.New(fault.Invalid, fault.CodeSignal,
		"%s is no signal: write a name such as SIGTERM, HUP or SIGRTMIN+3, or a number from 1 to %d", quote(s),
		lastSignal)
}

// realTime parses RTMIN, RTMIN+3, RTMAX and RTMAX-3.
func realTime(name string) (int, bool) {
	n, sign := rtMin, "+"
	rest, ok := strings.CutPrefix(name, "RTMIN")
	if !ok {
		if rest, ok = strings.CutPrefix(name, "RTMAX"); !ok {
			return 0, false
		}
		n, sign = rtMax, "-"
	}
	if rest == "" {
		return n, true
	}
	by, err := strconv.ParseUint(strings.TrimPrefix(rest, sign), 10, 8)
	if err != nil || !strings.HasPrefix(rest, sign) || by > rtMax-rtMin {
		return 0, false
	}
	if sign == "-" {
		return n - int(by), true
	}
	return n + int(by), true
}

// SignalNames lists the signals that have a name of their own, in order.
func SignalNames() []string {
	var names []string
	for n := range namedSignals() {
		names = append(names, "SIG"+n)
	}
	slices.Sort(names)
	return names
}

// SignalName returns "SIGTERM" for 15, "SIGRTMIN+3" for 37, and "signal 32" for one without a name.
func SignalName(sig syscall.Signal) string {
	for n, v := range namedSignals() {
		if v == sig {
			return "SIG" + n
		}
	}
	switch {
	case sig == rtMin:
		return "SIGRTMIN"
	case sig > rtMin && sig <= rtMax:
		return "SIGRTMIN+" + strconv.Itoa(int(sig)-rtMin)
	}
	return "signal " + strconv.Itoa(int(sig))
}

// SignalText is a signal in JSON. Clients send a name or a number; it accepts both, and ParseSignal validates them.
type SignalText string

// UnmarshalJSON reads "SIGKILL", "9" and 9.
func (s *SignalText) UnmarshalJSON(raw []byte) error {
	if string(raw) == "null" {
		return nil
	}
	var n int
	if err := json.Unmarshal(raw, &n); err == nil {
		*s = SignalText(strconv.Itoa(n))
		return nil
	}
	var name string
	if err := json.Unmarshal(raw, &name); err != nil {
		return fault.New(fault.Invalid, fault.CodeSignal,
			"a signal is a name such as \"SIGTERM\" or a number, not %.80s", raw)
	}
	*s = SignalText(name)
	return nil
}
