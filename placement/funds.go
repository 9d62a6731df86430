package placement

import (
	"fmt"
	"math"
	"time"
)

// CodeQuota is the code of the clause that a request's namespace has not enough left for it. It is the same at every
// worker: what a namespace may spend lies nowhere.
const CodeQuota = "quota"

// Funds is what a request takes of its namespace's budget, and what there is: filled in by who knows both
// (quota.Account), the buyer from what it has heard and then, anew, the worker itself. So a verdict can be recomputed
// from what was recorded.
type Funds struct {
	Namespace string  `json:"namespace"`
	Wanted    float64 `json:"wanted"` // credits that the request takes within the next while
	// credits that are left then of the balance, when all goes on that runs now
	Had   float64       `json:"had"`
	Wait  time.Duration `json:"wait_ns,omitempty"` // until Had will be Wanted if nothing changes; 0: not by waiting
	Never bool          `json:"never,omitempty"`   // Wanted is more than the budget can hold
}

// Enough says whether the request can be paid for. Nil is for what costs nothing, or has no budget: it can.
func (f *Funds) Enough() bool { return f == nil || f.Had >= f.Wanted }

// Clause gives what was wanted and had, in words.
func (f *Funds) Clause() (wanted, had string) {
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
	if f := r.Funds; !f.Enough() && out.refuse() {
		wanted, had := f.Clause()
		out.no(f.Never, CodeQuota, wanted, had)
	}
}
