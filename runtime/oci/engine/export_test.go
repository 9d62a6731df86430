package engine

// Said is said, for tests.
func Said(log string, err error) error { return said(log, err) }
