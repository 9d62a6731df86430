package souk_test

import (
	"go/ast"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/soukhq/souk/cli"
)

// ofOthers are words by which a comment says that code is there for another version of souk.
var ofOthers = regexp.MustCompile(`(?i)\b(older|earlier|previous|former) (souk|build|release of souk)s?\b|` +
	`\b(souks?|builds?|versions? of souk)( of)? before\b|\bof another version\b|\bof a souk that (does|knows|has) no|` +
	`\bcompatib(le|ility) (with|for|until)\b`)

// endsWith is how such a comment names the release that the code is deleted in.
var endsWith = regexp.MustCompile(`\bCompatible until (\d+\.\d+\.\d+):`)

// overdue says what is wrong with a comment about code for other versions of souk, at a release: it must say "Compatible
// until 0.3.0: why", of a release that is to come. "": nothing.
func overdue(comment, release string) string {
	text := strings.Join(strings.Fields(strings.ReplaceAll(comment, "//", " ")), " ")
	if !ofOthers.MatchString(text) {
		return ""
	}
	m := endsWith.FindStringSubmatch(text)
	switch {
	case m == nil:
		return `it is for another version of souk, and does not say "Compatible until X.Y.Z:"`
	case !isBefore(release, m[1]):
		return "it ends with " + m[1] + ", which this is: delete it"
	}
	return ""
}

// isBefore reports whether a release comes before another one.
func isBefore(a, b string) bool {
	as, bs := strings.Split(a, "."), strings.Split(b, ".")
	for i := range as {
		x, _ := strconv.Atoi(as[i])
		y, _ := strconv.Atoi(bs[i])
		if x != y {
			return x < y
		}
	}
	return false
}

// TestCompatibilityCommentsNameAFutureRelease: what is there for other versions of souk says in which release it is deleted, and is deleted then.
func TestCompatibilityCommentsNameAFutureRelease(t *testing.T) {
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		for _, c := range s.file.Comments {
			if why := overdue(textOf(c), cli.Release); why != "" {
				t.Errorf("%s: %s", s.fset.Position(c.Pos()), why)
			}
		}
	}
}

func textOf(c *ast.CommentGroup) string {
	var lines []string
	for _, x := range c.List {
		lines = append(lines, x.Text)
	}
	return strings.Join(lines, " ")
}

// TestCompatibilityCommentsOfPastReleasesAreFound: which comments are refused at release 0.2.0.
func TestCompatibilityCommentsOfPastReleasesAreFound(t *testing.T) {
	for comment, want := range map[string]bool{
		"// it is read from the journal":                                        false,
		"// an older souk wrote none":                                           true,
		"// nil: an\n// older souk wrote none":                                  true,
		"// Compatible until 0.3.0: an older souk wrote none":                   false,
		"// Compatible until 0.10.0: an older souk wrote none":                  false,
		"// Compatible until 0.2.0: an older souk wrote none":                   true,
		"// Compatible until 0.1.9: reapers of older souks lock by flock":       true,
		"// for compatibility with versions of souk before 0.2":                 true,
		"// a build before this one gave none":                                  true,
		"// laid by one of another version":                                     true,
		"// false of a souk that knows nothing of that":                         true,
		"// the version before this one of a machine":                           false,
		"// what the reaper before this one left":                               false,
		"// Compatible until 1.0.0: for compatibility with souks of before 0.9": false,
	} {
		if why := overdue(comment, "0.2.0"); (why != "") != want {
			t.Errorf("%q: %q", comment, why)
		}
	}
}
