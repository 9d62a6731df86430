package layer

import (
	"context"
	"io"

	"github.com/soukhq/souk/fault"
)

// Limits bound the size of one layer. A zero field means its default.
type Limits struct {
	Bytes   int64 // of its tar, and of all its files together; default 32 GiB
	Entries int   // default 2 million
	Path    int   // bytes of a name; default 4095, the kernel's limit
	Ratio   int64 // tar size to compressed size, for tars above ratioFrom; default 200; real layers have 2 to 10
}

// ratioFrom is the tar size in bytes up to which any ratio is allowed: small layers may consist of zeros.
const ratioFrom = 256 << 20

// Or returns the limits with defaults for zero fields.
func (l Limits) Or() Limits {
	if l.Bytes == 0 {
		l.Bytes = 32 << 30
	}
	if l.Entries == 0 {
		l.Entries = 2_000_000
	}
	if l.Path == 0 {
		l.Path = 4095
	}
	if l.Ratio == 0 {
		l.Ratio = 200
	}
	return l
}

// meter reads a layer's tar within its limits.
type meter struct {
	ctx        context.Context //nolint:containedctx // for this layer only
	r          io.Reader
	limits     Limits
	compressed func() int64 // returns how many compressed bytes have been read
	n          int64
}

func (m *meter) Read(p []byte) (int, error) {
	if m.ctx.Err() != nil {
		return 0, fault.Wrap(m.ctx.Err(), fault.Timeout, fault.CodeImageCanceled, "unpacking was given up")
	}
	n, err := m.r.Read(p)
	m.n += int64(n)
	if m.n > m.limits.Bytes {
		return n, tooLarge("it has more than %d bytes", m.limits.Bytes)
	}
	if c := m.compressed(); m.n > ratioFrom && m.n/max(c, 1) > m.limits.Ratio {
		return n, tooLarge("its first %d bytes were %d when compressed", m.n, c)
	}
	return n, err
}

func tooLarge(why string, args ...any) error {
	e := fault.New(fault.Invalid, codeImageLimit, why, args...)
	e.Text = "a layer is larger than this host allows: " + e.Text + "; if it should be, raise the limit"
	return e
}
