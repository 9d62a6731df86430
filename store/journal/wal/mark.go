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

// A log alone cannot distinguish frames that were never written from lost frames at its end: both are zeros. So a
// second file names the newest frame on disk. It is written after each frame, without waiting: after kill -9 it is
// exact, after a power loss it may be out of date, but never ahead. The frame that it names must exist.
//
//	mark: magic, generation u64, number u64, CRC32C u32 over all of these
const (
	markMagic = "soukmrk1"
	markSize  = 28
)

// mark identifies a frame.
type mark struct{ generation, number uint64 }

func (j *Journal) markPath() string { return j.base + ".mark" }

// readMark reads the mark. A missing or torn mark proves nothing, so it reads as the zero mark.
func readMark(path string) (m mark) {
	raw, err := os.ReadFile(path)
	if err != nil || len(raw) < markSize || string(raw[:8]) != markMagic ||
		crc32.Checksum(raw[:24], castagnoli) != binary.LittleEndian.Uint32(raw[24:]) {
		return m
	}
	return mark{binary.LittleEndian.Uint64(raw[8:]), binary.LittleEndian.Uint64(raw[16:])}
}

// openMark opens the file for writing. It may overwrite the old mark, which refers to logs that the journal now has.
func (j *Journal) openMark() error {
	f, err := os.OpenFile(j.markPath(), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return openError(err, j.markPath())
	}
	j.marks = f
	return nil
}

// noteMark writes which frame is the newest. The writer of the log calls it.
func (j *Journal) noteMark(m mark) error {
	b := append(j.markBuf[:0], markMagic...)
	b = binary.LittleEndian.AppendUint64(b, m.generation)
	b = binary.LittleEndian.AppendUint64(b, m.number)
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
	j.markBuf = b
	_, err := j.marks.WriteAt(b, 0)
	return err
}

// endMark closes the file, and removes it if the journal has everything.
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
