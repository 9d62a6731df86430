package machine

import (
	"bytes"
	"encoding/json"
	"strconv"
)

// AppendJSON appends the line as json.Marshal writes it, but without reflection.
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
	if l.CPUMilli != 0 {
		b = strconv.AppendInt(append(b, `,"cpu_milli":`...), int64(l.CPUMilli), 10)
	}
	if l.MemoryMB != 0 {
		b = strconv.AppendInt(append(b, `,"memory_mb":`...), int64(l.MemoryMB), 10)
	}
	if l.Command != "" {
		b = AppendText(append(b, `,"command":`...), l.Command)
	}
	if l.ExitCode != nil {
		b = strconv.AppendInt(append(b, `,"exit_code":`...), int64(*l.ExitCode), 10)
	}
	if l.OOM {
		b = append(b, `,"oom_killed":true`...)
	}
	if l.Returns {
		b = append(b, `,"returns":true`...)
	}
	if l.SilentMS != 0 {
		b = strconv.AppendInt(append(b, `,"silent_ms":`...), l.SilentMS, 10)
	}
	if l.Failing {
		b = append(b, `,"failing":true`...)
	}
	if l.Restarts != 0 {
		b = strconv.AppendInt(append(b, `,"restarts":`...), int64(l.Restarts), 10)
	}
	if l.Tries != 0 {
		b = strconv.AppendInt(append(b, `,"tries":`...), int64(l.Tries), 10)
	}
	if l.NextTry != "" {
		b = AppendText(append(b, `,"next_try":`...), l.NextTry)
	}
	if l.Replica != "" {
		b = AppendText(append(b, `,"replica":`...), l.Replica)
	}
	if l.Gang != "" {
		b = AppendText(append(b, `,"gang":`...), l.Gang)
	}
	if l.Rank != 0 {
		b = strconv.AppendInt(append(b, `,"rank":`...), int64(l.Rank), 10)
	}
	return append(b, '}')
}

// AppendText appends s as a JSON string. It leaves a string that may need escapes to encoding/json.
func AppendText(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			text, err := json.Marshal(s)
			if err != nil {
				panic("machine: a text does not encode: " + err.Error()) // cannot fail
			}
			return append(b, text...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}

// ParseLines parses the JSON list of lines at the start of text, and returns the rest of text. It reads the form that
// AppendJSON writes, with any values in any order; for other valid JSON (a space, an unknown field) it returns false,
// and the caller uses encoding/json. It does not keep text.
func ParseLines(text []byte) (lines []Line, rest []byte, ok bool) {
	p := lineParser{text: text}
	if !p.takeByte('[') {
		return nil, nil, false
	}
	if p.takeByte(']') {
		return []Line{}, p.text[p.at:], true
	}
	lines = make([]Line, 0, min(bytes.Count(text, []byte("},{")), len(text)/shortLine)+1)
	before := &Line{}
	for {
		lines = append(lines, Line{})
		l := &lines[len(lines)-1]
		if !p.parseLine(l, before) {
			return nil, nil, false
		}
		if p.takeByte(']') {
			return lines, p.text[p.at:], true
		}
		if !p.takeByte(',') {
			return nil, nil, false
		}
		before = l
	}
}

// shortLine is less than the bytes of any machine's line: it bounds the number of lines that a text can hold.
const shortLine = 100

// lineParser parses lines; its methods report whether they found what they parse.
type lineParser struct {
	text []byte
	at   int
}

func (p *lineParser) takeByte(c byte) bool {
	if p.at < len(p.text) && p.text[p.at] == c {
		p.at++
		return true
	}
	return false
}

// parseLine parses a line. Values equal to those of the line before share its memory: most texts do.
func (p *lineParser) parseLine(l, before *Line) bool {
	if !p.takeByte('{') {
		return false
	}
	for {
		key, ok := p.parseString()
		if !ok || !p.takeByte(':') || !p.parseField(l, before, key) {
			return false
		}
		if p.takeByte('}') {
			return true
		}
		if !p.takeByte(',') {
			return false
		}
	}
}

func (p *lineParser) parseField(l, before *Line, key []byte) bool {
	var to, old *string
	switch string(key) {
	case "id":
		to, old = &l.ID, &before.ID
	case "name":
		to, old = &l.Name, &before.Name
	case "app":
		to, old = &l.App, &before.App
	case "state":
		to, old = (*string)(&l.State), (*string)(&before.State)
	case "worker":
		to, old = (*string)(&l.Worker), (*string)(&before.Worker)
	case "region":
		to, old = &l.Region, &before.Region
	case "host_status":
		to, old = &l.HostStatus, &before.HostStatus
	case "created_at":
		to, old = &l.CreatedAt, &before.CreatedAt
	case "cpu_kind":
		to, old = &l.CPUKind, &before.CPUKind
	case "command":
		to, old = &l.Command, &before.Command
	case "next_try":
		to, old = &l.NextTry, &before.NextTry
	case "replica":
		to, old = &l.Replica, &before.Replica
	case "gang":
		to, old = &l.Gang, &before.Gang
	case "rank":
		return p.parseCount(&l.Rank)
	case "restarts":
		return p.parseCount(&l.Restarts)
	case "tries":
		return p.parseCount(&l.Tries)
	case "cpus":
		return p.parseCount(&l.CPUs)
	case "cpu_milli":
		return p.parseCount(&l.CPUMilli)
	case "memory_mb":
		return p.parseCount(&l.MemoryMB)
	case "exit_code":
		l.ExitCode = new(int)
		return p.parseCount(l.ExitCode)
	case "oom_killed":
		return p.parseTrue(&l.OOM)
	case "returns":
		return p.parseTrue(&l.Returns)
	case "failing":
		return p.parseTrue(&l.Failing)
	case "silent_ms":
		var ms int
		ok := p.parseCount(&ms)
		l.SilentMS = int64(ms)
		return ok
	default:
		return false
	}
	s, ok := p.parseString()
	if *to = *old; string(s) != *old {
		*to = string(s)
	}
	return ok
}

// parseString parses a string. It leaves a string with an escape or beyond ASCII to encoding/json.
func (p *lineParser) parseString() ([]byte, bool) {
	if !p.takeByte('"') {
		return nil, false
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
			err := json.Unmarshal(p.text[p.at-1:i+1], &s)
			p.at = i + 1
			return []byte(s), err == nil
		case c == '\\':
			plain = false
			i++
		case c < ' ' || c > '~':
			plain = false
		}
	}
	return nil, false
}

// parseTrue parses "true"; false is left out of the text.
func (p *lineParser) parseTrue(to *bool) bool {
	*to = bytes.HasPrefix(p.text[p.at:], []byte("true"))
	p.at += len("true")
	return *to
}

// parseCount reads a whole number that is not negative.
func (p *lineParser) parseCount(to *int) bool {
	from := p.at
	for p.at < len(p.text) && p.text[p.at] >= '0' && p.text[p.at] <= '9' {
		p.at++
	}
	digits := string(p.text[from:p.at])
	if len(digits) > 1 && digits[0] == '0' {
		return false
	}
	n, err := strconv.Atoi(digits)
	*to = n
	return err == nil
}
