package souk_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestPathsInDocumentsExist: each file and folder of this repository that a document names is there. A name is between
// backticks, begins with a top-level folder or ends with .go, and may have * in it, and behind a folder a name of its package.
func TestPathsInDocumentsExist(t *testing.T) {
	quoted := regexp.MustCompile("`([\\w.*/-]+)`")
	named := regexp.MustCompile(`\.[A-Z]\w*(\.\w+)*$`)
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != "." && (strings.HasPrefix(d.Name(), ".") || path == "bin" || d.Name() == "testdata") {
			return filepath.SkipDir
		}
		if d.IsDir() || filepath.Ext(path) != ".md" {
			return nil
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range quoted.FindAllStringSubmatch(string(raw), -1) {
			name := strings.TrimSuffix(named.ReplaceAllString(m[1], ""), "/")
			first, _, below := strings.Cut(name, "/")
			if first == "bin" { // what is built
				continue
			}
			if _, err := os.Stat(first); !below || err != nil && filepath.Ext(name) != ".go" {
				continue
			}
			if there, err := filepath.Glob(name); err != nil || len(there) == 0 {
				t.Errorf("%s names %s, which is not there", path, m[1])
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
