package decisionlog

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"

	"github.com/klauspost/compress/zstd"

	"github.com/soukhq/souk/core/decision"
	"github.com/soukhq/souk/fault"
)

// reader reads the frames of one file.
type reader struct {
	name   string
	f      *os.File
	size   int64
	unpack *zstd.Decoder
	packed []byte
	plain  []byte
}

// frameAt is the position of a frame's packed bytes.
type frameAt struct {
	meta
	at int64
}

// Torn describes a file whose last frame is incomplete: souk was killed while it wrote. Everything before that frame
// is readable.
type Torn struct {
	File  string `json:"file"`
	At    int64  `json:"at"`    // offset of the torn frame
	Bytes int64  `json:"bytes"` // bytes that are skipped
}

func openFile(name string) (*reader, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fault.Wrap(err, fault.NotFound, codeDecisionLog,
			"the decision log's file %s cannot be opened", name)
	}
	info, err := f.Stat()
	if err == nil {
		var d *zstd.Decoder
		d, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxPlain),
			zstd.WithDecoderLowmem(true))
		if err == nil {
			return &reader{name: name, f: f, size: info.Size(), unpack: d}, nil
		}
	}
	f.Close()
	return nil, fault.Wrap(err, fault.Unavailable, codeDecisionLog, "the decision log's file %s cannot be read", name)
}

func (r *reader) close() {
	r.unpack.Close()
	r.f.Close()
}

// damagedAt returns the error for a damaged file.
func (r *reader) damagedAt(at int64, what string) error {
	return fault.New(fault.Invalid, CodeLogDamaged,
		"the decision log's file %s is damaged at byte %d: %s; the part before that byte and the other files are "+
			"intact: move this file away, or restore it from a copy", r.name, at, what)
}

// readFrames reads the headers of a file. A file that was not closed cleanly may have a torn end, which is reported
// and skipped; any other fault is damage. It returns the frames before the damage, too.
func (r *reader) readFrames() (list []frameAt, torn *Torn, err error) {
	list, torn, err = r.readHeaders()
	if torn != nil && r.hasEndMark() {
		return list, nil, r.damagedAt(torn.At, "a frame is longer than the file, which was ended in order")
	}
	return list, torn, err
}

// hasEndMark reports whether the file's last bytes are an end mark.
func (r *reader) hasEndMark() bool {
	tail := make([]byte, len(appendHeader(nil, kindEnd, meta{})))
	if _, err := r.f.ReadAt(tail, r.size-int64(len(tail))); err != nil {
		return false
	}
	kind, _, err := parseHeader(tail[8:])
	return err == nil && kind == kindEnd
}

func (r *reader) readHeaders() (list []frameAt, torn *Torn, err error) {
	at, ended := int64(0), false
	var fixed [8]byte
	for at < r.size {
		if ended {
			return list, nil, r.damagedAt(at, "there is more behind its end mark")
		}
		if r.size-at < 8 {
			return list, r.tornAt(at), nil
		}
		if _, err := r.f.ReadAt(fixed[:], at); err != nil {
			return list, nil, r.damagedAt(at, err.Error())
		}
		n := int64(binary.LittleEndian.Uint32(fixed[4:]))
		if binary.LittleEndian.Uint32(fixed[:]) != skipMagic || n > headFixed+4*maxMarks+4 {
			return list, nil, r.damagedAt(at, "no frame begins here")
		}
		if at+8+n > r.size {
			return list, r.tornAt(at), nil
		}
		payload := make([]byte, n)
		if _, err := r.f.ReadAt(payload, at+8); err != nil {
			return list, nil, r.damagedAt(at, err.Error())
		}
		kind, m, err := parseHeader(payload)
		switch {
		case err != nil:
			return list, nil, err
		case kind == kindEnd:
			ended = true
			at += 8 + n
		case kind != kindFrame:
			return list, nil, r.damagedAt(at, "a frame's header has another checksum")
		case at+8+n+int64(m.packed) > r.size:
			return list, r.tornAt(at), nil
		default:
			list = append(list, frameAt{m, at + 8 + n})
			at += 8 + n + int64(m.packed)
		}
	}
	return list, nil, nil
}

func (r *reader) tornAt(at int64) *Torn {
	return &Torn{File: filepath.Base(r.name), At: at, Bytes: r.size - at}
}

// readFrame unpacks a frame. The bytes are valid until the next call.
func (r *reader) readFrame(f *frameAt) ([]byte, error) {
	if cap(r.packed) < int(f.packed) {
		r.packed = make([]byte, f.packed)
	}
	r.packed = r.packed[:f.packed]
	if _, err := r.f.ReadAt(r.packed, f.at); err != nil && !errors.Is(err, io.EOF) {
		return nil, r.damagedAt(f.at, err.Error())
	}
	if crc32.Checksum(r.packed, castagnoliTable()) != f.sum {
		return nil, r.damagedAt(f.at, "a frame has another checksum")
	}
	plain, err := r.unpack.DecodeAll(r.packed, r.plain[:0])
	if err != nil || len(plain) != int(f.plain) {
		return nil, r.damagedAt(f.at, "a frame cannot be unpacked")
	}
	r.plain = plain
	return plain, nil
}

// eachLine splits a frame into lines.
func eachLine(plain []byte, f func(line []byte) error) error {
	for len(plain) > 0 {
		i := bytes.IndexByte(plain, '\n')
		if i < 0 {
			i = len(plain) - 1
		}
		if err := f(plain[:i+1]); err != nil {
			return err
		}
		plain = plain[i+1:]
	}
	return nil
}

// Scan reads a log, or one of its files, from its oldest line to its newest, and calls f with each decision and each
// end; the records has the records that a decision refers to. It returns the torn ends that it skipped. After damage
// in one file it reads the others, and returns the error at the end.
func Scan(path string, f func(l *decision.Line, records *decision.RecordCache) error) ([]Torn, error) {
	names, err := Files(path)
	if err != nil {
		return nil, err
	}
	var torn []Torn
	var damage error
	for _, name := range names {
		t, err := scanFile(name, f)
		if t != nil {
			torn = append(torn, *t)
		}
		if fault.CodeOf(err) == CodeLogDamaged {
			damage = errors.Join(damage, err)
		} else if err != nil {
			return torn, err
		}
	}
	return torn, damage
}

func scanFile(name string, f func(*decision.Line, *decision.RecordCache) error) (*Torn, error) {
	r, err := openFile(name)
	if err != nil {
		return nil, err
	}
	defer r.close()
	frames, torn, damage := r.readFrames()
	records := decision.NewRecordCache()
	for i := range frames {
		plain, err := r.readFrame(&frames[i])
		if err != nil {
			return r.tornBody(&frames[i], err)
		}
		err = eachLine(plain, func(raw []byte) error {
			var l decision.Line
			if err := json.Unmarshal(raw, &l); err != nil {
				return r.damagedAt(frames[i].at, "a line is no JSON: "+err.Error())
			}
			if !records.Read(&l) {
				return r.damagedAt(frames[i].at, "it tells a change of a record that it has not")
			}
			if l.Decision == nil && l.End == nil {
				return nil
			}
			return f(&l, records)
		})
		if err != nil {
			return nil, err
		}
	}
	return torn, damage
}

// tornBody distinguishes a torn end from damage: after a power failure, the last frame of a file may have its length
// but not its bytes.
func (r *reader) tornBody(f *frameAt, err error) (*Torn, error) {
	if f.at+int64(f.packed) == r.size {
		return r.tornAt(f.at), nil
	}
	return nil, err
}
