package member

import (
	"context"
	"fmt"

	"github.com/soukhq/souk/cluster"
)

// FindingRegistry names the finding that summarizes what a member knows; its Have begins with DigestWord and 16 digits.
// Members with equal digests know the same.
const (
	FindingRegistry = "registry"
	DigestWord      = "digest "
	// FindingTwin appears if another worker with the member's id was alive. Such a member misses updates, since the
	// others mix up the two.
	FindingTwin = "twin"
)

// examinedWorker is the member's own worker as other members see it: Examine adds the member's findings to the
// worker's.
type examinedWorker struct {
	Worker
	m *Member
}

// Examine returns the worker's findings and the member's.
func (e examinedWorker) Examine(ctx context.Context) []cluster.Finding {
	return append(e.Worker.Examine(ctx), e.m.Findings()...)
}

// Findings reports the digest and size of what the member knows, and whether a copy of it was alive.
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
