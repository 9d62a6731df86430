package server

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/node"
)

// planWorkers returns this host's workers and what each offers. Existing workers stay, since they have machines, so
// there are never fewer than before.
func planWorkers(dir string, o *devFlags) ([]node.Worker, error) {
	base := filepath.Join(dir, "workers")
	before, err := filepath.Glob(filepath.Join(base, "*", "id"))
	if err != nil {
		return nil, fault.Wrap(err, fault.Internal, fault.CodeDir, "%s cannot be read", base)
	}
	count := o.workers
	switch {
	case count == 0:
		count = max(len(before), 1)
	case count < 0 || count > MaxWorkers:
		return nil, cli.Usagef("--workers is a number from 1 to %d, not %d", MaxWorkers, count)
	case count < len(before):
		return nil, fault.New(fault.Conflict, codeFewerWorkers,
			"%s already has %d workers, which own machines; say --workers %d or more, or give another --dir", dir,
			len(before), len(before))
	}
	all, err := capacityOf(dir, o)
	if err != nil {
		return nil, err
	}
	plans := make([]node.Worker, count)
	for i := range plans {
		p := node.Worker{Dir: filepath.Join(base, fmt.Sprint(i+1)), Capacity: all.Scale(1, int64(count))}
		if p.Offer, err = o.offer.of(i+1, &p.Capacity); err != nil {
			return nil, err
		}
		if p.ID, err = workerID(p.Dir, i+1); err != nil {
			return nil, err
		}
		plans[i] = p
	}
	return plans, nil
}

// workerID returns the id in the worker's directory, and makes one if there is none.
func workerID(dir string, number int) (cluster.WorkerID, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fault.Wrap(err, fault.Invalid, fault.CodeDir, "the directory %s cannot be made", dir)
	}
	file := filepath.Join(dir, "id")
	id, err := cli.ReadLine(file)
	if err == nil && id != "" {
		return cluster.WorkerID(id), nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fault.Wrap(err, fault.Invalid, fault.CodeDir, "%s cannot be read", file)
	}
	id = fmt.Sprintf("w%d-%s", number, strings.ToLower(rand.Text()[:6]))
	return cluster.WorkerID(id), cli.WriteWhole(file, id+"\n", 0o644)
}
