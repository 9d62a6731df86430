// Package sbatch reads the scripts that Slurm's sbatch takes, as Slurm 22.05 reads them: the #SBATCH lines before the
// first command, and the options in them.
package sbatch

import (
	"strings"

	"github.com/soukhq/souk/fault"
)

// MaxScript bounds a script, in bytes: all of it is part of a job's command.
const MaxScript = 48 << 10

// Word is a word of a #SBATCH line or of a command line.
type Word struct {
	Text string
	Line int // of the script, from 1; 0: the word is of the command line
	Col  int // in bytes, from 1
}

// Script is a script's options and what else is known of it.
type Script struct {
	Interpreter []string // of its first line: program and at most one argument, as the kernel reads it
	Words       []Word
	// Notes are remarks about lines that look as if they had an effect here, and have none.
	Notes []Note
}

// Note is a remark about a line.
type Note struct {
	Line int
	Text string
}

const directive = "#SBATCH"

// Read reads a script. Its errors are of kind Invalid, and say the line.
func Read(text string) (s Script, err error) {
	if len(text) > MaxScript {
		return s, fault.New(fault.Invalid, fault.CodeJob, "the script has %d bytes, and at most %d are sent with a "+
			"job: "+
			"put what it runs into files, and send them with --send", len(text), MaxScript)
	}
	if strings.ContainsRune(text, 0) {
		return s, fault.New(fault.Invalid, fault.CodeJob, "the script is no text: it has a zero byte")
	}
	first, _, _ := strings.Cut(text, "\n")
	line, is := strings.CutPrefix(strings.TrimSuffix(first, "\r"), "#!")
	if !is {
		return s, fault.New(fault.Invalid, fault.CodeJob,
			"the script does not say what reads it: its first line begins with #!, as #!/bin/sh")
	}
	program, argument, _ := strings.Cut(strings.TrimSpace(line), " ")
	if program == "" {
		return s, fault.New(fault.Invalid, fault.CodeJob, "line 1: there is no program after #!")
	}
	s.Interpreter = []string{program}
	if argument = strings.TrimSpace(argument); argument != "" {
		s.Interpreter = append(s.Interpreter, argument)
	}
	n, begun := 0, false // begun: a command was seen
	for line := range strings.SplitSeq(text, "\n") {
		n++
		line = strings.TrimSuffix(line, "\r")
		switch rest, is := strings.CutPrefix(line, directive); {
		case is && begun:
			s.note(n, "is behind the first command, where sbatch does not read it either")
		case is:
			words, err := splitLine(n, rest)
			if err != nil {
				return s, err
			}
			s.Words = append(s.Words, words...)
		case strings.HasPrefix(line, "#PBS") || strings.HasPrefix(line, "#BSUB"):
			if !begun {
				s.note(n, "is not read; sbatch obeys it, before #SBATCH lines")
			}
		case strings.TrimSpace(line) != "" && !strings.HasPrefix(strings.TrimSpace(line), "#"):
			begun = true
		}
	}
	return s, nil
}

func (s *Script) note(line int, text string) { s.Notes = append(s.Notes, Note{line, text}) }

// splitLine splits what follows #SBATCH into words: quotes ' and " hold spaces together, # outside of them ends the
// line, and nothing else is special.
func splitLine(line int, text string) (out []Word, err error) {
	var word strings.Builder
	quote, inWord, began := byte(0), false, 0
	end := func() {
		if inWord {
			out = append(out, Word{word.String(), line, began + len(directive) + 1})
			word.Reset()
			inWord = false
		}
	}
	for i := range len(text) {
		c := text[i]
		if !inWord && c != ' ' && c != '\t' {
			began = i
		}
		switch {
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
			word.WriteByte(c)
		case c == '\'' || c == '"':
			quote, inWord = c, true
		case c == '#':
			end()
			return out, nil
		case c == ' ' || c == '\t':
			end()
		default:
			inWord = true
			word.WriteByte(c)
		}
	}
	if quote != 0 {
		return nil, fault.New(fault.Invalid, fault.CodeJob, "line %d, column %d: a quote %c is not closed", line,
			began+len(directive)+1, quote)
	}
	end()
	return out, nil
}
