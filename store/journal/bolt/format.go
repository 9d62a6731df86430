package bolt

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"go.etcd.io/bbolt"
)

const (
	formatVersion = 1     // of the file as a whole
	valueFormat   = 1     // first byte of each value
	sealSize      = 1 + 4 // format byte, CRC32C little endian
	stateBucket   = "\x00souk"
	stateKey      = "state"
	stateSize     = 4 + 8 + 8
)

// state is the journal's own record, written with every commit: it is enough to detect that a record is missing.
type state struct {
	count uint64 // records
	sum   uint64 // of their CRCs, modulo 2^64
}

func (st *state) noteSum(sum uint32)   { st.count++; st.sum += uint64(sum) }
func (st *state) forgetSum(sum uint32) { st.count--; st.sum -= uint64(sum) }

// newerError is the error for a file that a newer souk wrote, as opposed to a damaged one.
type newerError struct{ version uint32 }

func (e *newerError) Error() string { return fmt.Sprintf("format %d", e.version) }

func putState(tx *bbolt.Tx, st state) error {
	b, err := tx.CreateBucketIfNotExists([]byte(stateBucket))
	if err != nil {
		return err
	}
	raw := make([]byte, 0, stateSize)
	raw = binary.LittleEndian.AppendUint32(raw, formatVersion)
	raw = binary.LittleEndian.AppendUint64(raw, st.count)
	raw = binary.LittleEndian.AppendUint64(raw, st.sum)
	sealed, _ := sealValue(stateBucket, stateKey, raw)
	return b.Put([]byte(stateKey), sealed)
}

// parseState parses a state record whose seal is already checked.
func parseState(raw []byte) (state, error) {
	if len(raw) < 4 {
		return state{}, fmt.Errorf("its state record is %d bytes", len(raw))
	}
	if v := binary.LittleEndian.Uint32(raw); v > formatVersion {
		return state{}, &newerError{v}
	}
	if len(raw) != stateSize {
		return state{}, fmt.Errorf("its state record is %d bytes and should be %d", len(raw), stateSize)
	}
	return state{count: binary.LittleEndian.Uint64(raw[4:]), sum: binary.LittleEndian.Uint64(raw[12:])}, nil
}

// sealValue returns the value as stored on disk, and its CRC.
func sealValue(bucket, key string, value []byte) ([]byte, uint32) {
	var s sums
	sum := s.sumOf(bucket, []byte(key), value)
	out := make([]byte, sealSize, sealSize+len(value))
	out[0] = valueFormat
	binary.LittleEndian.PutUint32(out[1:], sum)
	return append(out, value...), sum
}

// splitSealed splits a stored value without checking its CRC.
func splitSealed(sealed []byte) (value []byte, sum uint32, err error) {
	if len(sealed) < sealSize || sealed[0] != valueFormat {
		return nil, 0, fmt.Errorf("a value of %d bytes does not begin as values do", len(sealed))
	}
	return sealed[sealSize:], binary.LittleEndian.Uint32(sealed[1:]), nil
}

// sums computes checksums. It reuses its buffer, as a million records are checked when a journal is opened.
type sums struct{ head []byte }

// unsealValue splits a stored value and checks its CRC.
func (s *sums) unsealValue(bucket string, key, sealed []byte) (value []byte, sum uint32, err error) {
	value, sum, err = splitSealed(sealed)
	if err == nil && sum != s.sumOf(bucket, key, value) {
		err = fmt.Errorf("the checksum of a record is wrong")
	}
	if err != nil {
		return nil, 0, fmt.Errorf("bucket %.40q, key %.80q: %w", bucket, key, err)
	}
	return value, sum, nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli) //nolint:gochecknoglobals // a constant

// sumOf covers the bucket and key as well as the value, each with its length.
func (s *sums) sumOf(bucket string, key, value []byte) uint32 {
	s.head = binary.AppendUvarint(s.head[:0], uint64(len(bucket)))
	s.head = append(s.head, bucket...)
	s.head = binary.AppendUvarint(s.head, uint64(len(key)))
	s.head = append(s.head, key...)
	return crc32.Update(crc32.Update(0, castagnoli, s.head), castagnoli, value)
}
