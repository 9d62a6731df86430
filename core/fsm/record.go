package fsm

// Record is one write to a journal: Value replaces the value of Key in Bucket; a nil Value deletes it.
type Record struct {
	Bucket string
	Key    string
	Value  []byte
}
