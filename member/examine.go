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
)

// examinedWorker is the member's own worker, as other members see it: its examination tells what the member knows,
// too.
type examinedWorker struct {
	Worker
	m *Member
}

// Examine is the worker's, and the member's.
func (e examinedWorker) Examine(ctx context.Context) []cluster.Finding {
	return append(e.Worker.Examine(ctx), e.m.Finding(), doorkeeper{e.m}.finding())
}

// Finding tells how much the member knows, and its digest.
func (m *Member) Finding() cluster.Finding {
	known, gaps := m.cluster.Known(), 0
	for _, k := range known {
		if k.Gap {
			gaps++
		}
	}
	return cluster.Finding{Name: FindingRegistry, OK: gaps == 0,
		Have: fmt.Sprintf("%s%016x of %d workers; incomplete: %d", DigestWord, m.cluster.Root(), len(known),
			gaps)}
}
