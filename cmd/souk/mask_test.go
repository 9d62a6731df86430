package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// drawnWord finds what is drawn by chance or is a hash: machines' and releases' ids, digests, ULIDs, volumes', snapshots',
// jobs' and workers' ids, tokens. Digits alone are no id here: more often they are an amount.
var drawnWord = regexp.MustCompile(`\b(?:` + //nolint:gochecknoglobals // a constant
	`(?P<job>j?)[0-9a-f]{8,}` +
	`|(?P<ulid>01)[0-9A-HJKMNP-TV-Z]{24}` +
	`|(?P<vol>vol_|vs_)[0-9a-z]{8,}` +
	`|(?P<worker>w[0-9]+-)[a-z2-7]{6}` +
	`|(?P<token>souk_|souk1\.)[A-Za-z0-9_.-]{16,}` +
	`)\b`)

// masked puts another letter, which no output has, in the place of each that was drawn by chance, and always the same one:
// so a pattern meets no part of an id that it does not have itself, and one with an id in it meets that id.
func masked(text string) string {
	return drawnWord.ReplaceAllStringFunc(text, func(word string) string {
		keep := 0
		for _, prefix := range drawnWord.FindStringSubmatch(word)[1:] {
			keep = max(keep, len(prefix))
		}
		if onlyDigits(word) {
			return word
		}
		return word[:keep] + maskLetters(word[keep:])
	})
}

// maskFirst is the first of the letters that stand for those of ids: Braille, of which no program of ours prints any.
const maskFirst = '\u2800'

func maskLetters(s string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x80 {
			return maskFirst + r
		}
		return r
	}, s)
}

func onlyDigits(s string) bool { return strings.Trim(s, "0123456789") == "" }

// classes are the classes of characters in patterns that mean an id, or may.
var classes = strings.NewReplacer( //nolint:gochecknoglobals // a constant
	`0-9a-f]`, `0-9a-f\x{2800}-\x{287f}]`,
	`a-z0-9]`, `a-z0-9\x{2800}-\x{287f}]`,
	`a-z0-9-]`, `a-z0-9\x{2800}-\x{287f}-]`,
	`0-9a-z]`, `0-9a-z\x{2800}-\x{287f}]`,
	`0-9A-Z]`, `0-9A-Z\x{2800}-\x{287f}]`,
	`\w`, `[\w\x{2800}-\x{287f}]`)

// idBehind is an id right behind an escape of a pattern, whose letter would be taken for the id's.
var idBehind = regexp.MustCompile(`(^|[^\\])\\([nt])([0-9a-f])`) //nolint:gochecknoglobals // a constant

// maskedPattern is a pattern for masked text: ids in it are masked, and classes of characters have the mask's.
func maskedPattern(pattern string) string {
	// What is of digits alone is an amount, or the beginning of an id that has letters farther on.
	pattern = idBehind.ReplaceAllString(pattern, "${1}(?:\\$2)$3")
	pattern = regexp.MustCompile(`\b[0-9]{8,}\b`).ReplaceAllStringFunc(masked(pattern), func(digits string) string {
		return "(?:" + digits + "|" + maskLetters(digits) + ")"
	})
	return classes.Replace(pattern)
}

// matches says what is wrong when a text does not match a pattern as wanted: it must not (neg), it must this often
// (count), it must (count is "").
func matches(pattern, text string, neg bool, count string) error {
	re, err := regexp.Compile("(?m)" + maskedPattern(pattern))
	if err != nil {
		return err
	}
	found := re.FindAllString(masked(text), -1)
	switch want, err := strconv.Atoi(count); {
	case neg && len(found) > 0:
		return fmt.Errorf("unexpected match for %#q: %q", pattern, found[0])
	case !neg && len(found) == 0:
		return fmt.Errorf("no match for %#q", pattern)
	case count != "" && (err != nil || want < 1):
		return fmt.Errorf("-count=%s is no number of matches", count)
	case count != "" && want != len(found):
		return fmt.Errorf("have %d matches for %#q, want %d", len(found), pattern, want)
	}
	return nil
}

