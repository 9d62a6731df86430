package jobs

import (
	"fmt"
	"strconv"

	"github.com/soukhq/souk/cluster"
)

// Life names one attempt of one task and what it occupies. Its text is the task's name at the worker's runtime: after
// a crash the worker rebuilds its ledger from the runtime's list, so a task costs the worker no journal write.
type Life struct {
	Job     string // its id
	Index   int
	Attempt int // see NewAttempt
	CPU     int64
	Memory  int64
	GPUs    int // whole GPUs
}

// Shape returns the resources that the attempt occupies.
func (l Life) Shape() cluster.Resources {
	return cluster.Resources{CPU: l.CPU, Memory: l.Memory, GPU: 1000 * int64(l.GPUs)}
}

// Bounds of an attempt's number.
const (
	MaxTry   = 1<<tryBits - 1
	MaxEpoch = 1<<15 - 1
	tryBits  = 16
)

// NewAttempt returns the number of an attempt: the job's epoch and, within it, the try, from 1. Of two attempts of one
// task the later one has the larger number, and no two have the same: a member that takes a job over does not know which
// tries its predecessor has begun, but raises the epoch.
func NewAttempt(epoch, try int) int { return epoch<<tryBits | try }

// TryOf returns the try of an attempt's number.
func TryOf(attempt int) int { return attempt & MaxTry }

// EpochOf returns the job's epoch in an attempt's number.
func EpochOf(attempt int) int { return attempt >> tryBits }

// A life's text has fixed fields, all hexadecimal but the first letter, which no machine's id begins with. The epoch is
// the last field, and is left out while it is 0.
const (
	lifeFormat  = "t%s%06x%04x%08x%08x%02x"
	epochFormat = "%04x"
	jobDigits   = 10
	epochDigits = 4
	lifeLen     = 1 + jobDigits + 6 + 4 + 8 + 8 + 2
)

// String returns the life's text.
func (l Life) String() string {
	s := fmt.Sprintf(lifeFormat, l.Job[1:], l.Index, TryOf(l.Attempt), l.CPU, l.Memory, l.GPUs)
	if e := EpochOf(l.Attempt); e > 0 {
		s += fmt.Sprintf(epochFormat, e)
	}
	return s
}

// IsLife reports whether a name in the runtime is that of a task's life.
func IsLife(name string) bool {
	return (len(name) == lifeLen || len(name) == lifeLen+epochDigits) && name[0] == 't'
}

// ParseLife reads a life's text.
func ParseLife(s string) (l Life, ok bool) {
	if !IsLife(s) || !hexOnly(s[1:]) {
		return l, false
	}
	at := 1 + jobDigits
	field := func(digits int) int64 {
		n, err := strconv.ParseInt(s[at:at+digits], 16, 64)
		ok = ok && err == nil
		at += digits
		return n
	}
	ok = true
	l.Job = "j" + s[1:at]
	l.Index = int(field(6))
	try := int(field(4))
	l.CPU, l.Memory, l.GPUs = field(8), field(8), int(field(2))
	epoch := 0
	if len(s) > lifeLen {
		epoch = int(field(epochDigits))
	}
	l.Attempt = NewAttempt(epoch, try)
	return l, ok && try > 0 && epoch <= MaxEpoch && (epoch > 0) == (len(s) > lifeLen)
}

// ValidID reports whether s has the form of a job's ID: a j and ten hexadecimal digits.
func ValidID(s string) bool { return len(s) == 1+jobDigits && s[0] == 'j' && hexOnly(s[1:]) }

// ID makes a job's ID from a random number.
func ID(n uint64) string { return fmt.Sprintf("j%010x", n&(1<<40-1)) }

func hexOnly(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
