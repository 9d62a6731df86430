package jobs

import (
	"strconv"
	"strings"
	"time"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// Warning is a signal to an attempt before its timeout is over. Its first process gets it, and no other.
type Warning struct {
	Signal   string `json:"signal"`
	BeforeMS int64  `json:"before_ms"` // so long before the timeout is over
}

// defaultWarning is how long before the timeout the signal comes if nobody says; it is sbatch's.
const defaultWarning = time.Minute

// ParseWarning reads SIGNAL or SIGNAL@SECONDS, as sbatch's --signal; a B: before it changes nothing.
func ParseWarning(text string) (w Warning, err error) {
	name, at, both := strings.Cut(strings.TrimPrefix(text, "B:"), "@")
	w = Warning{Signal: name, BeforeMS: defaultWarning.Milliseconds()}
	if both {
		seconds, err := strconv.Atoi(at)
		if err != nil || seconds < 1 {
			return w, fault.New(fault.Invalid, fault.CodeJob,
				"a warning is written SIGNAL or SIGNAL@SECONDS, as USR1@60, not %.40q", text)
		}
		w.BeforeMS = 1000 * int64(seconds)
	}
	_, err = machine.ParseSignal(name)
	return w, err
}

// check refuses a warning that cannot come.
func (w Warning) check(timeoutMS int64) error {
	if w == (Warning{}) {
		return nil
	}
	if _, err := machine.ParseSignal(w.Signal); err != nil {
		return err
	}
	if w.BeforeMS < 1 || w.BeforeMS >= timeoutMS {
		return fault.New(fault.Invalid, fault.CodeJob, "a signal %s before the timeout is over needs a longer timeout "+
			"than that, and it is %s", time.Duration(w.BeforeMS)*time.Millisecond,
			time.Duration(timeoutMS)*time.Millisecond)
	}
	return nil
}
