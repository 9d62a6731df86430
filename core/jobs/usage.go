package jobs

// Usage is what the attempts of a job's tasks that have ended used together, as far as their results are kept: where
// another member took the job over, it knows only the newest attempt of each task before that.
type Usage struct {
	Attempts   int     `json:"attempts"`              // that ended
	RanMS      float64 `json:"ran_ms"`                // how long they ran, added up
	RepeatedMS float64 `json:"repeated_ms,omitempty"` // of RanMS, attempts after which their task was run again
	MeasuredMS float64 `json:"measured_ms,omitempty"` // of RanMS, attempts whose CPU time is known
	CPUMS      float64 `json:"cpu_ms,omitempty"`      // CPU time of the attempts in MeasuredMS, user and system
	PeakBytes  int64   `json:"peak_memory_bytes,omitempty"`
}

// tally counts what attempts used. Times are microseconds.
type tally struct {
	attempts                     int
	ran, repeated, measured, cpu int64
	peak                         int64 // KiB, of the attempt with most
	first                        int64 // when the first attempt began, in unix microseconds; 0: not known
}

// addResult counts one attempt.
func (u *tally) addResult(r *Result) {
	u.attempts++
	u.peak = max(u.peak, r.PeakKiB)
	took := r.ranFor()
	u.ran += took
	if r.Retry {
		u.repeated += took
	}
	if r.UsedCPU > 0 { // a program that was executed has used some
		u.measured += took
		u.cpu += r.UsedCPU
	}
	if r.Began > 0 && (u.first == 0 || r.Began < u.first) {
		u.first = r.Began
	}
}

// ranFor returns how many microseconds an attempt ran, as far as known.
func (r *Result) ranFor() int64 {
	if r.Began <= 0 { // the end of a lost attempt says nothing of its start
		return 0
	}
	return max(0, r.Ended-r.Began)
}

func (u *tally) usage() *Usage {
	ms := func(us int64) float64 { return float64(us) / 1000 }
	return &Usage{Attempts: u.attempts, RanMS: ms(u.ran), RepeatedMS: ms(u.repeated), MeasuredMS: ms(u.measured),
		CPUMS: ms(u.cpu), PeakBytes: u.peak << 10}
}
