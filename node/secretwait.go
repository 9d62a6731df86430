package node

import (
	"context"
	"time"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/wait"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/worker/batch"
)

// A release that another member made reaches a worker some milliseconds after the order to start a machine of it. So a
// start waits a while for the release, rather than fail and be tried again.
const (
	secretsWithin = 3 * time.Second
	secretsEvery  = 5 * time.Millisecond
)

// openForTask opens secrets for a task. It waits for those that another member has set and that are about to arrive.
func openForTask(open func(app string, names []string, version uint64) (map[string]string, error)) batch.OpenSecrets {
	return func(ctx context.Context, app string, names []string, version uint64) (values map[string]string, err error) {
		ctx, cancel := context.WithTimeout(ctx, secretsWithin)
		defer cancel()
		_ = wait.Until(ctx, secretsEvery, func() bool { // on a timeout err is the last error of open
			values, err = open(app, names, version)
			return !fault.Is(err, fault.Unavailable) && !fault.Is(err, fault.NotFound)
		})
		return values, err
	}
}

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
