package cluster

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strconv"
	"time"
)

// KeyMark identifies, in a machine's record, the Idempotency-Key under which it was made: hashes of the key and of the
// request, and when the key was bound. Thus any member that knows the machine knows the key. "" is the mark of a
// machine made without one.
//
// It is 32 letters: 16 of the key, 8 of the request (both base64), 8 of the time (seconds since 1970, hexadecimal).
type KeyMark string

const (
	keyLetters     = 16
	requestLetters = 8
	markLetters    = keyLetters + requestLetters + 8
)

// MarkKey makes the mark of a key of an app that was bound at a time. request is the hash of the request.
func MarkKey(app, key, request string, at time.Time) KeyMark {
	return KeyMark(HashKey(app, key) + hashRequest(request) + fmt.Sprintf("%08x", uint32(at.Unix())))
}

// HashKey returns the hash of an app's key, as its marks have it.
func HashKey(app, key string) string { return encodeLetters(app+"\x00"+key, keyLetters) }

func hashRequest(request string) string { return encodeLetters(request, requestLetters) }

func encodeLetters(text string, n int) string {
	sum := sha256.Sum256([]byte(text))
	return base64.RawURLEncoding.EncodeToString(sum[:])[:n]
}

// Key returns the hash of the key; "": the mark is empty or malformed.
func (m KeyMark) Key() string {
	if len(m) != markLetters {
		return ""
	}
	return string(m[:keyLetters])
}

// Of reports whether the machine was made for a request of this hash.
func (m KeyMark) Of(request string) bool {
	return len(m) == markLetters && string(m[keyLetters:keyLetters+requestLetters]) == hashRequest(request)
}

// Bound returns when the key was bound; zero: the mark does not say.
func (m KeyMark) Bound() time.Time {
	if len(m) != markLetters {
		return time.Time{}
	}
	s, err := strconv.ParseUint(string(m[keyLetters+requestLetters:]), 16, 32)
	if err != nil {
		return time.Time{}
	}
	return time.Unix(int64(s), 0)
}
