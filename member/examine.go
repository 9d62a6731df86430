package member

import (
	"context"
	"fmt"

	"github.com/soukhq/souk/cluster"
)

// FindingRegistry names the finding of a member's examination that tells what it knows; its Have begins with DigestWord
// and 16 digits. Members with one digest know the same of everybody.
const (
	FindingRegistry = "registry"
	DigestWord      = "digest "
	// FindingTwin is there where another worker with the member's id was alive. Such a member does not hear all that the
	// others do, for they take what it says for the other's.
	FindingTwin = "twin"
)

// examinedWorker is the member's own worker, as other members see it: its examination tells what the member knows,
// too.
type examinedWorker struct {
	Worker
	m *Member
}

// Examine is the worker's, and the member's.
func (e examinedWorker) Examine(ctx context.Context) []cluster.Finding {
	return append(e.Worker.Examine(ctx), e.m.Findings()...)
}

// Findings tells how much the member knows, with its digest, and whether a copy of it was alive.
func (m *Member) Findings() []cluster.Finding {
	known, gaps := m.cluster.Known(), 0
	for _, k := range known {
		if k.Gap {
			gaps++
		}
	}
	all := []cluster.Finding{{Name: FindingRegistry, OK: gaps == 0,
		Have: fmt.Sprintf("%s%016x of %d workers; incomplete: %d", DigestWord, m.cluster.Root(), len(known),
			gaps)}}
	if why := m.twins.whyTwin(); why != "" {
		all = append(all, cluster.Finding{Name: FindingTwin, Have: why})
	}
	return all
}
