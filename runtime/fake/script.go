package fake

import (
	"strconv"
	"strings"
	"time"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime"
)

// program is the effect of a command, computed in advance.
type program struct {
	stdout, stderr string
	cat            bool // copies stdin
	sleep          time.Duration
	forever        bool
	code           int
	cpu            time.Duration // that its exit reports
	rss            int64         // bytes that its exit reports
}

// forever is the shortest sleep that counts as endless.
const forever = time.Hour / 4

// parse understands
//
//	true | false | echo WORD... | cat | sleep SECONDS | use CPU_SECONDS MIB
//	sh -c 'COMMAND; COMMAND...'   with the above, exit N, and echo ... >&2
//
// with or without a directory before the program's name. Any other program does not exist. Output after a sleep is
// printed at the start; only the exit waits for the sleep. use uses nothing: the exit says that it did.
func parse(argv []string) (program, error) {
	var p program
	if len(argv) == 0 || argv[0] == "" {
		return p, fault.New(fault.Invalid, runtime.CodeArgv,
			"no program is named: give a command to run, like /bin/sh -c '...'")
	}
	if base(argv[0]) == "sh" && len(argv) >= 3 && argv[1] == "-c" {
		for part := range strings.SplitSeq(argv[2], ";") {
			words := strings.Fields(part)
			if len(words) == 0 {
				continue
			}
			for i := range words {
				words[i] = strings.Trim(words[i], `'"`)
			}
			if words[0] == "exec" {
				words = words[1:]
			}
			if words[0] == "exit" {
				n, err := strconv.Atoi(strings.Join(words[1:], ""))
				if err != nil || n < 0 || n > 255 {
					return p, unknown(part)
				}
				p.code = n
				return p, nil
			}
			if err := p.command(words); err != nil {
				return p, err
			}
		}
		return p, nil
	}
	return p, p.command(argv)
}

func base(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }

func unknown(name string) error {
	return fault.New(fault.Precondition, runtime.CodeNoProgram,
		"the program %q does not exist on this worker (it is a fake, and knows true, false, echo, cat, sleep, use "+
			"and sh -c)", name)
}

func (p *program) command(words []string) error {
	p.code = 0
	switch base(words[0]) {
	case "true":
	case "false":
		p.code = 1
	case "cat":
		p.cat = true
	case "echo":
		if n := len(words) - 1; words[n] == ">&2" {
			p.stderr += strings.Join(words[1:n], " ") + "\n"
		} else {
			p.stdout += strings.Join(words[1:], " ") + "\n"
		}
	case "sleep":
		if len(words) != 2 {
			return unknown(strings.Join(words, " "))
		}
		s, err := strconv.ParseFloat(words[1], 64)
		if err != nil {
			return unknown(strings.Join(words, " "))
		}
		p.sleep += time.Duration(s * float64(time.Second))
		p.forever = p.forever || p.sleep >= forever
	case "use":
		return p.use(words)
	default:
		return unknown(words[0])
	}
	return nil
}

func (p *program) use(words []string) error {
	if len(words) != 3 {
		return unknown(strings.Join(words, " "))
	}
	s, err := strconv.ParseFloat(words[1], 64)
	mib, errMiB := strconv.ParseInt(words[2], 10, 32)
	if err != nil || errMiB != nil {
		return unknown(strings.Join(words, " "))
	}
	p.cpu += time.Duration(s * float64(time.Second))
	p.rss = max(p.rss, mib<<20)
	return nil
}
