package machine

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/soukhq/souk/fault"
)

// signals are those a user may send, by name without "SIG". The ones that stop a process and let it go on are left
// out: a machine is suspended and started instead, so that its state says so.
func signals() map[string]syscall.Signal {
	return map[string]syscall.Signal{
		"HUP": syscall.SIGHUP, "INT": syscall.SIGINT, "QUIT": syscall.SIGQUIT, "ABRT": syscall.SIGABRT,
		"KILL": syscall.SIGKILL, "USR1": syscall.SIGUSR1, "USR2": syscall.SIGUSR2, "ALRM": syscall.SIGALRM,
		"TERM": syscall.SIGTERM, "WINCH": syscall.SIGWINCH,
	}
}

// ParseSignal reads "SIGTERM", "term" or "15".
func ParseSignal(s string) (syscall.Signal, error) {
	all := signals()
	if n, err := strconv.Atoi(s); err == nil {
		for _, v := range all {
			if int(v) == n {
				return v, nil
			}
		}
	}
	if v, ok := all[strings.TrimPrefix(strings.ToUpper(s), "SIG")]; ok {
		return v, nil
	}
	return 0, fault.New(fault.Invalid, "signal",
		"%s is not a signal a machine can be sent: choose one of %s, or suspend the machine to hold it",
		quote(s), strings.Join(SignalNames(), ", "))
}

// SignalNames lists the signals that a machine can be sent, in order.
func SignalNames() []string {
	var names []string
	for n := range signals() {
		names = append(names, "SIG"+n)
	}
	slices.Sort(names)
	return names
}

// SignalName returns "SIGTERM" for 15, and "signal 64" for one without a name here.
func SignalName(sig syscall.Signal) string {
	for n, v := range signals() {
		if v == sig {
			return "SIG" + n
		}
	}
	return "signal " + strconv.Itoa(int(sig))
}

// SignalText is a signal on the wire. Clients send a name or a number; both are read, and ParseSignal judges them.
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
		return fault.New(fault.Invalid, "signal", "a signal is a name such as \"SIGTERM\" or a number, not %.80s", raw)
	}
	*s = SignalText(name)
	return nil
}
