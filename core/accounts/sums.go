package accounts

import (
	"cmp"
	"fmt"
	"time"

	"github.com/soukhq/souk/cluster"
)

// Day is a day of UTC, counted from 1970-01-01. Its text is as 2026-11-29.
type Day int32

// DayOf returns the day of a time.
func DayOf(t time.Time) Day { return DayOfMicro(t.UnixMicro()) }

// DayOfMicro returns the day of a time in unix microseconds.
func DayOfMicro(us int64) Day {
	const day = int64(24 * time.Hour / time.Microsecond)
	d := us / day
	if us%day < 0 {
		d--
	}
	return Day(d)
}

// Start returns when the day begins.
func (d Day) Start() time.Time { return time.Unix(int64(d)*24*3600, 0).UTC() }

// String returns the day as 2026-11-29.
func (d Day) String() string { return d.Start().Format(time.DateOnly) }

// ParseDay reads a day as String writes it.
func ParseDay(s string) (Day, error) {
	t, err := time.Parse(time.DateOnly, s)
	if err != nil {
		return 0, fmt.Errorf("%.40q is not a day such as 2026-11-29", s)
	}
	return DayOf(t), nil
}

// MarshalText implements encoding.TextMarshaler.
func (d Day) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Day) UnmarshalText(b []byte) (err error) {
	*d, err = ParseDay(string(b))
	return err
}

// Key says whose sums an entry has, and of which day.
type Key struct {
	Day       Day    `json:"day"`
	Namespace string `json:"namespace,omitempty"`
	Owner     string `json:"owner,omitempty"` // name of the Unix user, or else of the token; "": it is not known
	Unix      bool   `json:"unix,omitempty"`  // the owner is a Unix user
	UID       uint32 `json:"uid,omitempty"`   // with Unix
}

// User returns the Unix user that an entry is of; nil: it is not of one.
func (k *Key) User() *cluster.UnixUser {
	if !k.Unix {
		return nil
	}
	return &cluster.UnixUser{Name: k.Owner, UID: k.UID}
}

// Compare orders keys by day, namespace and owner.
func (k *Key) Compare(o *Key) int {
	return cmp.Or(cmp.Compare(k.Day, o.Day), cmp.Compare(k.Namespace, o.Namespace), cmp.Compare(k.Owner, o.Owner),
		cmp.Compare(k.UID, o.UID), compareBool(k.Unix, o.Unix))
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// Sums are what the tasks of one owner did and used. An attempt that ended without a known start adds no times.
type Sums struct {
	Jobs      int64 `json:"jobs,omitempty"` // submitted
	Succeeded int64 `json:"succeeded,omitempty"`
	Failed    int64 `json:"failed,omitempty"`
	Cancelled int64 `json:"cancelled,omitempty"`
	Attempts  int64 `json:"attempts,omitempty"` // that ended, with those after which a task was run again
	// what attempts asked for, by the time that they ran, in cores, MiB and GPUs times the unit of time
	CoreUS int64 `json:"core_us,omitempty"`
	MiBMS  int64 `json:"mib_ms,omitempty"`
	GPUUS  int64 `json:"gpu_us,omitempty"`
	CPUUS  int64 `json:"cpu_us,omitempty"` // CPU time that they used, in microseconds
	// Waited counts jobs that have begun, and WaitedUS is the sum of their waits, from submission to the first task.
	Waited   int64 `json:"waited,omitempty"`
	WaitedUS int64 `json:"waited_us,omitempty"`
}

// Add adds other sums, n times: -1 subtracts them.
func (s *Sums) Add(o *Sums, n int64) {
	s.Jobs += n * o.Jobs
	s.Succeeded += n * o.Succeeded
	s.Failed += n * o.Failed
	s.Cancelled += n * o.Cancelled
	s.Attempts += n * o.Attempts
	s.CoreUS += n * o.CoreUS
	s.MiBMS += n * o.MiBMS
	s.GPUUS += n * o.GPUUS
	s.CPUUS += n * o.CPUUS
	s.Waited += n * o.Waited
	s.WaitedUS += n * o.WaitedUS
}

// IsZero reports whether there is nothing in the sums.
func (s *Sums) IsZero() bool { return *s == Sums{} }

// Entry is the sums of one owner on one day.
type Entry struct {
	Key
	Sums
}
