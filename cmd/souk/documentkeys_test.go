package main

import (
	"encoding/json"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/soukhq/souk/cli"
)

var (
	aDottedKey = regexp.MustCompile("`([a-z_]+(?:\\[\\])?(?:\\.[a-z_]+(?:\\[\\])?)+)(?: = [^`\n]*)?`")
	aSnakeWord = regexp.MustCompile("`([a-z0-9]+(?:_[a-z0-9]+)+)`")
	aTableKey  = regexp.MustCompile("(?m)^\\| `([^`]+)`")
	anExitCode = regexp.MustCompile(`(?i)\b(?:exit codes?|ends with) (\d+)`)
)

// proseOf returns what a document says outside of its transcripts.
func proseOf(t *testing.T, file string) string {
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return fenced.ReplaceAllString(string(raw), "")
}

// TestDocumentsNameRealKeys: what a document has in code and is spelled as a key is one: of a config, a release, a souk.toml
// or a policy as docs/reference lists them, of an answer of the API, or a word of the code, as codes of errors and metrics are.
func TestDocumentsNameRealKeys(t *testing.T) {
	keys, bodies := knownKeys(t), schemasOf(t)
	words := wordsOfTheCode(t)
	ofOthers := []string{"auto_stop_machines"} // Fly's
	files := regexp.MustCompile(`\.(go|json|pem|crt|key|sock|toml|conf)$`)
	elsewhere := []string{"pids.max", "cgroup.kill", // the kernel's
		"rollout.failed[].output"} // in what souk deploy --json prints
	found := 0
	for _, file := range append(documents(t), referencesByHand(t)...) {
		text := proseOf(t, file)
		for _, m := range aDottedKey.FindAllStringSubmatch(text, -1) {
			found++
			if !keys[m[1]] && !bodies.have(m[1]) && !words[m[1]] && !files.MatchString(m[1]) &&
				!slices.Contains(elsewhere, m[1]) {
				t.Errorf("%s names the key %s, which is none", filepath.Base(file), m[1])
			}
		}
		for _, m := range aSnakeWord.FindAllStringSubmatch(text, -1) {
			found++
			if !words[m[1]] && !slices.Contains(ofOthers, m[1]) {
				t.Errorf("%s names %s, a word that the code does not have", filepath.Base(file), m[1])
			}
		}
	}
	if found < 200 {
		t.Errorf("only %d keys were found", found)
	}
}

// TestDocumentsNameRealExitCodes: an exit code that a document names is souk's, or one of 126 and above, a program's.
func TestDocumentsNameRealExitCodes(t *testing.T) {
	codes := []int{0}
	for _, d := range cli.ExitDocs() {
		codes = append(codes, d.Code)
	}
	found := 0
	for _, file := range append(documents(t), referencesByHand(t)...) {
		for _, m := range anExitCode.FindAllStringSubmatch(proseOf(t, file), -1) {
			found++
			if n, err := strconv.Atoi(m[1]); err != nil || n < 126 && !slices.Contains(codes, n) {
				t.Errorf("%s says %q, which is none of souk's", filepath.Base(file), m[0])
			}
		}
	}
	if found < 5 {
		t.Errorf("only %d exit codes were found", found)
	}
}

// referencesByHand are the files of docs/reference, but for those that are written from the code.
func referencesByHand(t *testing.T) []string {
	files, err := filepath.Glob("../../docs/reference/*.md")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	return slices.DeleteFunc(files, func(f string) bool {
		return slices.Contains([]string{"cli.md", "errors.md", "exit-codes.md"}, filepath.Base(f))
	})
}

// knownKeys are the keys of the tables of docs/reference, which tests hold to the code, each with all that it ends with.
// A table whose head is a key with a dot behind it has what is below that key.
func knownKeys(t *testing.T) map[string]bool {
	out := map[string]bool{}
	for _, file := range referencesByHand(t) {
		below := ""
		for line := range strings.Lines(proseOf(t, file)) {
			m := aTableKey.FindStringSubmatch(line)
			switch {
			case m == nil:
				if !strings.HasPrefix(line, "| ---") {
					below = ""
				}
			case strings.HasSuffix(m[1], "."):
				below = m[1]
				out[strings.TrimSuffix(below, ".")] = true
			default:
				for key, more := below+m[1], true; more; _, key, more = strings.Cut(key, ".") {
					out[key] = true
					out[strings.TrimSuffix(key, "[]")] = true
				}
			}
		}
	}
	return out
}

// schemas are those of the API's bodies, by name.
type schemas map[string]schema

type schema struct {
	Ref        string            `json:"$ref"`
	Items      *schema           `json:"items"`
	Properties map[string]schema `json:"properties"`
}

func schemasOf(t *testing.T) schemas {
	raw, err := os.ReadFile("../../gateway/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Components struct {
			Schemas schemas `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(raw, &doc); err != nil {
		t.Fatal(err)
	}
	return doc.Components.Schemas
}

// have reports whether some body has a key.
func (all schemas) have(key string) bool {
	path := strings.Split(strings.ReplaceAll(key, "[]", ""), ".")
	for _, s := range all {
		if all.leads(s, path) {
			return true
		}
	}
	return false
}

func (all schemas) leads(s schema, path []string) bool {
	if s.Items != nil {
		s = *s.Items
	}
	if s.Ref != "" {
		s = all[filepath.Base(s.Ref)]
	}
	if len(path) == 0 {
		return true
	}
	p, is := s.Properties[path[0]]
	return is && all.leads(p, path[1:])
}

// wordsOfTheCode are all words that stand in strings and tags of souk's code.
func wordsOfTheCode(t *testing.T) map[string]bool {
	out := map[string]bool{}
	word := regexp.MustCompile(`[a-z0-9_]+(\.[a-z0-9_]+)*`)
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && d.Name() == ".git" {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		var s scanner.Scanner
		s.Init(token.NewFileSet().AddFile(path, -1, len(src)), src, nil, 0)
		for _, tok, lit := s.Scan(); tok != token.EOF; _, tok, lit = s.Scan() {
			if tok == token.STRING {
				for _, w := range word.FindAllString(lit, -1) {
					out[w] = true
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}
