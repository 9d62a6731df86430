package main

import (
	"errors"
	"testing"

	"github.com/soukhq/souk/internal/needs"
)

const (
	jobsBegin = "<!-- transcript: go test ./cmd/souk -run ReadmeJobs -update -->\n"
	jobsEnd   = "<!-- end of the transcript of jobs -->"
)

// meanScript is the program of the sweep: each task reads a file that was sent, and leaves one.
const meanScript = `#!/bin/sh
sleep 5
awk '{ sum += $1 } END { print sum / NR }' data/$SOUK_INDEX > mean-$SOUK_INDEX
`

// jobSteps are a sweep on three hosts in six commands, and what prepares them.
func jobSteps() []clusterStep {
	const alive = `[ $(souk node ls | grep -c ' alive  *ready ') = 3 ]`
	return []clusterStep{
		{on: "a", quiet: `souk init --id a`},
		{on: "a", agent: `souk agent > souk.log &`, hidden: true},
		{on: "a", quiet: `souk token join`, keep: "TOKEN"},
		{on: "b", quiet: `souk join 10.0.0.1:4281 --id b --token {TOKEN}`},
		{on: "b", agent: `souk agent > souk.log &`, hidden: true},
		{on: "a", quiet: `souk token join`, keep: "TOKEN"},
		{on: "c", quiet: `souk join 10.0.0.1:4281 --id c --token {TOKEN}`},
		{on: "c", agent: `souk agent > souk.log &`, hidden: true},
		{on: "a", quiet: alive}, {on: "b", quiet: alive}, {on: "c", quiet: alive},
		{on: "c", quiet: "cat > mean.sh <<'END'\n" + meanScript + "END\n" +
			`chmod +x mean.sh; mkdir -p data; for n in 1 2 3 4 5 6 7 8 9; do seq $((n * 10)) > data/$n; done`},
		{on: "c", run: `cat mean.sh`},
		{on: "c", run: `souk submit --name mean --array 1-9 --cpu-kind performance --send mean.sh --send data ` +
			`--out 'mean-*' -- ./mean.sh`},
		{on: "c", run: `souk submit --name report --after mean -- /bin/echo 'all means are there'`},
		{on: "a", quiet: `souk job status mean | grep '6 running'`},
		{say: "Any host tells how it goes, and why the rest waits:"},
		{on: "a", run: `souk job status mean`},
		{on: "b", run: `souk job why mean`},
		{say: "What the tasks left comes back when all have ended, and so has the job behind them:"},
		{on: "c", run: `souk job wait report`},
		{on: "c", run: `souk job fetch mean && cat mean/*/mean-*`},
	}
}

// TestReadmeJobsAreCurrent has a lab user's first sweep on three hosts, and holds README.md to it.
func TestReadmeJobsAreCurrent(t *testing.T) {
	t.Parallel()
	if err := errors.Join(lacksForHosts(), canServeWeb()); err != nil {
		needs.Skip(t, err)
	}
	r := &clusterRecorder{t: t, hosts: newHosts(t, soukExe(t), "a", "b", "c"), kept: map[string]string{}}
	for _, s := range jobSteps() {
		r.step(s)
	}
	r.close()
	r.holdReadme(jobsBegin, jobsEnd)
}
