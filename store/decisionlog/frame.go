package decisionlog

import (
	"encoding/binary"
	"hash/crc32"
	"hash/fnv"
	"slices"

	"github.com/soukhq/souk/fault"
)

// A file is a sequence of zstd frames, so that `zstd -dc` reads it. The data frames hold whole lines. A skippable
// frame (RFC 8878, section 3.1.2) precedes each with its length, checksum, time span, and the apps and machines in it,
// so that a reader finds a machine without unpacking everything, and distinguishes a torn end from damage. The last
// skippable frame of a cleanly closed file is its end mark.
const (
	skipMagic = 0x184D2A5D // one of the sixteen that zstd skips
	kindFrame = 'F'
	kindEnd   = 'E'
	version   = 1

	headFixed = 40 // bytes of a frame header's payload before the marks
	maxMarks  = 1 << 16
	maxPlain  = 16 << 20 // bytes of lines in one frame
	maxPacked = maxPlain + 1<<16
)

// meta is the content of a frame's header.
type meta struct {
	packed, plain uint32 // lengths
	sum           uint32 // CRC-32C of the packed bytes
	first, last   int64  // milliseconds since 1970 of the frame's decisions
	marks         []uint32
}

// nameMark returns the fingerprint by which a header lists an app or a machine; others may have the same one.
func nameMark(s string) uint32 {
	h := fnv.New32a()
	h.Write([]byte(s))
	return h.Sum32()
}

func castagnoliTable() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

// appendHeader writes the skippable frame for m: its magic, length, kind, format, the fields, the marks, a checksum.
func appendHeader(b []byte, kind byte, m meta) []byte {
	le := binary.LittleEndian
	b = le.AppendUint32(b, skipMagic)
	b = le.AppendUint32(b, uint32(headFixed+4*len(m.marks)+4))
	at := len(b)
	b = append(b, kind, version, 0, 0)
	b = le.AppendUint32(b, m.packed)
	b = le.AppendUint32(b, m.plain)
	b = le.AppendUint32(b, m.sum)
	b = le.AppendUint64(b, uint64(m.first))
	b = le.AppendUint64(b, uint64(m.last))
	b = le.AppendUint32(b, uint32(len(m.marks)))
	b = le.AppendUint32(b, 0)
	for _, x := range m.marks {
		b = le.AppendUint32(b, x)
	}
	return le.AppendUint32(b, crc32.Checksum(b[at:], castagnoliTable()))
}

// parseHeader parses a header's payload; the kind is 0 if it is damaged.
func parseHeader(p []byte) (kind byte, m meta, err error) {
	le := binary.LittleEndian
	if len(p) < headFixed+4 || crc32.Checksum(p[:len(p)-4], castagnoliTable()) != le.Uint32(p[len(p)-4:]) {
		return 0, m, nil
	}
	if p[1] != version {
		return 0, m, fault.New(fault.Invalid, codeLogVersion,
			"the decision log is of format %d, and this souk reads format %d; read it with the souk that wrote it",
			p[1], version)
	}
	m = meta{packed: le.Uint32(p[4:]), plain: le.Uint32(p[8:]), sum: le.Uint32(p[12:]), first: int64(le.Uint64(p[16:])),
		last: int64(le.Uint64(p[24:]))}
	n := int(le.Uint32(p[32:]))
	if n > maxMarks || headFixed+4*n+4 != len(p) || m.packed > maxPacked || m.plain > maxPlain {
		return 0, m, nil
	}
	m.marks = make([]uint32, n)
	for i := range m.marks {
		m.marks[i] = le.Uint32(p[headFixed+4*i:])
	}
	return p[0], m, nil
}

// mayHaveMark reports whether the frame may be about an app or a machine.
func (m *meta) mayHaveMark(x uint32) bool {
	_, found := slices.BinarySearch(m.marks, x)
	return found || len(m.marks) == maxMarks
}
