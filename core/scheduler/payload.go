package scheduler

import (
	"encoding/json"

	"github.com/soukhq/souk/fault"
)

// Payload is what a message carries beyond its fields. One payload may be sent to many receivers, so nobody changes it.
// json.Marshal writes it for a message that travels between hosts.
type Payload interface {
	// Number returns what distinguishes a payload from others of its type, for a hash of a run.
	Number() int32
}

// Teller is a Payload that is about jobs.
type Teller interface {
	Payload
	// Jobs calls visit for each of them.
	Jobs(visit func(job int32))
}

// PayloadReader is a Strategy with messages that carry payloads.
type PayloadReader interface {
	Strategy
	// ReadPayload reads the payload of a message of kind k that came from another host: raw is what json.Marshal made of
	// it, and is empty if the message has none. It refuses, with a fault.Invalid, what is no payload of this kind, a
	// missing one that the kind must have, and numbers that this Strategy's fleet cannot have: of parties, slots, tasks
	// and the like. Moments and spans are only added and compared, so a wrong one misleads the receiver and no more.
	// Which jobs there are is not known here: the receiver must know those of a Teller before it delivers the message.
	ReadPayload(k Kind, raw []byte) (Payload, error)
}

// ReadPayload sets the payload of a message from another host, for a receiver with Strategy s, as PayloadReader says. A
// Strategy that is none has no payloads.
func (m *Msg) ReadPayload(s Strategy, raw []byte) error {
	r, ok := s.(PayloadReader)
	if !ok {
		return RefusePayload(m.Kind, raw)
	}
	p, err := r.ReadPayload(m.Kind, raw)
	if err == nil {
		m.Payload = p
	}
	return err
}

// RefusePayload refuses a payload of a message whose kind has none: raw must be empty.
func RefusePayload(k Kind, raw []byte) error {
	if len(raw) == 0 {
		return nil
	}
	return fault.New(fault.Invalid, fault.CodeMalformed,
		"a scheduler's message of kind %d has a payload of %d bytes; it must have none", k, len(raw))
}

// DecodePayload decodes a payload of type T, or *T.
func DecodePayload[T any](raw []byte) (*T, error) {
	var p *T
	if err := json.Unmarshal(raw, &p); err != nil {
		return nil, fault.Wrap(err, fault.Invalid, fault.CodeMalformed,
			"the payload of a scheduler's message cannot be read")
	}
	if p == nil {
		return nil, fault.New(fault.Invalid, fault.CodeMalformed, "the payload of a scheduler's message is null")
	}
	return p, nil
}

// CheckRange refuses a number of a payload that is not from least to most.
func CheckRange[N int | int32 | int64](what string, n, least, most N) error {
	if n < least || n > most {
		return fault.New(fault.Invalid, fault.CodeMalformed,
			"the payload of a scheduler's message has %s %d; it must be from %d to %d", what, n, least, most)
	}
	return nil
}

// CheckEach refuses a list that has null, or an entry that check refuses.
func CheckEach[T any](list []*T, check func(*T) error) error {
	for i, x := range list {
		if x == nil {
			return fault.New(fault.Invalid, fault.CodeMalformed,
				"entry %d of a list in the payload of a scheduler's message is null", i)
		}
		if err := check(x); err != nil {
			return err
		}
	}
	return nil
}
