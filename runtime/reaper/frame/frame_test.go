package frame_test

import (
	"bytes"
	"encoding/json"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime/reaper/frame"
)

func TestFramesRoundTrip(t *testing.T) {
	var b bytes.Buffer
	q := frame.Request{Op: frame.OpStart, Machine: "m", Attempt: 7}
	if err := frame.Write(&b, 9, frame.KindRequest, q, []byte("one"), nil, []byte("two")); err != nil {
		t.Fatal(err)
	}
	if err := frame.Write(&b, 10, frame.KindGrown, nil); err != nil {
		t.Fatal(err)
	}
	f, err := frame.Read(&b)
	if err != nil {
		t.Fatal(err)
	}
	var got frame.Request
	if err := json.Unmarshal(f.Head, &got); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(q, got); d != "" || f.ID != 9 || f.Kind != frame.KindRequest || string(f.Body) != "onetwo" {
		t.Errorf("%+v\n%s", f, d)
	}
	if f, err = frame.Read(&b); err != nil || f.ID != 10 || f.Kind != frame.KindGrown || len(f.Head)+len(f.Body) != 0 {
		t.Errorf("%+v, %v", f, err)
	}
	if _, err = frame.Read(&b); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}
}

func TestFrameBoundsAreEnforced(t *testing.T) {
	if err := frame.Write(io.Discard, 1, frame.KindRequest, nil, make([]byte, frame.MaxBody+1)); err == nil {
		t.Error("a body over the bound is sent")
	}
	for _, p := range []string{"\xff\xff\xff\xff\x00\x00\x00\x00\x00\x00\x00\x00Q",
		"\x00\x00\x00\x00\xff\xff\xff\xff\x00\x00\x00\x00Q"} {
		if _, err := frame.Read(bytes.NewBufferString(p)); err == nil || err == io.EOF {
			t.Errorf("%q: %v", p, err)
		}
	}
	for n := 1; n < 18; n++ {
		whole := "\x05\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00Q{\"a\"}"[:n]
		if _, err := frame.Read(bytes.NewBufferString(whole)); err != io.ErrUnexpectedEOF {
			t.Errorf("cut at %d: %v", n, err)
		}
	}
}

func TestFrameErrorsRoundTrip(t *testing.T) {
	if frame.ToError(nil).Err() != nil {
		t.Error("nil does not stay nil")
	}
	e := frame.ToError(fault.Wrap(io.EOF, fault.Precondition, "code", "a sentence")).Err()
	if fault.KindOf(e) != fault.Precondition || fault.CodeOf(e) != "code" || e.Error() != "a sentence: EOF" {
		t.Errorf("%#v", e)
	}
}

func FuzzReadIsBounded(f *testing.F) {
	var b bytes.Buffer
	_ = frame.Write(&b, 1, frame.KindRequest, frame.Request{Op: frame.OpList})
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, in []byte) {
		r := bytes.NewReader(in)
		for {
			fr, err := frame.Read(r)
			if err != nil {
				return
			}
			if len(fr.Head)+len(fr.Body) > len(in) {
				t.Fatal("more came out than went in")
			}
		}
	})
}
