package index_test

import (
	"reflect"
	"slices"
	"testing"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/machine"
)

// TestIndexCoversEveryRequestAndRecordField: a field that judge or policy read must be in the index's classes of requests or of
// workers, or be looked up worker by worker. Who adds one decides which (classes.go: setKey, fixedPart; index.go:
// sameFixed), and enters it here.
func TestIndexCoversEveryRequestAndRecordField(t *testing.T) {
	for _, c := range []struct {
		of   any
		know []string
	}{
		{placement.Request{}, []string{"App", "Machine", "Regions", "Resources", "Image", "Volumes", "Start", "Wakes",
			"Namespace", "GPUKind", "UnixUser", "Scheduling", "Fleet",
			"Funds", "Publish"}}, // the last one is not read
		{machine.Scheduling{}, []string{"Require", "Prefer", "Tolerate", "Affinity", "Spread", "Labels", "Band",
			"Priority",
			"Policy", "Strategy", "EvictionBudget", "Lent"}}, // the last four are not read
		{cluster.Record{}, []string{"Worker", "Region", "State", "Incarnation", "Version", "Capacity", "Used",
			"Machines", "Starting", "MaxStarting",
			"Apps", "Images", "Volumes", "VolumesOf", "Attributes", "Require", "Prefer", "Reserved", "Headroom", "GPUs",
			"Evictable", "Cordon", "Backlog", "Spending", "Full", "At", "Promised", "PromiseLimit",
			"Tasks", "Wanted"}}, // the last two are not read
		{cluster.Resources{}, []string{"CPU", "Memory", "Disk", "Ports", "GPU", "Named"}},
	} {
		typ := reflect.TypeOf(c.of)
		for i := range typ.NumField() {
			if name := typ.Field(i).Name; !slices.Contains(c.know, name) {
				t.Errorf("%v has the field %s, which the index does not know", typ, name)
			}
		}
	}
}
