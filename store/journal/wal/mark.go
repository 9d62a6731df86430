package wal

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io/fs"
	"os"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/store/journal"
)

// A log alone cannot tell frames that were never written from frames at its end that were lost: both are zeros. So a
// second file says which frame is the newest on disk. It is written behind each frame and not waited for: after kill -9
// it is exact, after a power loss it is at most older than the truth. What it names must be there.
//
//	mark: magic, generation u64, number u64, CRC32C u32 over all of these
const (
	markMagic = "soukmrk1"
	markSize  = 28
)

// mark names a frame.
type mark struct{ generation, number uint64 }

func (j *Journal) markPath() string { return j.base + ".mark" }

// readMark returns the zero mark where there is none that is whole: it is a witness, and none accuses nobody.
func readMark(path string) (m mark) {
	raw, err := os.ReadFile(path)
	if err != nil || len(raw) < markSize || string(raw[:8]) != markMagic ||
		crc32.Checksum(raw[:24], castagnoli) != binary.LittleEndian.Uint32(raw[24:]) {
		return m
	}
	return mark{binary.LittleEndian.Uint64(raw[8:]), binary.LittleEndian.Uint64(raw[16:])}
}

// openMark opens the file for writing. What it said of logs that are in the journal by now does not matter.
func (j *Journal) openMark() error {
	f, err := os.OpenFile(j.markPath(), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return openError(err, j.markPath())
	}
	j.marks = f
	return nil
}

// noteMark writes which frame is the newest. Whoever writes the log calls it.
func (j *Journal) noteMark(m mark) error {
	b := append(j.markBuf[:0], markMagic...)
	b = binary.LittleEndian.AppendUint64(b, m.generation)
	b = binary.LittleEndian.AppendUint64(b, m.number)
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
	j.markBuf = b
	_, err := j.marks.WriteAt(b, 0)
	return err
}

// endMark lets go of the file, and removes it when the journal has all.
func (j *Journal) endMark(whole bool) error {
	err := j.marks.Close()
	if !whole {
		return err
	}
	if gone := os.Remove(j.markPath()); gone != nil && !errors.Is(gone, fs.ErrNotExist) {
		err = errors.Join(err, fault.Wrap(gone, fault.Internal, journal.CodeJournalOpen,
			"the journal's mark %s cannot be removed", j.markPath()))
	}
	return err
}
