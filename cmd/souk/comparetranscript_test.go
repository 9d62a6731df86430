package main

import "testing"

const (
	compareBegin = "<!-- transcript: go test ./cmd/souk -run CompareSchedulers -update -->\n"
	compareEnd   = "<!-- end of the transcript of schedulers -->"
)

func compareSteps() []readmeStep {
	const allEnded = `until souk schedulers compare | grep -q '^  ended ' && [ $(souk job ls | wc -l) -le 1 ]; do sleep 0.2; done`
	return []readmeStep{
		{dev: "souk dev --workers 3"},
		{run: `souk schedulers compare market yarn:3 --share 50 --margin 20`},
		{run: `for i in $(seq 100); do souk submit --array 1-3 -- /bin/true; done > jobs`},
		{quiet: allEnded},
		{run: `souk schedulers compare`},
	}
}

// TestCompareSchedulersTranscriptIsCurrent: a comparison on three workers ends by itself, as docs/operating.md shows.
func TestCompareSchedulersTranscriptIsCurrent(t *testing.T) {
	t.Parallel()
	transcript(t, "docs/operating.md", compareSteps(), compareBegin, compareEnd)
}
