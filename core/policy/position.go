package policy

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"

	"github.com/soukhq/souk/fault"
)

// Problem is one thing that is wrong with a file, and where. Lines and columns count from 1; a column counts
// characters.
type Problem struct {
	Line   int    `json:"line"`
	Column int    `json:"column"`
	Text   string `json:"text"`
}

// String prints the problem like a compiler.
func (p Problem) String() string { return fmt.Sprintf("%d:%d: %s", p.Line, p.Column, p.Text) }

// mostProblems bounds the problems reported of one file.
const mostProblems = 20

// CodeInvalid says that the policy has mistakes. Its detail is a []Problem.
const CodeInvalid fault.Code = "policy_invalid"

// Problems returns the problems that Load found, in the order of the file; nil if err is not from Load.
func Problems(err error) []Problem {
	ps, _ := fault.Detail[[]Problem](err)
	return ps
}

func invalidPolicy(ps []Problem) error {
	texts := make([]string, len(ps))
	for i, p := range ps {
		texts[i] = p.String()
	}
	return &fault.Error{Kind: fault.Invalid, Code: CodeInvalid, Text: "the policy cannot be used: " +
		strings.Join(texts, "; "), Detail: ps}
}

// place is the position of a key and its value in a file, in bytes.
type place struct {
	key   int
	value int
	raw   []byte // the value as written, with its quotes
}

// keyPlaces finds the keys of the file by their paths: "name", "filter[0].expr". A key in an inline table has the
// place of the key that the table belongs to.
func keyPlaces(text []byte) map[string]place {
	out, count, table := map[string]place{}, map[string]int{}, ""
	p := unstable.Parser{}
	p.Reset(text)
	for p.NextExpression() {
		e := p.Expression()
		name, at := keyText(e)
		switch e.Kind {
		case unstable.ArrayTable:
			table = fmt.Sprintf("%s[%d].", name, count[name])
			out[strings.TrimSuffix(table, ".")] = place{key: at, value: at}
			count[name]++
		case unstable.Table:
			table = name + "."
		case unstable.KeyValue:
			v := e.Value()
			pl := place{key: at, value: at}
			if v.Kind == unstable.String {
				pl.value, pl.raw = int(v.Raw.Offset), p.Raw(v.Raw)
			} else if v.Raw.Length > 0 {
				pl.value = int(v.Raw.Offset)
			}
			out[table+name] = pl
		}
	}
	return out
}

func keyText(e *unstable.Node) (name string, at int) {
	if e.Kind != unstable.KeyValue && e.Kind != unstable.Table && e.Kind != unstable.ArrayTable {
		return "", 0
	}
	var parts []string
	for it := e.Key(); it.Next(); {
		if len(parts) == 0 {
			at = int(it.Node().Raw.Offset)
		}
		parts = append(parts, string(it.Node().Data))
	}
	return strings.Join(parts, "."), at
}

// lineColumn converts a byte offset in the file to a line and a column.
func lineColumn(text []byte, offset int) (line, column int) {
	before := string(text[:min(offset, len(text))])
	line = 1 + strings.Count(before, "\n")
	before = before[strings.LastIndexByte(before, '\n')+1:]
	return line, 1 + utf8.RuneCountInString(before)
}

// byteOffset returns the offset in the file of a line (from 1) and a column (from 0, in characters) in a string's
// content.
func (pl place) byteOffset(content string, line, column int) int {
	at := 0
	for ; line > 1; line-- {
		at += strings.IndexByte(content[at:], '\n') + 1
	}
	for ; column > 0 && at < len(content); column-- {
		_, n := utf8.DecodeRuneInString(content[at:])
		at += n
	}
	return pl.value + rawOffset(string(pl.raw), at)
}