// TestScriptPatternsMatchNoRandomID: no pattern meets an id or a hash by chance, and those that mean one meet it.
func TestScriptPatternsMatchNoRandomID(t *testing.T) {
	const id = "badff74e0bad12"
	for _, c := range []struct {
		pattern, text string
		match         bool
	}{
		{`bad`, "souk: machine " + id + " of worker w1-badbad is stopped", false},
		{`bad`, "the release is bad", true},
		{`42`, "release 42424242abcdef01 of shop", false},
		{`42`, "42 machines", true},
		{`dead`, "image app@sha256:dead" + strings.Repeat("0b", 30), false},
		{`fast`, "vol_fast0123456789abcd is made", false},
		{`WEB`, "version 01WEBWEBWEBWEBWEBWEBWEBWEB", false},
		{`b[ae]d`, "souk_badbedbadbedbadbedbad was drawn", false},
		{`cab`, "machine cabcabcab012.", false},
		// What means an id meets it, and that one only.
		{id, "web (" + id + ") is started", true},
		{`^` + id + `$`, "cafe\n" + id + "\n", true},
		{id, "machine badff74e0bad13", false},
		{`machine [0-9a-f]{14} of`, "machine " + id + " of web", true},
		{`\(\w+\) is cancelled`, "sweep (j" + id + ") is cancelled", true},
		{`job sweep \(j[0-9a-f]+\)`, "job sweep (j" + id + "): the", true},
		{`on w1-[a-z0-9]+,`, "fits now, on w1-abcdef, and", true},
		{`version [0-9A-Z]+ \(`, "version 01K8Y3J5Q0ZB9W7T5N3M1K0HGF (was", true},
		{`release badff74e`, "release badff74e11223344556677889900aabb", true},
		{`release 12345678`, "release 12345678ccddeeff112233445566aabb", true},
		{`\S+ +started`, id + "  started", true},
		{`created\n` + id, "created\n" + id, true},
		{`"x\\n"`, `"x\n"`, true},
		{`of worker [a-z0-9-]+ runs`, "of worker w1-abcdef runs", true},
		{`^01[0-9A-Z]+\t`, "01K8Y3J5Q0ZB9W7T5N3M1K0HGF\tby", true},
		{`12345678 bytes`, "12345678 bytes", true},
		{`[0-9]+ bytes`, "12345678 bytes", true},
	} {
		if err := matches(c.pattern, c.text, false, ""); (err == nil) != c.match {
			t.Errorf("%q in %q: %v", c.pattern, c.text, err)
		}
		if err := matches(c.pattern, c.text, true, ""); (err != nil) != c.match {
			t.Errorf("! %q in %q: %v", c.pattern, c.text, err)
		}
	}
	if err := matches(`[0-9a-f]{14}`, id+" "+id, false, "2"); err != nil {
		t.Error(err)
	}
	if got := withMasks("! stdout bad\n[web] ! stderr x\ngrep a b\nexec stdout\n-- stdout --\nstdout bad\n"); got !=
		"! masked-stdout bad\n[web] ! masked-stderr x\nmasked-grep a b\nexec stdout\n-- stdout --\nstdout bad\n" {
		t.Errorf("the script is made:\n%s", got)
	}
	rapid.Check(t, func(t *rapid.T) {
		id := rapid.StringMatching(`[0-9a-f]{14}`).Filter(func(s string) bool { return !onlyDigits(s) }).Draw(t, "id")
		at := rapid.IntRange(0, 11).Draw(t, "at")
		if err := matches(id[at:at+3], "machine "+id+" is stopped", true, ""); err != nil {
			t.Fatal(err)
		}
		if err := matches(id, "machine "+id+" is stopped", false, ""); err != nil {
			t.Fatal(err)
		}
	})
}
