package server

import (
	"errors"
	"log/slog"
	"net"
	"os"
	"strings"

	"github.com/soukhq/souk/fault"
)

// notifySocket is the variable with the service manager's socket for status messages (sd_notify(3)).
const notifySocket = "NOTIFY_SOCKET"

// manager is the service manager that started this process; nil: none wants status messages.
type manager struct{ to *net.UnixAddr }

// managerOf finds the manager in the environment, and removes the variable, so that child processes do not send
// messages in its name.
func managerOf(getenv func(string) string) (*manager, error) {
	name := getenv(notifySocket)
	if name == "" {
		return nil, nil
	}
	if err := os.Unsetenv(notifySocket); err != nil {
		return nil, fault.Wrap(err, fault.Internal, codeNotify,
			"%s cannot be taken out of the environment", notifySocket)
	}
	if !strings.HasPrefix(name, "/") && !strings.HasPrefix(name, "@") {
		return nil, fault.New(fault.Invalid, codeNotify,
			"%s is %q, and neither a path nor the name of an abstract socket", notifySocket, name)
	}
	return &manager{&net.UnixAddr{Name: name, Net: "unixgram"}}, nil // Go writes @ as the kernel's zero byte
}

// tell sends the manager a state, such as READY=1, and a status text.
func (m *manager) tell(state, status string) error {
	if m == nil {
		return nil
	}
	conn, err := net.DialUnix("unixgram", nil, m.to)
	if err != nil {
		return fault.Wrap(err, fault.Unavailable, codeNotify, "the service manager (systemd) cannot be notified of "+
			"%s", state)
	}
	_, err = conn.Write([]byte(state + "\nSTATUS=" + strings.ReplaceAll(status, "\n", " ") + "\n"))
	if err = errors.Join(err, conn.Close()); err != nil {
		return fault.Wrap(err, fault.Unavailable, codeNotify, "the service manager (systemd) cannot be notified of "+
			"%s", state)
	}
	return nil
}

// say is tell, but only logs an error: the service goes on without the manager.
func (m *manager) say(log *slog.Logger, state, status string) {
	if err := m.tell(state, status); err != nil {
		log.Warn("the service manager was not told", "err", err)
	}
}
