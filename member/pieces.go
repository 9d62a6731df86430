package member

import (
	"encoding/binary"
	"strconv"

	"github.com/soukhq/souk/core/registry"
	"github.com/soukhq/souk/mesh/gossip"
)

// kindPiece is the kind of what follows on the first bytes of a row that is larger than an object may be. A member of
// any version carries it.
const kindPiece = registry.Kind("piece")

// schemaPieces is the schema of the object with the first bytes: before them it says, as a varint, in how many objects
// the row travels.
const schemaPieces = 2

// maxPieces bounds the objects of one row.
const maxPieces = 16

// pieceKey returns the key of a row's piece; the first is the row's own object.
func pieceKey(bucket, key string, i int) string { return bucket + "/" + key + "/" + strconv.Itoa(i) }

// putRow writes a row as one object, or as several where it is too large for one. Rows that are so large never change,
// so pieces of two versions cannot meet. The pieces are there before the object that says how many there are.
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

// deleteRow writes that a row is gone, with its pieces, where it is not known already.
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

// countPieces returns in how many objects a row travels, and what of it is in o, the first of them. A number that no
// member writes counts as one, and what is in o is then refused as any row that does not read.
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

// joinPieces returns a row whole; there is false while one of its pieces has not come.
func joinPieces(objects gossip.Objects, bucket string, o registry.Object) (value []byte, there bool) {
	n, value := countPieces(o)
	value = append([]byte{}, value...) // an object without content is not one that is gone
	for i := 1; i < n; i++ {
		piece, there := objects.Get(kindPiece, pieceKey(bucket, o.Key, i))
		if !there {
			return nil, false
		}
		value = append(value, piece.Payload...)
	}
	return value, true
}
