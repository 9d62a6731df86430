package member

import (
	"encoding/binary"
	"strconv"

	"github.com/soukhq/souk/core/registry"
	"github.com/soukhq/souk/mesh/gossip"
)

// kindPiece is the kind of the further pieces of a row that is too large for one object.
const kindPiece = registry.Kind("piece")

// schemaPieces is the schema of a large row's first object: its payload begins with the number of the row's objects, as
// a varint.
const schemaPieces = 2

// maxPieces bounds the objects of one row.
const maxPieces = 16

// pieceKey returns the key of a row's i-th piece; piece 0 is the row's own object.
func pieceKey(bucket, key string, i int) string { return bucket + "/" + key + "/" + strconv.Itoa(i) }

// putRow writes a row as one object, or as several if it is too large for one. Such large rows never change, so pieces
// of two versions cannot mix. It writes the further pieces before the first object, which has their number.
func putRow(objects gossip.Objects, bucket, key string, value []byte) error {
	if len(value) <= registry.MaxPayload {
		_, err := objects.Put(registry.Kind(bucket), key, schemaRow, value)
		return err
	}
	first := registry.MaxPayload - binary.MaxVarintLen64
	n := 1
	for rest := value[first:]; len(rest) > 0; n++ {
		size := min(len(rest), registry.MaxPayload)
		if _, err := objects.Put(kindPiece, pieceKey(bucket, key, n), schemaRow, rest[:size]); err != nil {
			return err
		}
		rest = rest[size:]
	}
	head := binary.AppendUvarint(nil, uint64(n))
	_, err := objects.Put(registry.Kind(bucket), key, schemaPieces, append(head, value[:first]...))
	return err
}

// deleteRow deletes a row's objects, unless they are deleted already.
func deleteRow(objects gossip.Objects, bucket, key string) error {
	old, there := objects.Get(registry.Kind(bucket), key)
	if !there {
		return nil
	}
	if err := objects.Delete(registry.Kind(bucket), key); err != nil {
		return err
	}
	n, _ := countPieces(old)
	for i := 1; i < n; i++ {
		if err := objects.Delete(kindPiece, pieceKey(bucket, key, i)); err != nil {
			return err
		}
	}
	return nil
}

// countPieces returns the number of a row's objects, and the part of the row in o, the first of them. An invalid number
// counts as one; the row is then rejected as unreadable.
func countPieces(o registry.Object) (n int, first []byte) {
	if o.Schema != schemaPieces {
		return 1, o.Payload
	}
	count, size := binary.Uvarint(o.Payload)
	if size <= 0 || count > maxPieces {
		return 1, o.Payload
	}
	return int(count), o.Payload[size:]
}

// joinPieces returns a whole row; there is false while a piece is missing.
func joinPieces(objects gossip.Objects, bucket string, o registry.Object) (value []byte, there bool) {
	n, value := countPieces(o)
	value = append([]byte{}, value...) // not nil: an empty row is not a deleted one
	for i := 1; i < n; i++ {
		piece, there := objects.Get(kindPiece, pieceKey(bucket, o.Key, i))
		if !there {
			return nil, false
		}
		value = append(value, piece.Payload...)
	}
	return value, true
}
