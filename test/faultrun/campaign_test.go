package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/soukhq/souk/test/faults"
)

// TestCampaignResumesWithItsSeeds: runs that the file has are left out, those whose harness failed are not, and seeds go on from
// the file's.
func TestCampaignResumesWithItsSeeds(t *testing.T) {
	there := []faults.Report{
		{Fault: "kill", Seed: 8},
		{Fault: "kill", Seed: 7},
		{Fault: "loss", Seed: 7, Harness: "it broke"},
	}
	o := options{which: "kill,loss", runs: 2}
	if got := fmt.Sprint(o.todo(there)); got != "[{loss 7} {loss 8}]" {
		t.Error("to do:", got)
	}
	o = options{which: "kill", runs: 2}
	if got := o.todo(nil); len(got) != 2 || got[0].seed == 0 || got[1].seed != got[0].seed+1 {
		t.Error("of a new campaign:", got)
	}
	o.Seed = 20
	if got := fmt.Sprint(o.todo(there)); got != "[{kill 20} {kill 21}]" {
		t.Error("with a seed of one's own:", got)
	}
}

// TestRunsHaveTheCampaignsLoads: the services, images and jobs that are asked for reach the process of each run.
func TestRunsHaveTheCampaignsLoads(t *testing.T) {
	o := options{Options: faults.Options{Services: 2, Images: 30, Jobs: 7}, lasts: lasting{}}
	got := strings.Join(o.childArgs(job{"kill", 5}, "dir"), " ")
	for _, want := range []string{"--fault kill", "--seed 5", "--services 2", "--images 30", "--jobs 7", "--keep dir"} {
		if !strings.Contains(got, want) {
			t.Errorf("a run lacks %q: %s", want, got)
		}
	}
}

func TestDurationsPerFaultAreParsed(t *testing.T) {
	l := lasting{"": 10 * time.Second}
	if err := l.Set("8s,partition=1m"); err != nil || l.of("kill") != 8*time.Second ||
		l.of("partition") != time.Minute {
		t.Error(l, err)
	}
	if l.Set("kill=soon") == nil {
		t.Error("soon is a time")
	}
}

func TestReportSummarizesRuns(t *testing.T) {
	file := filepath.Join(t.TempDir(), "runs")
	lines := `{"fault":"kill","seed":3,"nodes":5,"fault_seconds":8,"launches":10,"started":9,"whole_s":1,"answered_s":2,"agreed_s":3,"violations":[],"commit":"abc"}
{"fault":"kill","seed":4,"harness":"it broke"}
{"fault":"loss","seed":3,"nodes":5,"fault_seconds":8,"launches":10,"started":9,"answered_s":2,"jobs":2,"tasks":90,"attempts":95,"away":40,"cancelled":3,"lost":1,"adopted":2,"replaced":5,"keeper_deaths":6,"shown_s":1.5,"jobs_ended_s":4,"schedulers":{"market":1,"sparrow":1},"violations":["a machine is lost"],"repeat":"do it again","commit":"abc"}
`
	if err := os.WriteFile(file, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := writeReport(&out, file); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| kill | 1 | 8 | 10 | 9 |", "1.0 / 1.0 | 2.0 / 2.0 | 3.0 / 3.0 | 0 |",
		"In all: 2 runs of 5 members, 20 launches, 18 started", "1 runs with violations",
		"Seeds 3 to 3", "were repeated: 1.", "`do it again`", "* a machine is lost", "In 1 runs it was not seen",
		"| loss | 1 | 8 | 2 | 90 | 95 | 40 | 3 | 1 | 2 | 5 | 6 | 1.5 | 4.0 / 4.0 | 1 |",
		"Jobs of each scheduler: market 1, sparrow 1."} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the report lacks %q:\n%s", want, out.String())
		}
	}
}
