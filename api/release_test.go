package api

import (
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/soukhq/souk/core/release"
)

// TestReleaseReferenceCoversEveryField holds docs/reference/release.md against the types: each field has a row, each row a field.
func TestReleaseReferenceCoversEveryField(t *testing.T) {
	raw, err := os.ReadFile("../docs/reference/release.md")
	if err != nil {
		t.Fatal(err)
	}
	var rows, fields []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(string(raw), -1) {
		rows = append(rows, m[1])
	}
	for prefix, of := range map[string]reflect.Type{"": reflect.TypeFor[NewRelease](),
		"groups[].": reflect.TypeFor[NewGroup](), "groups[].update.": reflect.TypeFor[release.Update](),
		"groups[].autoscale.":      reflect.TypeFor[release.Autoscale](),
		"groups[].cron.":           reflect.TypeFor[release.Cron](),
		"groups[].update.steps[].": reflect.TypeFor[release.CanaryStep]()} {
		for _, f := range reflect.VisibleFields(of) {
			if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
				fields = append(fields, prefix+name)
			}
		}
	}
	slices.Sort(rows)
	slices.Sort(fields)
	fields = slices.Compact(fields) // one that an embedded struct has, too
	if !slices.Equal(rows, fields) {
		t.Errorf("the rows are of\n%q, the fields\n%q", rows, fields)
	}
}
