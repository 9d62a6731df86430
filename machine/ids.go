package machine

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"time"
)

// Entropy is a random source for pure code; *rand.Rand of math/rand/v2 is one.
type Entropy interface{ Uint64() uint64 }

// NewID draws a machine's id: 14 hexadecimal digits, such as "d891275c2e5118". The client or buyer draws it before it
// asks a worker, so pass crypto/rand.Reader. It panics if random fails.
func NewID(random io.Reader) string {
	var b [7]byte
	drawRandom(random, b[:])
	return hex.EncodeToString(b[:])
}

// NewVolumeID draws a volume's id: "vol_" and 18 of 32 letters and digits. It panics when random fails.
func NewVolumeID(random io.Reader) string {
	var b [18]byte
	drawRandom(random, b[:])
	for i := range b {
		b[i] = "0123456789abcdefghjkmnpqrstvwxyz"[b[i]%32]
	}
	return "vol_" + string(b[:])
}

func drawRandom(random io.Reader, b []byte) {
	if _, err := io.ReadFull(random, b); err != nil {
		panic(fmt.Sprintf("machine: the source of chance failed: %v", err))
	}
}

// ValidID reports whether s has the form of a machine's ID.
func ValidID(s string) bool {
	return len(s) == 14 && hasOnly(s, func(c byte) bool { return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' })
}

// ValidVolumeID reports whether s has the form of a volume's ID.
func ValidVolumeID(s string) bool {
	return len(s) > 4 && len(s) <= 64 && s[:4] == "vol_" && hasOnly(s[4:], lowerOrDigit)
}

// ValidSnapshotID reports whether s has the form of a snapshot's id.
func ValidSnapshotID(s string) bool {
	return len(s) > 3 && len(s) <= 64 && s[:3] == "vs_" && hasOnly(s[3:], lowerOrDigit)
}

// ValidName reports whether s is a valid name of a machine: 1 to 63 of a-z, 0-9, "-", "_" and ".", a letter or digit
// first.
func ValidName(s string) bool {
	return s != "" && len(s) <= 63 && lowerOrDigit(s[0]) &&
		hasOnly(s, func(c byte) bool { return lowerOrDigit(c) || c == '-' || c == '_' || c == '.' })
}

// ValidApp reports whether s is a valid name of an app: 1 to 63 of a-z, 0-9 and "-", a letter or digit first.
func ValidApp(s string) bool {
	return s != "" && len(s) <= 63 && lowerOrDigit(s[0]) &&
		hasOnly(s, func(c byte) bool { return lowerOrDigit(c) || c == '-' })
}

// ValidLabel reports whether s is a DNS label, as names of apps, namespaces and policies are: 1 to 63 of a-z, 0-9 and
// "-", with no dash at the ends.
func ValidLabel(s string) bool { return ValidApp(s) && s[len(s)-1] != '-' }

// ValidRegion reports whether s is a valid name of a region; the form is that of an app's name.
func ValidRegion(s string) bool { return ValidApp(s) }

func lowerOrDigit(c byte) bool { return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' }

func hasOnly(s string, ok func(byte) bool) bool {
	for i := range len(s) {
		if !ok(s[i]) {
			return false
		}
	}
	return true
}

// crockford is the alphabet of ULIDs, in ASCII order, so that ULIDs sort like their numbers.
const crockford = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

// NewULID returns a ULID: 26 letters and digits that sort by time, to the millisecond. Within a millisecond their
// order is random; NextULID keeps an order.
func NewULID(now time.Time, chance Entropy) string {
	var b [16]byte
	binary.BigEndian.PutUint64(b[8:], chance.Uint64())
	binary.BigEndian.PutUint64(b[:8], uint64(now.UnixMilli())<<16|chance.Uint64()&0xffff)
	return encodeULID(b)
}

// NextULID returns a ULID that sorts after last, even within a millisecond or after the clock has gone back: then it
// is the successor of last. last may be "".
func NextULID(last string, now time.Time, chance Entropy) string {
	next := NewULID(now, chance)
	if next > last {
		return next
	}
	b, ok := decodeULID(last)
	if !ok {
		return next
	}
	for i := 15; i >= 0; i-- {
		if b[i]++; b[i] != 0 {
			break
		}
	}
	return encodeULID(b)
}

// encodeULID encodes 128 bits as 26 digits of 5 bits; the first has 3.
func encodeULID(b [16]byte) string {
	hi, lo := binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])
	var out [26]byte
	for i := 25; i >= 0; i-- {
		out[i] = crockford[lo&31]
		lo = lo>>5 | hi<<59
		hi >>= 5
	}
	return string(out[:])
}

// ULIDTime returns when a ULID was made; zero if id is no ULID.
func ULIDTime(id string) time.Time {
	b, ok := decodeULID(id)
	if !ok {
		return time.Time{}
	}
	return time.UnixMilli(int64(binary.BigEndian.Uint64(b[:8]) >> 16)).UTC() //nolint:gosec // of 48 bits
}

func decodeULID(s string) (b [16]byte, ok bool) {
	if len(s) != 26 || s[0] > '7' {
		return b, false
	}
	var hi, lo uint64
	for i := range len(s) {
		v := crockfordValue(s[i])
		if v > 31 {
			return b, false
		}
		hi, lo = hi<<5|lo>>59, lo<<5|v
	}
	binary.BigEndian.PutUint64(b[:8], hi)
	binary.BigEndian.PutUint64(b[8:], lo)
	return b, true
}

func crockfordValue(c byte) uint64 {
	for i := range len(crockford) {
		if crockford[i] == c {
			return uint64(i)
		}
	}
	return 32
}

// ValidULID reports whether s is a ULID.
func ValidULID(s string) bool {
	_, ok := decodeULID(s)
	return ok
}
