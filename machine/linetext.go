package machine

import (
	"encoding/json"
	"strconv"
	"strings"
)

// AppendJSON appends the line as json.Marshal writes it, and does not search through its type for that.
func (l *Line) AppendJSON(b []byte) []byte {
	b = AppendText(append(b, `{"id":`...), l.ID)
	b = AppendText(append(b, `,"name":`...), l.Name)
	b = AppendText(append(b, `,"app":`...), l.App)
	b = AppendText(append(b, `,"state":`...), string(l.State))
	if l.Worker != "" {
		b = AppendText(append(b, `,"worker":`...), string(l.Worker))
	}
	b = AppendText(append(b, `,"region":`...), l.Region)
	b = AppendText(append(b, `,"host_status":`...), l.HostStatus)
	b = AppendText(append(b, `,"created_at":`...), l.CreatedAt)
	if l.CPUKind != "" {
		b = AppendText(append(b, `,"cpu_kind":`...), l.CPUKind)
	}
	if l.CPUs != 0 {
		b = strconv.AppendInt(append(b, `,"cpus":`...), int64(l.CPUs), 10)
	}
	if l.MemoryMB != 0 {
		b = strconv.AppendInt(append(b, `,"memory_mb":`...), int64(l.MemoryMB), 10)
	}
	if l.Command != "" {
		b = AppendText(append(b, `,"command":`...), l.Command)
	}
	return append(b, '}')
}

// AppendText appends s as a JSON text. What needs an escape, or may need one, is left to encoding/json.
func AppendText(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			text, err := json.Marshal(s)
			if err != nil {
				panic("machine: a text does not encode: " + err.Error()) // cannot happen
			}
			return append(b, text...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}

// ParseLines reads the JSON list of lines that text begins with, and returns what comes after it. It reads what
// AppendJSON writes, with any values and in any order; what else is right in JSON (a space, a field it does not know)
// it leaves to encoding/json and returns false. The lines share the memory of text.
func ParseLines(text string) (lines []Line, rest string, ok bool) {
	p := lineParser{text: text}
	if !p.take('[') {
		return nil, "", false
	}
	if p.take(']') {
		return []Line{}, p.text[p.at:], true
	}
	lines = make([]Line, 0, strings.Count(text, "},{")+1)
	for {
		lines = append(lines, Line{})
		if !p.line(&lines[len(lines)-1]) {
			return nil, "", false
		}
		if p.take(']') {
			return lines, p.text[p.at:], true
		}
		if !p.take(',') {
			return nil, "", false
		}
	}
}

// lineParser reads lines; its methods report whether there was what they read.
type lineParser struct {
	text string
	at   int
}

func (p *lineParser) take(c byte) bool {
	if p.at < len(p.text) && p.text[p.at] == c {
		p.at++
		return true
	}
	return false
}

func (p *lineParser) line(l *Line) bool {
	if !p.take('{') {
		return false
	}
	for {
		key, ok := p.string()
		if !ok || !p.take(':') || !p.field(l, key) {
			return false
		}
		if p.take('}') {
			return true
		}
		if !p.take(',') {
			return false
		}
	}
}

func (p *lineParser) field(l *Line, key string) bool {
	var to *string
	switch key {
	case "id":
		to = &l.ID
	case "name":
		to = &l.Name
	case "app":
		to = &l.App
	case "state":
		to = (*string)(&l.State)
	case "worker":
		to = (*string)(&l.Worker)
	case "region":
		to = &l.Region
	case "host_status":
		to = &l.HostStatus
	case "created_at":
		to = &l.CreatedAt
	case "cpu_kind":
		to = &l.CPUKind
	case "command":
		to = &l.Command
	case "cpus":
		return p.count(&l.CPUs)
	case "memory_mb":
		return p.count(&l.MemoryMB)
	default:
		return false
	}
	s, ok := p.string()
	*to = s
	return ok
}

// string reads a text. One with an escape or beyond ASCII is left to encoding/json.
func (p *lineParser) string() (string, bool) {
	if !p.take('"') {
		return "", false
	}
	plain := true
	for i := p.at; i < len(p.text); i++ {
		switch c := p.text[i]; {
		case c == '"' && plain:
			s := p.text[p.at:i]
			p.at = i + 1
			return s, true
		case c == '"':
			var s string
			err := json.Unmarshal([]byte(p.text[p.at-1:i+1]), &s)
			p.at = i + 1
			return s, err == nil
		case c == '\\':
			plain = false
			i++
		case c < ' ' || c > '~':
			plain = false
		}
	}
	return "", false
}

// count reads a whole number that is not negative.
func (p *lineParser) count(to *int) bool {
	from := p.at
	for p.at < len(p.text) && p.text[p.at] >= '0' && p.text[p.at] <= '9' {
		p.at++
	}
	digits := p.text[from:p.at]
	if len(digits) > 1 && digits[0] == '0' {
		return false
	}
	n, err := strconv.Atoi(digits)
	*to = n
	return err == nil
}
