package broadcast

import (
	"encoding/binary"
	"hash/fnv"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
)

// Message is a body for all members, with the arc that its receiver relays it to. Body is never changed.
type Message struct {
	Arc  Arc
	Body []byte
	ID   uint64 // hash of the body; not sent

	moves int // how often its arc was given to another relay
}

// NewMessage makes a message with the ID of its body.
func NewMessage(arc Arc, body []byte) Message {
	h := fnv.New64a()
	_, _ = h.Write(body) // never fails
	return Message{Arc: arc, Body: body, ID: h.Sum64()}
}

// Packet is a batch of messages from one member to another.
type Packet struct {
	From, To cluster.WorkerID // To is not sent
	Seq      uint32           // sequence number of From's packets
	Messages []Message
}

// Ack lists packets that arrived.
type Ack struct {
	From, To cluster.WorkerID // To is not sent
	Seqs     []uint32
}

// The first byte of a packet and of an ack. Package registry's messages begin with 0x11 to 0x13.
const (
	tagPacket = 0x14
	tagAck    = 0x15
)

const (
	maxName     = 128 // bytes of an id
	maxMessages = 256 // of one packet
	maxSeqs     = 256 // of one ack
	messageHead = 11  // bytes that a message takes beside its body: the arc, and a length of up to three bytes
)

// Size returns the bytes of an encoded packet, or a few more.
func (p Packet) Size() int {
	n := 8 + len(p.From)
	for _, m := range p.Messages {
		n += messageHead + len(m.Body)
	}
	return n
}

// Size returns the bytes of an encoded ack, or a few more.
func (a Ack) Size() int { return 3 + len(a.From) + 4*len(a.Seqs) }

// Encode returns the packet's wire form.
func (p Packet) Encode() []byte {
	b := make([]byte, 0, p.Size())
	b = binary.AppendUvarint(append(b, tagPacket), uint64(len(p.From)))
	b = binary.LittleEndian.AppendUint32(append(b, p.From...), p.Seq)
	b = binary.AppendUvarint(b, uint64(len(p.Messages)))
	for _, m := range p.Messages {
		b = binary.LittleEndian.AppendUint32(b, m.Arc.From)
		b = binary.LittleEndian.AppendUint32(b, m.Arc.To)
		b = append(binary.AppendUvarint(b, uint64(len(m.Body))), m.Body...)
	}
	return b
}

// Encode returns the ack's wire form.
func (a Ack) Encode() []byte {
	b := make([]byte, 0, a.Size())
	b = binary.AppendUvarint(append(b, tagAck), uint64(len(a.From)))
	b = binary.AppendUvarint(append(b, a.From...), uint64(len(a.Seqs)))
	for _, s := range a.Seqs {
		b = binary.LittleEndian.AppendUint32(b, s)
	}
	return b
}

// Decode reads a packet or an ack; the other is nil. Bytes after it are ignored: a later version may add fields.
// Bodies point into raw.
func Decode(raw []byte) (*Packet, *Ack, error) {
	if len(raw) == 0 || raw[0] != tagPacket && raw[0] != tagAck {
		return nil, nil, malformedPacket("it is neither a packet nor an acknowledgement")
	}
	r := reader{rest: raw[1:]}
	from := cluster.WorkerID(r.readBytes(maxName))
	if raw[0] == tagAck {
		a := &Ack{From: from}
		for range r.readCount(maxSeqs) {
			a.Seqs = append(a.Seqs, r.readFixed32())
		}
		return nil, a, r.err
	}
	p := &Packet{From: from, Seq: r.readFixed32()}
	for range r.readCount(maxMessages) {
		arc := Arc{From: r.readFixed32(), To: r.readFixed32()}
		p.Messages = append(p.Messages, NewMessage(arc, r.readBytes(len(r.rest))))
	}
	return p, nil, r.err
}

func malformedPacket(format string, args ...any) error {
	return fault.New(fault.Invalid, fault.CodeMalformed, format, args...)
}

// reader reads what Encode wrote. After the first error it returns zeros.
type reader struct {
	rest []byte
	err  error
}

func (r *reader) takeBytes(n int) []byte {
	if r.err != nil || n > len(r.rest) {
		if r.err == nil {
			r.err = malformedPacket("a packet of a broadcast is cut off")
		}
		r.rest = nil
		return nil
	}
	out := r.rest[:n:n]
	r.rest = r.rest[n:]
	return out
}

func (r *reader) readFixed32() uint32 {
	if b := r.takeBytes(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (r *reader) readCount(most int) int {
	n, used := binary.Uvarint(r.rest)
	if r.err == nil && (used <= 0 || n > uint64(most)) {
		r.err = malformedPacket("a packet of a broadcast has a length that is cut off or more than %d", most)
	}
	if r.err != nil {
		return 0
	}
	r.rest = r.rest[used:]
	return int(n)
}

func (r *reader) readBytes(most int) []byte { return r.takeBytes(r.readCount(most)) }