// rawOffset returns where byte n of a TOML string's content is in the string as written.
func rawOffset(raw string, n int) int {
	quote := 1
	literal := strings.HasPrefix(raw, "'")
	if strings.HasPrefix(raw, `"""`) || strings.HasPrefix(raw, "'''") {
		quote = 3
	}
	i := min(quote, len(raw))
	if quote == 3 { // a newline right after the quotes is not content
		i += len(raw[i:]) - len(strings.TrimPrefix(strings.TrimPrefix(raw[i:], "\r"), "\n"))
	}
	if literal {
		return i + n
	}
	for content := 0; i < len(raw); {
		written, means := escapeLength(raw[i:])
		if means > 0 && content+means > n {
			return i
		}
		content += means
		i += written
	}
	return i
}

// escapeLength returns how many bytes the first character of s has as written, and how many it stands for.
func escapeLength(s string) (written, means int) {
	if s[0] != '\\' || len(s) == 1 {
		return 1, 1
	}
	digits := map[byte]int{'x': 2, 'u': 4, 'U': 8}[s[1]]
	if digits > 0 && len(s) >= 2+digits {
		var r rune
		if _, err := fmt.Sscanf(s[2:2+digits], "%x", &r); err == nil {
			return 2 + digits, utf8.RuneLen(r)
		}
	}
	if rest := strings.TrimLeft(s[1:], " \t\r\n"); len(rest) < len(s)-1 { // a line that is continued
		return len(s) - len(rest), 0
	}
	return 2, 1
}

// tomlProblems converts go-toml's errors to problems.
func tomlProblems(text []byte, err error) []Problem {
	var out []Problem
	add := func(e *toml.DecodeError, what string) {
		row, column := e.Position()
		lines := strings.Split(string(text), "\n")
		if row >= 1 && row <= len(lines) && column >= 1 && column-1 <= len(lines[row-1]) {
			column = 1 + utf8.RuneCountInString(lines[row-1][:column-1])
		}
		if len(out) < mostProblems {
			out = append(out, Problem{row, column, what})
		}
	}
	if e, ok := errors.AsType[*toml.StrictMissingError](err); ok {
		for i := range e.Errors {
			key := strings.Join(e.Errors[i].Key(), ".")
			add(&e.Errors[i], fmt.Sprintf("there is no key %q in a policy; %s", clipText(key), knownKeys(key)))
		}
		return out
	}
	if e, ok := errors.AsType[*toml.DecodeError](err); ok {
		what := strings.TrimPrefix(e.Error(), "toml: ")
		wrongType := regexp.MustCompile(`^cannot decode TOML (\w+) into struct field \w+\.\w+\.(\w+) of type (\S+)$`)
		if m := wrongType.FindStringSubmatch(what); m != nil {
			what = fmt.Sprintf("%s is written as %s where %s is wanted", strings.ToLower(m[2]), withArticle(m[1]),
				wantedKind(m[3]))
		}
		add(e, what)
		return out
	}
	return []Problem{{1, 1, "it cannot be read: " + clipText(err.Error())}}
}

func withArticle(noun string) string {
	if strings.ContainsAny(noun[:1], "aeiou") {
		return "an " + noun
	}
	return "a " + noun
}

func wantedKind(goType string) string {
	switch {
	case goType == "string":
		return "a text"
	case strings.HasPrefix(goType, "int"):
		return "a whole number"
	case strings.HasPrefix(goType, "[]"):
		return "a table"
	}
	return "a number"
}

func knownKeys(key string) string {
	switch head, _, nested := strings.Cut(key, "."); {
	case nested && head == "filter":
		return "a filter has name and expr"
	case nested && head == "score":
		return "a score has name, weight, and expr or builtin"
	case nested && head == "typical":
		return "a typical request has share, cpu, memory and gpu"
	}
	return "there are name, description, sample, best, strategy, [[filter]], [[score]] and [[typical]]"
}

func clipText(s string) string {
	if len(s) > 120 {
		return strings.ToValidUTF8(s[:120], "") + "..."
	}
	return s
}
