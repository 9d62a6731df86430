package registry

import (
	"slices"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
)

// Verify checks the signature of a record or an object; an error rejects it.
type Verify func(owner cluster.WorkerID, signed, sig []byte) error

// Verified returns the parts of a delta with valid signatures, and the first refusal. An update is kept as a whole or
// not at all, since half of it would claim to be complete. It does not use the registry, so a carrier verifies before
// it takes its lock. A nil v accepts everything.
func Verified(v Verify, d Delta) (Delta, error) {
	if v == nil {
		return d, nil
	}
	var first error
	refused := func(err error) bool {
		if first == nil {
			first = err
		}
		return err != nil
	}
	d.Updates = slices.DeleteFunc(slices.Clone(d.Updates), func(update Update) bool {
		for _, rec := range update.Records {
			if err := v(rec.Owner, rec.SigningBytes(), rec.Sig); err != nil {
				return refused(fault.Wrap(err, fault.Denied, codeBadSignature,
					"a record that names %s as its owner has no valid signature of that worker", quoteName(rec.Owner)))
			}
		}
		if len(update.Head.Sig) == 0 {
			return false // the registry decides whether it accepts that
		}
		err := v(update.Owner, update.HeadBytes(), update.Head.Sig)
		return err != nil && refused(fault.Wrap(err, fault.Denied, codeBadSignature,
			"the head of an update that names %s as its owner has no valid signature of that worker",
			quoteName(update.Owner)))
	})
	d.Objects = slices.DeleteFunc(slices.Clone(d.Objects), func(o Object) bool {
		err := v(o.Stamp.Writer, o.SigningBytes(), o.Sig)
		return err != nil && refused(fault.Wrap(err, fault.Denied, codeBadSignature,
			"an object that names %s as its writer has no valid signature of that member", quoteName(o.Stamp.Writer)))
	})
	return d, first
}
