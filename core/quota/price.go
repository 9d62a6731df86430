package quota

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/machine"
)

// Price is what resources cost, as data.
type Price struct {
	// PerHour is the credits for an hour of one unit: cpu (a core), memory and disk (a GiB), ports, gpu, or the name
	// of an extra. A missing resource costs nothing.
	PerHour map[string]float64 `json:"per_hour"`
	// Bands multiply it. A missing band counts 1, except the band free, which is always 0: it is evicted before all
	// bands that pay, as Borg's best-effort quota at priority 0 is unlimited (Verma et al., EuroSys 2015, section
	// 2.5).
	Bands map[machine.Band]float64 `json:"bands"`
}

// MaxPrice bounds a price, a factor, and the credits of a budget.
const MaxPrice = 1e9

// DefaultPrice applies until another is set. One credit is about an hour of one core with 4 GiB in the service band.
func DefaultPrice() Price {
	return Price{
		PerHour: map[string]float64{"cpu": 0.8, "memory": 0.05, "disk": 0.0002, "gpu": 20},
		Bands:   map[machine.Band]float64{machine.BandBatch: 0.5, machine.BandService: 1, machine.BandSystem: 2},
	}
}

// Valid returns why the price is invalid; "" if it is valid.
func (p Price) Valid() string {
	if len(p.PerHour) > cluster.MaxAttributes {
		return fmt.Sprintf("%d prices are too many; at most %d", len(p.PerHour), cluster.MaxAttributes)
	}
	for _, name := range slices.Sorted(maps.Keys(p.PerHour)) {
		if v := p.PerHour[name]; !cluster.ValidAttribute(name) || !isAmount(v) {
			return fmt.Sprintf("the price of %.64q is %v; use credits an hour from 0 to %.0f", name, v, MaxPrice)
		}
	}
	for _, b := range slices.Sorted(maps.Keys(p.Bands)) {
		if why := (machine.Scheduling{Band: b}).Valid(); b == "" || why != "" {
			return fmt.Sprintf("there is no band %.64q; use batch, service or system", b)
		}
		if v := p.Bands[b]; !isAmount(v) || b == machine.BandFree && v != 0 {
			return fmt.Sprintf("band %s counts %v; use a factor from 0 to %.0f, and free is always 0", b, v, MaxPrice)
		}
	}
	return ""
}

func isAmount(v float64) bool { return v >= 0 && v <= MaxPrice } // false for a NaN

// Rate returns what resources cost in credits an hour, for a machine of this scheduling that is not lent.
func (p Price) Rate(want cluster.Resources, s machine.Scheduling) float64 {
	factor := p.Factor(s.BandName())
	if factor == 0 {
		return 0
	}
	sum := 0.0
	for _, d := range want.Dims() {
		sum += p.PerHour[d.Name] * float64(max(0, d.Amount)) / unitOf(d.Name)
	}
	return sum * factor
}

// Factor returns the multiplier of a band.
func (p Price) Factor(b machine.Band) float64 {
	factor, named := p.Bands[b]
	switch {
	case b == machine.BandFree:
		return 0
	case !named:
		return 1
	}
	return factor
}

// Budget is what a namespace may spend.
type Budget struct {
	PerHour float64 `json:"credits_per_hour"` // credits it may spend for ever; 0: Burst is all it ever gets
	Burst   float64 `json:"burst"`            // credits it may spend at once, after a long rest
	// machines beyond the budget may start unpaid (lent), if there is idle room
	Lend bool `json:"lend"`
}

// Valid returns why the budget is invalid; "" if it is valid.
func (b Budget) Valid() string {
	switch {
	case !isAmount(b.PerHour) || !isAmount(b.Burst):
		return fmt.Sprintf("a budget has credits an hour and a burst from 0 to %.0f; got %v and %v", MaxPrice,
			b.PerHour,
			b.Burst)
	case b.PerHour > 0 && b.Burst < b.PerHour*Ahead:
		return fmt.Sprintf("a burst of %s is less than %s of %s credits an hour; give at least %s", Text(b.Burst),
			aheadText,
			Text(b.PerHour), Text(b.PerHour*Ahead))
	}
	return ""
}

// decayHours is how long a debt takes to decay to about a third (1/e), in hours; infinite if it never decays.
func (b Budget) decayHours() float64 {
	if b.PerHour == 0 {
		return math.Inf(1)
	}
	return b.Burst / b.PerHour
}

// Text prints credits with three significant digits.
func Text(credits float64) string {
	if a := math.Abs(credits); a >= 100 || a == 0 {
		return fmt.Sprintf("%.0f", credits)
	}
	return fmt.Sprintf("%.3g", credits)
}
