package node

import (
	"context"
	"time"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/wait"
	"github.com/soukhq/souk/machine"
)

// A release that another member made reaches a worker some milliseconds after the order to start a machine of it. So a
// start waits a while for the release, rather than fail and be tried again.
const (
	secretsWithin = 3 * time.Second
	secretsEvery  = 5 * time.Millisecond
)

// awaitSecrets returns open, but waits for secrets that another member has set and that are about to arrive.
func awaitSecrets(ctx context.Context,
	open func(*machine.Machine) (map[string]string, error)) func(*machine.Machine) (map[string]string, error) {
	return func(m *machine.Machine) (values map[string]string, err error) {
		ctx, cancel := context.WithTimeout(ctx, secretsWithin)
		defer cancel()
		_ = wait.Until(ctx, secretsEvery, func() bool { // on a timeout err is the last error of open
			values, err = open(m)
			return !fault.Is(err, fault.Unavailable)
		})
		return values, err
	}
}
