package pki

import (
	"os"
	"time"

	"github.com/soukhq/souk/fault"
)

// Overlap is how long a new root is trusted before it may sign. Members fetch the bundle once a day, so each has a week
// to do so.
const Overlap = 7 * 24 * time.Hour

// Prepare makes the next root. It is in the bundle from now on, but does not sign yet. Conflict if there is one
// already.
func (c *CA) Prepare(now time.Time) error {
	next, old, _, err := c.readRotation()
	switch {
	case err != nil:
		return err
	case next != nil:
		return fault.New(fault.Conflict, fault.CodeRotation, "the next root was made on %s; activate it, from %s on",
			formatMinute(madeAt(*next)), formatMinute(madeAt(*next).Add(Overlap)))
	case len(old) > 0:
		return fault.New(fault.Conflict, fault.CodeRotation, "an old root is still trusted; retire it first")
	}
	a, err := c.readActive()
	if err != nil {
		return err
	}
	return c.makeRoot(a.Root+1, now)
}

// Activate makes the next root sign, once Overlap has passed since Prepare. With force it does so at once: members that
// have not fetched the bundle yet then refuse certificates of the new root until they have.
//
// Issuers must renew their own certificates afterwards (IssueTo). Earlier join tokens become invalid, because they name
// the old root.
func (c *CA) Activate(now time.Time, force bool) error {
	next, _, _, err := c.readRotation()
	switch {
	case err != nil:
		return err
	case next == nil:
		return fault.New(fault.Precondition, fault.CodeRotation, "there is no next root; prepare one first")
	case now.Before(madeAt(*next).Add(Overlap)) && !force:
		return fault.New(fault.Precondition, fault.CodeRotation,
			"the next root is trusted only since %s, and members need until %s to learn of it; activate it then",
			formatMinute(madeAt(*next)),
			formatMinute(madeAt(*next).Add(Overlap)))
	}
	return writeWhole(c.path("active"), mustJSON(active{next.number, now}))
}

// Retire removes the roots before the active one from the bundle, once all certificates they signed have expired.
// Members drop them when they next fetch the bundle.
func (c *CA) Retire(now time.Time) error {
	_, old, since, err := c.readRotation()
	switch {
	case err != nil:
		return err
	case len(old) == 0:
		return fault.New(fault.Precondition, fault.CodeRotation, "there is no old root")
	case now.Before(since.Add(CertificateLife)):
		return fault.New(fault.Precondition, fault.CodeRotation,
			"certificates of the old root may hold until %s; retire it then", formatMinute(since.Add(CertificateLife)))
	}
	for _, r := range old {
		if err := os.Remove(c.rootFile(r.number)); err != nil {
			return fileFault(err, c.rootFile(r.number))
		}
	}
	return fileFault(syncDir(c.dir), c.dir)
}

// readRotation returns the next root, if there is one, the previous roots, and since when the active one signs.
func (c *CA) readRotation() (next *root, old []root, since time.Time, err error) {
	a, err := c.readActive()
	if err != nil {
		return nil, nil, since, err
	}
	roots, err := c.allRoots()
	for i, r := range roots {
		switch {
		case r.number > a.Root:
			next = &roots[i]
		case r.number < a.Root:
			old = append(old, r)
		}
	}
	return next, old, a.Since, err
}

func madeAt(r root) time.Time { return r.cert.NotBefore.Add(skew) }
