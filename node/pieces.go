package node

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/member"
	"github.com/soukhq/souk/runtime/reaper"
	"github.com/soukhq/souk/store/journal"
)

// A process's state consists of several files. If one went missing, souk would make it again, empty, and forget what it
// had promised: so the file "pieces" lists the files that were made, and souk does not open while one is missing. An
// operator gives up a lost file explicitly (GiveUp), once.

const (
	piecesFile = "pieces"
	piecesHead = "# What souk keeps in this directory and must find here when it starts; written by souk.\n"
	workerID   = "id" // in a worker's directory: its id under souk dev
)

// The kinds of line: a file that was made, and one that was given up and may be made again.
const (
	pieceMade = "made"
	pieceLost = "lost"
)

// pieces are the lines of one directory's file. Names are relative to the directory.
type pieces struct {
	dir string
	of  map[string]string // name to kind of line
}

// readPieces reads the file; if it is missing it returns no pieces: the file was not written yet.
func readPieces(dir string) (*pieces, error) {
	p := &pieces{dir, map[string]string{}}
	path := filepath.Join(dir, piecesFile)
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return p, nil
	}
	if err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, codePieces, "the list of files %s cannot be read", path)
	}
	text, sum, ok := bytes.Cut(raw, []byte("sum "))
	if !ok || strings.TrimSpace(string(sum)) != checksum(text) {
		return nil, fault.New(fault.Internal, codePieces,
			"the list of files %s is damaged: see that nothing else in %s is missing, then remove it, and souk makes "+
				"it anew", path, dir)
	}
	for line := range strings.Lines(string(text)) {
		if kind, name, ok := strings.Cut(strings.TrimSpace(line), " "); ok && kind != "#" {
			p.of[name] = kind
		}
	}
	return p, nil
}

func checksum(text []byte) string { return fmt.Sprintf("%08x", crc32.ChecksumIEEE(text)) }

// writePieces replaces the file, durably.
func (p *pieces) writePieces() error {
	var b bytes.Buffer
	b.WriteString(piecesHead)
	for _, name := range slices.Sorted(maps.Keys(p.of)) {
		fmt.Fprintf(&b, "%s %s\n", p.of[name], name)
	}
	fmt.Fprintf(&b, "sum %s\n", checksum(b.Bytes()))
	path := filepath.Join(p.dir, piecesFile)
	if err := journal.WriteWhole(path, b.Bytes(), 0o600); err != nil {
		return fault.Wrap(err, fault.Unavailable, codePieces, "the list of files %s cannot be written", path)
	}
	return nil
}

// CheckPieces refuses a directory in which a file is missing that was there when souk ran last. The caller holds the
// directory's lock and has made nothing in it yet.
func CheckPieces(dir string) error {
	p, err := readPieces(dir)
	if err != nil {
		return err
	}
	var missing []string
	for name, kind := range p.of {
		if _, err := os.Lstat(filepath.Join(dir, name)); kind == pieceMade && errors.Is(err, fs.ErrNotExist) {
			missing = append(missing, filepath.Join(dir, name))
		}
	}
	if len(missing) == 0 {
		return nil
	}
	slices.Sort(missing)
	return fault.New(fault.Internal, codePieceMissing,
		"%s existed when souk ran last and is missing now, so nothing is started: put it back, or restore a backup "+
			"of all of %s; or, if it is lost for good, give up what it held: souk agent without %s",
		strings.Join(missing, ", "), dir, strings.Join(missing, " "))
}

// notePieces records the existing files, once all are open.
func (n *Node) notePieces() error {
	p, err := readPieces(n.o.Dir)
	if err != nil {
		return err
	}
	before := maps.Clone(p.of)
	for _, name := range n.pieceNames() {
		if _, err := os.Lstat(filepath.Join(p.dir, name)); err == nil {
			p.of[name] = pieceMade
		} else {
			delete(p.of, name)
		}
	}
	if maps.Equal(before, p.of) {
		return nil
	}
	return p.writePieces()
}

// pieceNames returns the files that this process may keep in its directory.
func (n *Node) pieceNames() []string {
	names := []string{catalogFile, secretsFile, jobsFile, filepath.Join(jobsDir, "given")}
	for _, w := range n.o.Workers {
		dir, err := filepath.Rel(n.o.Dir, w.Dir)
		if err != nil || !filepath.IsLocal(dir) {
			continue
		}
		names = append(names, filepath.Join(dir, workerJournal), filepath.Join(dir, workerID),
			filepath.Join(dir, workerRun, reaper.LivesFile), filepath.Join(dir, workerRun, reaper.LockFile))
	}
	if n.o.Member != nil {
		names = append(names, copiesFile)
		names = append(names, member.Pieces()...)
	}
	return names
}

// canBeginAnew reports whether an operator has given up a worker's journal, so that an empty one may be made.
func (n *Node) canBeginAnew(w Worker) (bool, error) {
	p, err := readPieces(n.o.Dir)
	if err != nil {
		return false, err
	}
	name, err := filepath.Rel(n.o.Dir, filepath.Join(w.Dir, workerJournal))
	return err == nil && p.of[name] == pieceLost, nil
}

// GiveUp records that a file of the directory is lost for good, and renames the remains of it and of its logs to the
// names it returns. The caller holds the directory's lock.
func GiveUp(dir, path string, now time.Time) (aside []string, err error) {
	name, err := filepath.Rel(dir, path)
	if err != nil || !filepath.IsLocal(name) {
		return nil, fault.New(fault.Invalid, CodePiece, "%s does not lie in %s", path, dir)
	}
	p, err := readPieces(dir)
	if err != nil {
		return nil, err
	}
	if p.of[name] == "" && filepath.Base(name) != workerJournal {
		return nil, fault.New(fault.NotFound, CodePiece,
			"%s is not one of the files that souk needs in %s; %s lists them",
			name, dir, filepath.Join(dir, piecesFile))
	}
	p.of[name] = pieceLost
	if err := p.writePieces(); err != nil {
		return nil, err
	}
	for _, old := range []string{path, path + ".log-a", path + ".log-b", path + ".mark"} {
		to := old + ".lost-" + now.UTC().Format("20060102T150405")
		switch err := os.Rename(old, to); {
		case err == nil:
			aside = append(aside, to)
		case !errors.Is(err, fs.ErrNotExist):
			return aside, fault.Wrap(err, fault.Unavailable, CodePiece, "%s cannot be renamed", old)
		}
	}
	return aside, nil
}
