package policies

import (
	"strings"
	"testing"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/core/policy/whatif"
)

// TestGateConditionsCountMachinesOrPercentages: a condition counts machines, or hundredths of those that were compared.
func TestGateConditionsCountMachinesOrPercentages(t *testing.T) {
	plan := api.PolicyPlan{Policy: "east", Comparison: whatif.Comparison{Compared: 8, Same: 5,
		Moves:   make([]whatif.Move, 2),
		Nowhere: []whatif.Move{{Evicts: []whatif.Evicted{{Machines: 2}, {Machines: 1}}}}}}
	for text, fails := range map[string]bool{
		"nowhere > 0": true, "nowhere>1": false, "nowhere >= 1": true, " nowhere > 12.5% ": false,
		"nowhere >= 12.5%": true,
		"moved > 10%":      true, "moved > 25%": false, "moved <= 2": true, "moved < 2": false,
		"evicted > 2": true, "evicted > 3": false, "compared < 9": true, "compared < 8": false,
	} {
		g, err := parseGate(text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if err := g.fails(&plan); (err != nil) != fails {
			t.Errorf("%q: %v", text, err)
		}
		if err := g.fails(&api.PolicyPlan{}); strings.Contains(text, ">") && err != nil {
			t.Errorf("%q of no machines: %v", text, err)
		}
	}
	for _, text := range []string{"", "nowhere", "away > 0", "moved > x", "moved > 0.1 * old", "moved = 1",
		"moved > 1.2.3", "compared > 5%", "moved > -1"} {
		if g, err := parseGate(text); err == nil {
			t.Errorf("%q is a condition: %+v", text, g)
		}
	}
}
