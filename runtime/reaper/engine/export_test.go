package engine

// Said is said, for tests.
func (e Engine) Said(log string, err error) error { return e.loggedError(log, err) }
