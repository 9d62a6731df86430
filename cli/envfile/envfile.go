// Package envfile reads files of variables, lines NAME=VALUE, as dotenv and Compose read a .env:
//
//	# a comment
//	NAME=value              to the end of the line, without the space around it
//	export NAME=value       the same
//	NAME=value # comment    a # begins a comment behind a space, and is the value's own anywhere else
//	NAME='as it stands'     up to the next '
//	NAME="a line\nanother"  \n, \r, \t, \", \\ and \$ mean what they usually do, any other \ is itself
//
// A quoted value may span several lines, such as a key in PEM. A $ is not expanded. The last of two lines of one name
// counts.
package envfile

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/soukhq/souk/fault"
)

// CodeEnvFile says that the file of variables cannot be read.
const CodeEnvFile fault.Code = "env_file"

// MaxFile bounds a file.
const MaxFile = 1 << 20

// Var is a variable and the line that it begins on.
type Var struct {
	Name, Value string
	Line        int
}

// Parse reads a text. An error names the file and the line, but not its content, which may be secret.
func Parse(file, text string) ([]Var, error) {
	if len(text) > MaxFile {
		return nil, fault.New(fault.Invalid, CodeEnvFile,
			"%s has more than %d bytes, which no file of variables may have", file, MaxFile)
	}
	r := reader{file: file, rest: strings.TrimPrefix(text, "\ufeff"), line: 1}
	var out []Var
	for r.rest != "" {
		v, there, err := r.next()
		if err != nil {
			return nil, err
		}
		if there {
			out = append(out, v)
		}
	}
	return out, nil
}

type reader struct {
	file string
	rest string
	line int // line number at which rest begins
}

func (r *reader) bad(line int, why string) error {
	return fault.New(fault.Invalid, CodeEnvFile, "line %d of %s cannot be read: %s", line, r.file, why)
}

// next reads a line, or several if a quoted value spans them. there is false if the line has no variable.
func (r *reader) next() (v Var, there bool, err error) {
	line, after, _ := strings.Cut(r.rest, "\n")
	text := strings.TrimSpace(line)
	v.Line = r.line
	if text == "" || text[0] == '#' {
		r.rest, r.line = after, r.line+1
		return v, false, nil
	}
	name, value, has := strings.Cut(line, "=")
	name = strings.TrimSpace(name)
	if rest, exported := strings.CutPrefix(name, "export"); exported && rest != strings.TrimSpace(rest) {
		name = strings.TrimSpace(rest)
	}
	switch {
	case !has:
		return v, false, r.bad(v.Line, "it is written NAME=VALUE, and there is no =")
	case name == "":
		return v, false, r.bad(v.Line, "it is written NAME=VALUE, and there is no name before the =")
	case strings.ContainsFunc(name, notOfName):
		return v, false, r.bad(v.Line, "a name has no space, quote or # in it")
	}
	v.Name = name
	value = strings.TrimLeft(value, " \t")
	if value != "" && (value[0] == '\'' || value[0] == '"') {
		quoted := r.rest[len(line)-len(value):]
		if v.Value, err = r.quoted(quoted); err != nil {
			return v, false, err
		}
	} else {
		v.Value = plain(value)
		r.rest, r.line = after, r.line+1
	}
	if !utf8.ValidString(v.Value) || strings.ContainsRune(v.Value, 0) {
		return v, false, r.bad(v.Line, "the value is not text in UTF-8, or has a zero byte: encode it, with base64 "+
			"for example")
	}
	return v, true, nil
}

func notOfName(c rune) bool {
	return unicode.IsSpace(c) || unicode.IsControl(c) || c == utf8.RuneError || strings.ContainsRune("\"'`#$\\", c)
}

// plain returns a value without quotes: to the end of the line, or a comment.
func plain(text string) string {
	for i := range len(text) {
		if text[i] == '#' && (i == 0 || text[i-1] == ' ' || text[i-1] == '\t') {
			text = text[:i]
			break
		}
	}
	return strings.TrimSpace(text)
}

// quoted reads a value that begins with a quote, and checks the rest of its last line.
func (r *reader) quoted(text string) (string, error) {
	quote, began := text[0], r.line
	var b strings.Builder
	for i := 1; i < len(text); i++ {
		c := text[i]
		switch {
		case c == quote:
			line, after, _ := strings.Cut(text[i+1:], "\n")
			if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
				return "", r.bad(r.line, "something stands behind the quote that ends its value")
			}
			r.rest, r.line = after, r.line+1
			return b.String(), nil
		case c == '\\' && quote == '"' && i+1 < len(text):
			at := strings.IndexByte(`nrt"\$`, text[i+1])
			if at < 0 {
				b.WriteByte(c)
				continue
			}
			b.WriteByte("\n\r\t\"\\$"[at])
			i++
		case c == '\r' && strings.HasPrefix(text[i:], "\r\n"): // a line end of the file
		default:
			if c == '\n' {
				r.line++
			}
			b.WriteByte(c)
		}
	}
	return "", r.bad(began, "a quote begins there that nothing ends")
}
