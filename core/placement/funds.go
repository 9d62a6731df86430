package placement

import (
	"fmt"
	"math"
	"time"
)

// CodeQuota is the code of the clause that a request's namespace cannot pay for it. It is the same at every worker: a
// namespace's funds are not at one worker.
const CodeQuota = "quota"

// Funds is what a request needs of its namespace's budget, and what the budget has. The buyer fills it in from what it
// knows (quota.Account), and the worker then replaces it by its own knowledge. So a verdict can be recomputed from the
// record.
type Funds struct {
	Namespace string  `json:"namespace"`
	Wanted    float64 `json:"wanted"` // credits that the request needs over the next while
	// credits of the balance that are left for it, if all running machines go on
	Had   float64       `json:"had"`
	Wait  time.Duration `json:"wait_ns,omitempty"` // until Had reaches Wanted; 0: waiting does not help
	Never bool          `json:"never,omitempty"`   // Wanted exceeds what the budget can ever hold
	Caps  []Cap         `json:"caps,omitempty"`    // of the resources that it wants and that are capped
}

// Cap is a cap on a resource: how much more a request wants, how much its namespace occupies, and how much it may
// occupy, in the resource's own units.
type Cap struct {
	Name   string `json:"name"`
	Wanted int64  `json:"wanted"`
	Used   int64  `json:"used"`
	Max    int64  `json:"max"`
}

// Enough reports whether the request can be paid for and is within its namespace's caps. A nil f means that it is free
// or unlimited.
func (f *Funds) Enough() bool { return f == nil || f.Had >= f.Wanted && f.Beyond() == nil }

// Beyond returns the first cap that the request would exceed, or nil. A namespace may not run unpaid beyond a cap.
func (f *Funds) Beyond() *Cap {
	if f != nil {
		for i := range f.Caps {
			if c := &f.Caps[i]; c.Used+c.Wanted > c.Max {
				return c
			}
		}
	}
	return nil
}

// formatAmount prints an amount of a cap's resource.
func (c *Cap) formatAmount(amount int64) string {
	plural := "s"
	if amount == 1000 {
		plural = ""
	}
	switch c.Name {
	case "cpu":
		return fmt.Sprintf("%.4g core%s", float64(amount)/1000, plural)
	case "gpu":
		return fmt.Sprintf("%.4g GPU%s", float64(amount)/1000, plural)
	case "memory", "disk":
		return fmt.Sprintf("%.4g GiB of %s", float64(amount)/1024, c.Name)
	}
	return fmt.Sprintf("%d %s", amount, c.Name)
}

// Clause describes what was wanted and had.
func (f *Funds) Clause() (wanted, had string) {
	if c := f.Beyond(); c != nil {
		wanted = c.formatAmount(c.Wanted) + " of namespace " + f.Namespace
		had = fmt.Sprintf("%s left, as at most %s are allowed", c.formatAmount(max(0, c.Max-c.Used)),
			c.formatAmount(c.Max))
		return wanted, had
	}
	wanted = fmt.Sprintf("%s credits of namespace %s", creditText(f.Wanted), f.Namespace)
	had = creditText(f.Had) + " left"
	switch {
	case f.Never:
		had += ", and its burst is less"
	case f.Wait > 0:
		had += fmt.Sprintf(", enough in %v", f.Wait.Round(time.Second))
	default:
		had += ", and no more as long as all goes on that runs"
	}
	return wanted, had
}

func creditText(c float64) string {
	if a := math.Abs(c); a >= 100 || a == 0 {
		return fmt.Sprintf("%.0f", c)
	}
	return fmt.Sprintf("%.3g", c)
}

func judgeFunds(r *Request, out *judging) {
	if f := r.Funds; !f.Enough() && out.refuseClause() {
		wanted, had := f.Clause()
		c := f.Beyond()
		out.addRefusal(f.Never || c != nil && c.Wanted > c.Max, CodeQuota, wanted, had)
	}
}
