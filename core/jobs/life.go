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
	Attempt int // from 1
	CPU     int64
	Memory  int64
	GPUs    int // whole GPUs
}

// Shape returns the resources that the attempt occupies.
func (l Life) Shape() cluster.Resources {
	return cluster.Resources{CPU: l.CPU, Memory: l.Memory, GPU: 1000 * int64(l.GPUs)}
}

// MaxAttempt bounds the attempts of one task.
const MaxAttempt = 1<<16 - 1

// A life's text has fixed fields, all hexadecimal but the first letter, which no machine's id begins with.
const (
	lifeFormat = "t%s%06x%04x%08x%08x%02x"
	jobDigits  = 10
	lifeLen    = 1 + jobDigits + 6 + 4 + 8 + 8 + 2
)

// String returns the life's text.
func (l Life) String() string {
	return fmt.Sprintf(lifeFormat, l.Job[1:], l.Index, l.Attempt, l.CPU, l.Memory, l.GPUs)
}

// IsLife reports whether a name in the runtime is that of a task's life.
func IsLife(name string) bool { return len(name) == lifeLen && name[0] == 't' }

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
	l.Index, l.Attempt = int(field(6)), int(field(4))
	l.CPU, l.Memory, l.GPUs = field(8), field(8), int(field(2))
	return l, ok && l.Attempt > 0
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
