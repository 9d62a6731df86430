package wal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"

	"github.com/soukhq/souk/core/fsm"
)

// A log is a header and frames. All begin at multiples of align, so that no header crosses a sector.
//
//	header: magic, generation u64, CRC32C u32 over both
//	frame:  length u32 of the body, CRC32C u32 of the body, number u64, CRC32C u32 over these; body, padded with zeros
//	body:   for each record: bucket, key and value, each with its length before it as a uvarint; a value's is one more,
//	        and 0 for a record that is deleted
const (
	magic       = "soukwal1"
	sector      = 512
	align       = 32
	headerSize  = int64(sector)
	frameHeader = 32
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli) //nolint:gochecknoglobals // a constant

// encodeBody encodes a batch as part of a frame's body, reusing b.
func encodeBody(b []byte, batch []fsm.Record) []byte {
	n := 0
	for _, r := range batch {
		n += len(r.Bucket) + len(r.Key) + len(r.Value) + 3*binary.MaxVarintLen32
	}
	b = slices.Grow(b[:0], n)
	for _, r := range batch {
		b = append(binary.AppendUvarint(b, uint64(len(r.Bucket))), r.Bucket...)
		b = append(binary.AppendUvarint(b, uint64(len(r.Key))), r.Key...)
		if r.Value == nil {
			b = append(b, 0)
		} else {
			b = append(binary.AppendUvarint(b, uint64(len(r.Value))+1), r.Value...)
		}
	}
	return b
}

// frameSize returns how many bytes of a log a frame with a body of this size takes.
func frameSize(body int) int64 { return int64(frameHeader+body+align-1) &^ (align - 1) }

// appendFrame encodes one frame with the bodies of some batches.
func appendFrame(b []byte, bodies [][]byte, number uint64) []byte {
	begin := len(b)
	b = append(b, make([]byte, frameHeader)...)
	for _, body := range bodies {
		b = append(b, body...)
	}
	head, body := b[begin:begin+frameHeader], b[begin+frameHeader:]
	binary.LittleEndian.PutUint32(head, uint32(len(body)))
	binary.LittleEndian.PutUint32(head[4:], crc32.Checksum(body, castagnoli))
	binary.LittleEndian.PutUint64(head[8:], number)
	binary.LittleEndian.PutUint32(head[16:], crc32.Checksum(head[:16], castagnoli))
	return append(b, make([]byte, -len(b[begin:])&(align-1))...)
}

func encodeHeader(generation uint64) []byte {
	b := make([]byte, headerSize)
	copy(b, magic)
	binary.LittleEndian.PutUint64(b[8:], generation)
	binary.LittleEndian.PutUint32(b[16:], crc32.Checksum(b[:16], castagnoli))
	return b
}

// decodeHeader returns a log's generation; whole is false if the header is damaged.
func decodeHeader(raw []byte) (generation uint64, whole bool) {
	if int64(len(raw)) < headerSize {
		return 0, false
	}
	generation = binary.LittleEndian.Uint64(raw[8:])
	return generation, bytes.Equal(raw[:headerSize], encodeHeader(generation))
}

// readLog adds a log's frames to m, which keeps raw. The log must have the generation. It changes m even if it fails.
func (m *merged) readLog(raw []byte, generation uint64) error {
	if of, whole := decodeHeader(raw); !whole || of != generation {
		return fmt.Errorf("it does not begin as log %d does", generation)
	}
	for at := int(headerSize); at < len(raw); {
		if m.torn {
			return m.nothingFollows(raw[at:])
		}
		frame := raw[at:]
		if len(frame) < frameHeader {
			return errors.New("it is shorter than it was made")
		}
		head := frame[:frameHeader]
		if allZero(head) {
			return m.nothingFollows(frame)
		}
		number, length, ok := decodeHead(head)
		if !ok {
			return fmt.Errorf("the frame at byte %d has a damaged header", at)
		}
		if m.last != 0 && number != m.last+1 {
			return fmt.Errorf("frame %d at byte %d follows frame %d", number, at, m.last)
		}
		if frameSize(length) > int64(len(frame)) {
			return fmt.Errorf("frame %d at byte %d is longer than its log", number, at)
		}
		frame = frame[:frameSize(length)]
		body := frame[frameHeader : frameHeader+length]
		whole := crc32.Checksum(body, castagnoli) == binary.LittleEndian.Uint32(head[4:]) &&
			allZero(frame[frameHeader+length:])
		switch {
		case whole:
			if err := m.addBody(body); err != nil {
				return fmt.Errorf("frame %d at byte %d: %w", number, at, err)
			}
			m.last = number
		case lacksSector(frame, at):
			m.torn = true
		default:
			return fmt.Errorf("frame %d at byte %d is damaged", number, at)
		}
		at += len(frame)
	}
	return nil
}

// decodeHead decodes a frame's header; ok is false if it is damaged.
func decodeHead(head []byte) (number uint64, length int, ok bool) {
	number, length = binary.LittleEndian.Uint64(head[8:]), int(binary.LittleEndian.Uint32(head))
	return number, length, crc32.Checksum(head[:16], castagnoli) == binary.LittleEndian.Uint32(head[16:]) &&
		allZero(head[20:frameHeader])
}

// nothingFollows returns an error unless the frames end before rest. rest may contain sectors of a frame whose first
// sector, with its header, did not reach the disk; but a header there belongs to a committed frame.
func (m *merged) nothingFollows(rest []byte) error {
	if allZero(rest) {
		return nil
	}
	m.torn = true
	for at := 0; at+frameHeader <= len(rest); at += align {
		if number, _, ok := decodeHead(rest[at : at+frameHeader]); ok && number > m.last {
			return fmt.Errorf("frame %d is missing, and frame %d is there", m.last+1, number)
		}
	}
	return nil
}

func (m *merged) addBody(b []byte) error {
	short := errors.New("a record ends behind its frame")
	field := func() ([]byte, bool) {
		n, used := binary.Uvarint(b)
		if used <= 0 || n > uint64(len(b)-used) {
			return nil, false
		}
		f := b[used : used+int(n)]
		b = b[used+int(n):]
		return f, true
	}
	for len(b) > 0 {
		bucket, ok1 := field()
		key, ok2 := field()
		n, used := binary.Uvarint(b)
		if !ok1 || !ok2 || used <= 0 || (n > 0 && n-1 > uint64(len(b)-used)) {
			return short
		}
		b = b[used:]
		r := fsm.Record{Bucket: string(bucket), Key: string(key)}
		if n > 0 {
			r.Value = b[: n-1 : n-1]
			b = b[n-1:]
		}
		m.addRecord(r)
	}
	return nil
}

// lacksSector reports whether a sector that overlaps the frame at byte at of its file is all zeros there.
func lacksSector(frame []byte, at int) bool {
	for from := 0; from < len(frame); {
		to := min(len(frame), from+sector-(at+from)%sector)
		if allZero(frame[from:to]) {
			return true
		}
		from = to
	}
	return false
}

func allZero(b []byte) bool {
	for len(b) >= 8 {
		if binary.LittleEndian.Uint64(b) != 0 {
			return false
		}
		b = b[8:]
	}
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}
