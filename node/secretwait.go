package node

import (
	"context"
	"time"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/internal/wait"
	"github.com/soukhq/souk/machine"
)

// A release reaches the worker that is to start a machine of it some milliseconds after the order to make that machine, where
// another member has made the release. So a start waits a while for it, rather than fail and be tried again.
const (
	secretsWithin = 3 * time.Second
	secretsEvery  = 5 * time.Millisecond
)

// awaitSecrets returns open, but waits for what another member has and this one is about to hear.
func awaitSecrets(ctx context.Context,
	open func(*machine.Machine) (map[string]string, error)) func(*machine.Machine) (map[string]string, error) {
	return func(m *machine.Machine) (values map[string]string, err error) {
		ctx, cancel := context.WithTimeout(ctx, secretsWithin)
		defer cancel()
		_ = wait.Until(ctx, secretsEvery, func() bool { // what it waited for in vain err says
			values, err = open(m)
			return !fault.Is(err, fault.Unavailable)
		})
		return values, err
	}
}
