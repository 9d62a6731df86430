package releases

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/fault"
)

// TestRolloutTextSuggestsNextStepForEachState: the text of each state names the next command, if there is one; a state that
// ends a wait without success has its code.
func TestRolloutTextSuggestsNextStepForEachState(t *testing.T) {
	now := time.Now()
	for _, x := range []struct {
		r    api.Rollout
		want string
		code fault.Code
	}{
		{api.Rollout{State: release.RolledRunning}, "release 11111111 is being rolled out, for 2m", ""},
		{api.Rollout{State: release.RolledRunning, Step: 1, Steps: 3},
			"release 11111111 is being rolled out at step 2 of 3, for 2m", ""},
		{api.Rollout{State: release.RolledRunning, Step: 3, Steps: 3},
			"release 11111111 is being rolled out after its 3 steps, for 2m", ""},
		{api.Rollout{State: release.RolledWaiting, Steps: 2},
			`release 11111111 waits at step 1 of 2, for 2m; "souk promote shop" has it go on`, ""},
		{api.Rollout{State: release.RolledWaiting, Steps: 2, Canary: []release.CanaryAt{
			{Group: "web", New: 2, Wanted: 3}, {Group: "job", New: 1, Wanted: 4}}}, `release 11111111 waits at step 1 of 2 with 2 of 3 of web new, 1 of 4 of ` +
			`job new, for 2m; "souk promote shop" has it go on`, ""},
		{api.Rollout{State: release.RolledPaused, Asked: true, By: "bob"},
			`release 11111111 is paused by bob, for 2m; "souk resume shop" has it go on`, "paused"},
		{api.Rollout{State: release.RolledPaused, Why: "it dies"},
			`release 11111111 is paused as it failed, for 2m; "souk resume shop" has it go on`, "paused"},
		{api.Rollout{State: release.RolledUndoing},
			"release 11111111 failed and is being undone, for 2m: release 00000000 is wanted again", ""},
		{api.Rollout{State: release.RolledUndone, Why: "it dies"},
			"release 11111111 failed and was undone 2m ago; release 00000000 is wanted again", "undone"},
		{api.Rollout{State: release.RolledDone}, "release 11111111 is rolled out, since 2m ago", ""},
	} {
		r := x.r
		r.Release, r.Before, r.Since = strings.Repeat("1", 32), strings.Repeat("0", 32), now.Add(-2*time.Minute)
		if got := rolloutText("shop", &r, now); got != x.want {
			t.Errorf("%s:\n%s\nwant\n%s", r.State, got, x.want)
		}
		if err := outcome("shop", &r); fault.CodeOf(err) != x.code && err != nil || err == nil && x.code != "" {
			t.Errorf("%s: %v", r.State, err)
		}
	}
	var out bytes.Buffer
	s := api.ServiceStatus{App: "shop", Rollout: &api.Rollout{Release: "22222222", State: release.RolledUndone,
		Why: "web/1 died", Failed: []api.RolloutFailure{{Group: "web", Index: 1, Machine: "m1", Why: "exit 3"}}}}
	printRollout(&cli.Env{Out: &out}, &s, now)
	for _, want := range []string{"rollout", "why", "web/1 died", "web/1 (m1): exit 3"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing:\n%s", want, out.String())
		}
	}
}

// TestJSONOutputAddsLogsOfFailedMachines: in JSON what failed has its last lines beside what the API says, and nothing else changes.
func TestJSONOutputAddsLogsOfFailedMachines(t *testing.T) {
	var out bytes.Buffer
	c := &cli.Env{Out: &out, Err: &bytes.Buffer{}, JSON: true}
	s := rolling(release.RolledUndone, 0)
	s.Rollout.Failed = []api.RolloutFailure{{Group: "web", Index: 1, Machine: "m1", Why: "it dies"}}
	showFailed(c, &s, []failure{{RolloutFailure: s.Rollout.Failed[0], Output: []string{"no database"}}},
		&failure{Output: []string{"cannot migrate"}})
	var got, want map[string]any
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	r, _ := got["rollout"].(map[string]any)
	failed, _ := r["failed"].([]any)
	if len(failed) != 1 {
		t.Fatal(out.String())
	}
	first, _ := failed[0].(map[string]any)
	if d := cmp.Diff([]any{[]any{"no database"}, []any{"cannot migrate"}},
		[]any{first["output"], r["command_output"]}); d != "" {
		t.Errorf("%s\n%s", d, out.String())
	}
	delete(r, "command_output")
	delete(first, "output")
	raw, err := json.Marshal(s)
	if err == nil {
		err = json.Unmarshal(raw, &want)
	}
	if d := cmp.Diff(want, got); err != nil || d != "" {
		t.Errorf("%v (-API +printed):\n%s", err, d)
	}
}
