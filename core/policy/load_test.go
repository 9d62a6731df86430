package policy_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/core/policy"
	"github.com/soukhq/souk/fault"
)

var update = flag.Bool("update", false, "write the golden files anew")

// The file of refusals is a sequence of "== name" and a policy file; behind "--" stand the problems that Load finds.
func refusals(t *testing.T) (file string, names []string, texts map[string]string) {
	file = filepath.Join("testdata", "refused.txt")
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	texts = map[string]string{}
	for _, part := range strings.Split(string(raw), "\n== ")[1:] {
		name, text, _ := strings.Cut(part, "\n")
		text, _, _ = strings.Cut(text, "\n--\n")
		names, texts[name] = append(names, name), text+"\n"
	}
	return file, names, texts
}

// TestRefusedPolicyNamesLineColumnAndReason holds every kind of refusal to its line, its column and its words.
func TestRefusedPolicyNamesLineColumnAndReason(t *testing.T) {
	file, names, texts := refusals(t)
	b := strings.Builder{}
	b.WriteString("Policies that are refused, and what is said of them: line:column: what. Written by go test " +
		"./core/policy -update.\n")
	for _, name := range names {
		_, err := policy.Load([]byte(texts[name]))
		if err == nil {
			t.Errorf("%s is not refused", name)
		}
		if !fault.Is(err, fault.Invalid) || fault.CodeOf(err) != policy.CodeInvalid {
			t.Errorf("%s: %v is not the error of a bad policy", name, err)
		}
		fmt.Fprintf(&b, "\n== %s\n%s--\n", name, texts[name])
		for _, p := range policy.Problems(err) {
			fmt.Fprintln(&b, p)
			if p.Line < 1 || p.Column < 1 || p.Text == "" {
				t.Errorf("%s: a problem without a place or words: %+v", name, p)
			}
		}
	}
	golden(t, file, b.String())
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s is out of date (-file +now); write it with -update:\n%s", file, d)
	}
}

// Each problem stands where its text is: the character at its line and column is the one named.
func TestProblemsPointAtTheirLineAndColumn(t *testing.T) {
	for name, text := range map[string]string{
		"literal": "name='x'\n[[filter]]\nname='f'\nexpr='worker.region == \"ä\" && §nobody'\n",
		"basic": "name='x'\n[[filter]]\nname='f'\nexpr = \"worker.region == \\\"\\u00e4\\\\n\\\" && " +
			"§nobody\"\n",
		"many lines":    "name='x'\n[[filter]]\nname='f'\nexpr = '''\nworker.machines > 1 &&\n  §nobody'''\n",
		"escaped lines": "name='x'\n[[filter]]\nname='f'\nexpr = \"\"\"worker.machines > 1 && \\\n   §nobody\"\"\"\n",
		"crlf": "name='x'\r\n[[filter]]\r\nname='f'\r\nexpr = '''\r\nworker.machines > 1 &&\r\n  " +
			"§nobody'''\r\n",
	} {
		at := strings.Index(text, "§")
		before := text[:at]
		line := 1 + strings.Count(before, "\n")
		column := 1 + len([]rune(before[strings.LastIndexByte(before, '\n')+1:]))
		_, err := policy.Load([]byte(strings.Replace(text, "§", "", 1)))
		ps := policy.Problems(err)
		if len(ps) != 1 || ps[0].Line != line || ps[0].Column != column || !strings.Contains(ps[0].Text, "'nobody'") {
			t.Errorf("%s: %v, want %d:%d", name, err, line, column)
		}
	}
}

// Files too large or too deep are refused before they can cost anything.
func TestHostilePolicyFilesAreRefusedCheaply(t *testing.T) {
	wrap := func(expr string) string { return "name = \"x\"\n[[filter]]\nname = \"f\"\nexpr = '" + expr + "'\n" }
	for name, text := range map[string]string{
		"1 MB":            wrap(strings.Repeat("a", 1<<20)),
		"long expression": wrap(strings.Repeat("1+", 3000) + "1 > 0"),
		"deep brackets":   wrap(strings.Repeat("(", 500) + "true" + strings.Repeat(")", 500)),
		"deep lists":      wrap(strings.Repeat("[", 500) + strings.Repeat("]", 500) + " == []"),
		"deep ternary":    wrap(strings.Repeat("true ? ", 400) + "true" + strings.Repeat(" : false", 400)),
		"deep selects":    wrap("worker" + strings.Repeat(".a", 1500) + " == 1"),
		"wide and":        wrap(strings.Repeat("true && ", 500) + "nobody"),
		"deep TOML":       "name = " + strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000),
		"deep tables":     "name = " + strings.Repeat("{a=", 15_000) + "1" + strings.Repeat("}", 15_000),
		"nested loops": wrap("worker.images.all(a, worker.images.all(b, worker.images.all(c, " +
			"worker.images.all(d, a == b || c == d))))"),
		"large regex":   wrap(`worker.region.matches("(a{1000}){1000}")`),
		"string growth": wrap(`worker.images.map(a, worker.images.map(b, a + b)).size() > 1`),
		"NUL":           wrap("true\x00"),
		"not UTF-8":     wrap("worker.region == \"\xff\""),
		"empty":         " \n",
	} {
		_, err := policy.Load([]byte(text))
		if len(policy.Problems(err)) == 0 {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil && len(err.Error()) > 20_000 {
			t.Errorf("%s: a refusal of %d bytes", name, len(err.Error()))
		}
	}
}

// Load never panics, and what it takes can be evaluated on anything.
func FuzzLoadNeverPanics(f *testing.F) {
	_, names, texts := refusals(&testing.T{})
	for _, name := range names {
		f.Add(texts[name])
	}
	for _, b := range policy.Builtins() {
		f.Add(b.Text)
	}
	f.Add("name='x'\n[[filter]]\nname='f'\nexpr='worker.attributes.zone in [\"a\"] || has(worker.attributes.a) && " +
		"request.labels.x > 2'\n")
	f.Add("name='x'\n[[score]]\nname='f'\nexpr='min(1, worker.free.named[\"x\"] / 3.5)'\n")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := policy.Load([]byte(text))
		if (s == nil) == (err == nil) {
			t.Fatalf("%v, %v", s, err)
		}
		if err != nil {
			if len(policy.Problems(err)) == 0 {
				t.Fatalf("no problem is told: %v", err)
			}
			return
		}
		p := s.Bind(policy.NewEvaluator())
		view := fleet()
		for _, c := range placement.Rank(placement.Request{App: "a", Machine: "m"}, view, p) {
			for _, term := range c.Terms {
				name, x := term.Name, term.Value
				if x != x || x > policy.MaxWeight || x < -policy.MaxWeight {
					t.Fatalf("%s of %s is %v", name, c.Worker, x)
				}
			}
		}
	})
}
