package fsm

// Record is one write to a journal: Value replaces what Bucket held under Key; a nil Value deletes it.
type Record struct {
	Bucket string
	Key    string
	Value  []byte
}
