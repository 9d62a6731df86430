package defaults

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/fault"
)

// Comparison has each job that names no scheduler run by one of two, drawn by the job's id, to see under which jobs fare
// better. A is the default that is there, B the candidate. When it ends, jobs get the default again.
type Comparison struct {
	ID     string    `json:"id"`
	A      string    `json:"a"`      // NAME or NAME:N
	B      string    `json:"b"`      // NAME or NAME:N
	Share  int       `json:"share"`  // percent of the jobs that go to B, MinShare to MaxShare
	Margin int       `json:"margin"` // percent of the run time of jobs by which one must be worse to end it; 0: it does not end
	Began  time.Time `json:"began_at"`
	Ended  time.Time `json:"ended_at,omitzero"` // zero: it runs
	Why    string    `json:"why,omitempty"`     // with Ended: why it ended
}

// Bounds of a comparison.
const (
	MinShare  = 1
	MaxShare  = 99
	MaxMargin = 1000
	maxWhy    = 500 // bytes of Comparison.Why
	maxID     = 32
)

// NewComparison returns a comparison of a default a with a candidate b, with a share and a margin in percent.
//
// Its error is Invalid: a name is not one that a job may have, both are the same, or a number is out of range.
func NewComparison(id, a, b string, share, margin int, now time.Time) (*Comparison, error) {
	no := func(format string, args ...any) (*Comparison, error) {
		return nil, fault.New(fault.Invalid, CodeComparison, format, args...)
	}
	var err error
	if a, err = Parse(a); err != nil {
		return nil, err
	}
	if b, err = Parse(b); err != nil {
		return nil, err
	}
	switch {
	case a == b:
		return no("a comparison is of two schedulers, not of %s with itself; name another one", a)
	case share < MinShare || share > MaxShare:
		return no("the share is the percentage of the jobs that go to %s, from %d to %d; got %d", b, MinShare, MaxShare,
			share)
	case margin < 0 || margin > MaxMargin:
		return no("the margin is the percentage by which one must be worse for the comparison to end by itself, "+
			"from 1 to %d, or 0 for never; got %d", MaxMargin, margin)
	}
	return &Comparison{ID: id, A: a, B: b, Share: share, Margin: margin,
		Began: now.UTC().Truncate(time.Millisecond)}, nil
}

// check refuses a comparison that no member can have written.
func (c *Comparison) check() error {
	if c.ID == "" || len(c.ID) > maxID || c.A == "" || len(c.A) > maxName || c.B == "" || len(c.B) > maxName ||
		c.Share < MinShare || c.Share > MaxShare || c.Margin < 0 || c.Margin > MaxMargin || len(c.Why) > maxWhy {
		return fault.New(fault.Invalid, CodeComparison, "the comparison %s is malformed", fault.Clip(c.ID, maxID))
	}
	return nil
}

// Start sets a comparison that is to run. namespace is whose row it is, "" for the cluster's, and current the scheduler of
// jobs there that name none. Its error is Precondition: another comparison runs, or A is not what is there.
func (r *Row) Start(c *Comparison, namespace, current string) error {
	if err := r.CheckIdle(namespace); err != nil {
		return err
	}
	if c.A != current {
		return fault.New(fault.Precondition, CodeComparison,
			"the first scheduler must be the default, which is %s in %s, not %s; compare %s with %s, or set the "+
				"default first (souk schedulers default)", current, owner(namespace), c.A, current, c.B)
	}
	r.Comparison = c
	return nil
}

// CheckIdle refuses a change of a row while a comparison runs there.
func (r *Row) CheckIdle(namespace string) error {
	c := r.Running()
	if c == nil {
		return nil
	}
	stop := "souk schedulers compare --stop"
	if namespace != "" {
		stop += " --namespace " + namespace
	}
	return fault.New(fault.Precondition, CodeComparison,
		"%s and %s are being compared in %s since %s; end that first (%s)", c.A, c.B, owner(namespace),
		c.Began.Format(time.RFC3339), stop)
}

// Stop ends the comparison that runs. id is the one that is meant; "": whichever. Its error is Precondition: it does not run.
func (r *Row) Stop(id, why, namespace string, now time.Time) error {
	c := r.Running()
	if c == nil || id != "" && c.ID != id {
		return fault.New(fault.Precondition, CodeComparison, "no comparison of schedulers runs in %s", owner(namespace))
	}
	ended := *c
	ended.Ended, ended.Why = now.UTC().Truncate(time.Millisecond), fault.Clip(why, maxWhy)
	r.Comparison = &ended
	return nil
}

func owner(namespace string) string {
	if namespace == "" {
		return jobs.DefaultOwner(jobs.OfCluster, "")
	}
	return jobs.DefaultOwner(jobs.OfNamespace, namespace)
}

// Running returns the comparison that decides about a job, and whose it is: a namespace's comparison and default go before
// the cluster's. nil: none does.
func (r Rows) Running() (c *Comparison, of string) {
	if c = r.Namespace.Running(); c != nil {
		return c, jobs.OfNamespace
	}
	if r.Namespace.Scheduler == "" {
		return r.Cluster.Running(), jobs.OfCluster
	}
	return nil, ""
}

// Draws reports whether a job draws B.
func (c *Comparison) Draws(job string) bool {
	sum := sha256.Sum256([]byte(c.ID + "\x00" + job))
	return binary.BigEndian.Uint64(sum[:])%100 < uint64(c.Share) //nolint:gosec // it is 1 to 99
}

// fill has a job run by A or B. One that either of them cannot run takes no part, whatever it would have drawn: otherwise
// the one that can run all jobs would have others than the other one.
func (c *Comparison) fill(spec *jobs.Spec, job, of string) {
	whose := jobs.DefaultOwner(of, spec.Namespace)
	for _, name := range []string{c.A, c.B} {
		why := unsuitable(spec, name)
		if why == "" {
			continue
		}
		if fillDefault(spec, c.A, of); name == c.B {
			spec.SchedulerFrom.Why = fmt.Sprintf(why, c.B) + ", so that it is not in the comparison of " + whose
		}
		return
	}
	spec.SchedulerFrom = &jobs.SchedulerFrom{Of: of, Comparison: c.ID, Candidate: c.Draws(job)}
	name := c.A
	if spec.SchedulerFrom.Candidate {
		name = c.B
	}
	if name != jobs.Auction {
		spec.Scheduler = name
	}
}
