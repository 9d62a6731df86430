package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/accounts"
	"github.com/soukhq/souk/core/decision"
	"github.com/soukhq/souk/core/eta"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/core/market"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/core/share"
	"github.com/soukhq/souk/machine"
)

// fixedSouk is an API that answers the same whenever it is asked, so that what is printed of it can be compared. It
// returns the address.
func fixedSouk(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "souk.sock")
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	for op, out := range fixedAnswers() {
		mux.HandleFunc(string(op), func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			if err := json.NewEncoder(w).Encode(out); err != nil {
				t.Error(err)
			}
		})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprintf(w, `{"error":"there is nothing at %s %s","souk":{"kind":"notfound","code":"%s"}}`, r.Method,
			r.URL.Path,
			"machine_not_found")
	})
	s := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	go func() { _ = s.Serve(ln) }() // ends with Close
	t.Cleanup(func() { _ = s.Close() })
	return "unix:" + path
}

// fixedAt is shown alike wherever the test runs.
var fixedAt = time.Date(2026, 3, 14, 15, 9, 26, 0, time.Local)

func fixedAccounts() api.AccountList {
	first, second := accounts.DayOf(fixedAt)-1, accounts.DayOf(fixedAt)
	return api.AccountList{Accounts: []accounts.AccountLine{
		{Day: &first, Owner: "ada", UnixUser: true, Jobs: 12, Succeeded: 7970, Failed: 30, Attempts: 8012,
			CoreHours: 1234.5, CPUHours: 1100, GiBHours: 310, WaitedMS: new(4200.0), Share: 0.75},
		{Day: &second, Owner: "a-token-with-a-long-name", Jobs: 1, Cancelled: 4, Attempts: 1, CoreHours: 0.0004,
			GPUHours: 411.5, Share: 0.25}}}
}

func fixedAnswers() map[api.Op]any {
	job, name := fixedJob(), "web-frontend"
	plan := fixedPlan()
	attached := "d891275c2e5118"
	return map[api.Op]any{
		api.ListMachineLines: api.MachineLines{Machines: fixedLines()},
		api.GetMachine:       fixedMachine(),
		api.ListProcesses: []machine.Process{{PID: 4711,
			Command: "/usr/bin/python3 -m http.server 8080 --directory /srv/www",
			RSS:     34 << 20, CPU: 1234}},
		api.ListOrgMachines: api.MachinePage{Machines: []*machine.Machine{fixedMachine()}},
		api.ListWorkers:     api.WorkerList{Workers: fixedRecords(), Unreachable: []api.UnreachableWorker{}},
		api.ListMembers:     fixedMembers(),
		api.ListJobs:        api.JobList{Jobs: []jobs.Job{job}},
		api.GetJob:          job,
		api.ListTasks:       api.TaskPage{Tasks: fixedTasks()},
		api.ReportJob: jobs.JobReport{Job: job, WaitedMS: new(1500.0), Cores: 0.125, MemoryBytes: 256 << 20,
			CPUEfficiency: new(0.93),
			Peak:          &jobs.PeakSpread{Tasks: 7970, MedianBytes: 61 << 20, LargestBytes: 98 << 20},
			Advice: "each task asked for 256 MiB of memory and none used more than 98: --memory 128m would leave " +
				"memory for 2 times as many at once"},
		api.Accounts: fixedAccounts(),
		api.ListPolicies: api.PolicyList{Policies: []api.PolicyInfo{{Name: "spread", Default: true,
			Summary: "filters: none; " +
				"scores: spread 1, headroom 1, region 10", Apps: []string{"shop", "warehouse"}},
			{Name: "binpack-with-gpus",
				Version: 3, Summary: "filters: gpu_first; scores: fullest 2, region 5, prefers 1", Shadow: true}}},
		api.ListApps: api.AppList{Total: 2, Apps: []api.App{{Name: "shop", Status: "deployed", MachineCount: 12,
			VolumeCount: 2}, {Name: "a-rather-long-name-of-an-app", Status: "pending"}}},
		api.ListVolumes: []machine.Volume{{ID: "vol_8d3f5c21ab90", Name: "data", State: "created", SizeGB: 20,
			Worker: "fra-1", AttachedMachine: &attached}, {ID: "vol_11aa22bb33cc", Name: "scratch-of-the-crawler",
			State: "created", SizeGB: 500, Worker: "fra-2-with-a-long-name"}},
		api.ListImages: fixedImages(),
		api.ListSecrets: api.SecretList{Secrets: []api.Secret{{Name: "DATABASE_PASSWORD",
			Digest: "5e884898da28047151d0e56f8dc6292773603d0d6aabbdd6"}}},
		api.Top: fixedTop(),
		api.ExplainMachine: api.Explanation{Machine: attached, Worker: "fra-1", Sentences: plan.Sentences, Number: 1,
			Decision: plan.Decision, Placement: &machine.Placement{}, Now: candidates(plan.Decision),
			Decisions: []api.DecisionSummary{{ID: plan.Decision.ID, At: fixedAt, Why: "create", Outcome: "placed",
				Worker: "fra-1"}}},
		api.PlanLaunch: plan,
		api.ClusterHealth: api.Health{Findings: []api.HealthFinding{{Member: "fra-2-with-a-long-name", Check: "member",
			Have: "dead for 3h30m0s: nobody hears it", Advice: "see that it runs and can be reached, or remove it"}}},
		api.GetApp:       api.App{Name: "shop", MachineCount: len(name)},
		api.ListReleases: fixedReleases(),
		api.GetService:   fixedService(),
	}
}

func fixedReleases() api.ReleaseList {
	at, _ := time.Parse(time.RFC3339Nano, hoursAgo(3))
	groups := []api.ReleaseGroup{{Name: "web", Wanted: 3, Image: "nginx:1.29"},
		{Name: "queue-of-mails", Wanted: 1, Image: "ghcr.io/shop/mails:7"}}
	return api.ReleaseList{App: "shop", Releases: []api.ReleaseEntry{
		{Number: 12, Release: "3f9a01c2d4e5f60718293a4b5c6d7e8f", State: "current", Why: "scale",
			By: "somebody-with-a-long-name", At: at, Groups: groups, Note: "more for the sale of the week"},
		{Number: 11, Release: "3f9a01c2d4e5f60718293a4b5c6d7e8f", State: "past", Why: "deploy", By: "ci", At: at,
			Groups: groups[:1], Note: "nginx 1.29"},
		{Number: 11, Release: "a0b1c2d3e4f5061728394a5b6c7d8e9f", State: "overtaken", Why: "deploy", At: at,
			Groups: []api.ReleaseGroup{}},
	}}
}

func fixedService() api.ServiceStatus {
	at, _ := time.Parse(time.RFC3339Nano, hoursAgo(3))
	release := "3f9a01c2d4e5f60718293a4b5c6d7e8f"
	return api.ServiceStatus{App: "shop", Head: &api.Head{ID: "x", Number: 12, Release: release, Why: "scale",
		By: "somebody-with-a-long-name", At: at, Counts: map[string]int{"web": 3}},
		Steward: api.ServiceSteward{Member: "fra-1", Term: 7, By: "fra-2-with-a-long-name", Busy: true},
		Groups: []api.GroupStatus{
			{Name: "web", Image: "nginx:1.29", Wanted: 3, There: 2, Ready: 1, Slots: []api.SlotStatus{
				{Index: 0, Machine: "d891275c2e5118", Name: "web-0-d891", Worker: "fra-1", State: machine.Started,
					Ready: true, Release: release},
				{Index: 1, Machine: "e784079b449483", Name: "web-1-e784", Worker: "fra-2-with-a-long-name",
					State: machine.Started, Release: "a0b1c2d3e4f5061728394a5b6c7d8e9f", Old: true, Unheard: true},
				{Index: 2}}},
			{Name: "queue-of-mails", Image: "ghcr.io/shop/mails:7", Slots: []api.SlotStatus{{Index: 0, Extra: true,
				Machine: "148ed193a32789", Worker: "fra-1", State: machine.Stopped, Release: release}}},
		}}
}

func candidates(d *decision.Decision) (out []machine.Candidate) {
	for i := range d.Considered {
		out = append(out, d.Considered[i].Candidate)
	}
	return out
}

// hoursAgo is a time whose age does not change while a test runs.
func hoursAgo(n int) string {
	return time.Now().Add(-time.Duration(n)*time.Hour - 30*time.Minute).UTC().Format(time.RFC3339Nano)
}

func fixedLines() []machine.Line {
	code, killed := 3, 137
	return []machine.Line{
		{ID: "d891275c2e5118", Name: "web-frontend", App: "shop", State: machine.Started, Worker: "fra-1",
			Region: "fra", HostStatus: "ok", CreatedAt: hoursAgo(3), CPUKind: "shared", CPUs: 2, MemoryMB: 1024,
			Command: "/usr/bin/python3 -m http.server 8080 --directory /srv/www"},
		{ID: "e784079b449483", Name: "a-machine-with-a-rather-long-name", App: "warehouse-of-things",
			State: machine.Started, Worker: "fra-2-with-a-long-name", Region: "fra", HostStatus: "unreachable",
			SilentMS: 6000, CreatedAt: hoursAgo(30)},
		{ID: "148ed193a32789", Name: "nightly", App: "shop", State: machine.Stopped, Worker: "fra-1", Region: "fra",
			HostStatus: "ok", CreatedAt: hoursAgo(100), CPUKind: "performance", CPUs: 16, MemoryMB: 32768,
			Command: "/opt/报告/夜间 --all", ExitCode: &code},
		{ID: "9080e6f3b1d287", Name: "hungry", App: "shop", State: machine.Stopped, Worker: "fra-1", Region: "fra",
			HostStatus: "ok", CreatedAt: hoursAgo(200), CPUKind: "shared", CPUs: 1, MemoryMB: 256,
			Command: "/opt/batch", ExitCode: &killed, OOM: true},
		{ID: "3d8d9e2fed5589", Name: "sweep", App: "crunch", State: machine.Stopped, Worker: "fra-1", Region: "fra",
			HostStatus: "ok", CreatedAt: hoursAgo(5), CPUKind: "shared", CPUs: 1, MemoryMB: 256,
			Command: "/opt/sweep", Returns: true},
	}
}

func fixedMachine() *machine.Machine {
	return &machine.Machine{ID: "d891275c2e5118", Name: "web-frontend", App: "shop", State: machine.Started,
		Worker: "fra-1", Region: "fra", HostStatus: "ok", CreatedAt: hoursAgo(3),
		InstanceID: "01KKKQ8GSPWBZ0TZ1DSA5R3SSV",
		Replica:    &machine.Replica{Group: "web", Index: 2, Epoch: 4096, Spec: "5bec", Release: "1a2b3c4d5e6f7081"},
		Placement:  &machine.Placement{Reason: "best score 51.20 of 2 workers that fit (of 3)"},
		Config: &machine.Config{Guest: &machine.Guest{CPUKind: "shared", CPUs: 2, MemoryMB: 1024},
			Init: machine.Init{Exec: []string{"/usr/bin/python3", "-m", "http.server", "8080", "--directory",
				"/srv/www"}}, Metadata: map[string]string{"team": "storefront", "on-call": "storefront@example.com"}},
		Checks: []machine.Check{{Name: "http", Status: "passing", Output: "200 OK, 17 bytes, after 3 ms"}},
		Events: []machine.Event{{ID: "02", Type: "start", Status: "started",
			Timestamp: fixedAt.Add(time.Second).UnixMilli()},
			{ID: "01", Type: "exit", Status: "stopped", Timestamp: fixedAt.UnixMilli(),
				Message: "it wanted more memory " +
					"than it was given", Request: &machine.EventRequest{ExitEvent: &machine.ExitEvent{ExitCode: 137,
					OOMKilled: true}}}}}
}

func fixedRecords() []cluster.Record {
	return []cluster.Record{
		{Worker: "fra-1", Region: "fra", State: cluster.Ready, Incarnation: 3, Version: 41, Machines: 12,
			MaxStarting: 256,
			Capacity:    cluster.Resources{CPU: 16000, Memory: 65536, Disk: 900000, Ports: 10000, GPU: 2000},
			Used:        cluster.Resources{CPU: 9500, Memory: 24000, Disk: 20000, Ports: 12, GPU: 1000}},
		{Worker: "fra-2-with-a-long-name", Region: "fra", State: cluster.Cordoned, Incarnation: 1, Version: 7,
			Machines: 3,
			Capacity: cluster.Resources{CPU: 8000, Memory: 32768, Disk: 400000, Ports: 10000},
			Cordon:   &cluster.Cordon{Owner: "ann", Reason: "its disks are replaced on Monday"}},
	}
}

func fixedMembers() api.MemberList {
	since := time.Now().UTC().Add(-3*time.Hour - 30*time.Minute)
	return api.MemberList{Members: []cluster.Member{
		{ID: "fra-1", Addr: "10.0.0.7:4282", API: "10.0.0.7:4281", State: cluster.MemberAlive, Since: since, Self: true,
			Capability: 20261122, Keys: 2,
			Build: cluster.Build{Version: "0.1.0", Commit: "7c24b53e5678901234567890123456789012abcd"}},
		{ID: "fra-2-with-a-long-name", Addr: "[2001:db8::8a2e:370:7334]:4282", API: "[2001:db8::8a2e:370:7334]:4281",
			State: cluster.MemberDead, Since: since, RTT: 1234567, Capability: 20261121, Keys: 1,
			Build: cluster.Build{Version: "0.2.0-dev", Commit: "0a1b2c3d4e5f678901234567890123456789abcd"}},
	}}
}

func fixedJob() jobs.Job {
	soon := time.Now().Add(500 * time.Millisecond) // what is printed is rounded to seconds
	return jobs.Job{ID: "jd3e4036686", State: jobs.Running, Spec: jobs.Spec{Name: "parameter-sweep", App: "research",
		Command: []string{"/bin/sh", "-c", "./simulate --seed $SOUK_INDEX"}, Last: 19999, CPUKind: "shared", CPUs: 1,
		MemoryMB: 256}, Tasks: 20000, Waiting: 12000, Running: 30, Succeeded: 7965, Failed: 5, Retried: 2,
		FirstFail: &jobs.FirstFail{Index: 17, ExitCode: 143, Error: "it ran for longer than --timeout allows"},
		Why:       "2 workers are busy with 30 tasks; memory: wanted 256 MiB, had 12 MiB free of 32768 MiB (on 2 of 2)",
		Submitted: time.Now().Add(-210 * time.Minute), Elapsed: 12_600_000, PerSecond: 0.6,
		Took: &jobs.Span{LowMS: 31_000, HighMS: 64_000}, Left: &jobs.Span{LowMS: 12_400_000, HighMS: 25_600_000},
		Usage: &jobs.Usage{Attempts: 7972, RanMS: 370_000_000, RepeatedMS: 60_000, MeasuredMS: 370_000_000,
			CPUMS: 43_000_000, PeakBytes: 98 << 20},
		ETA: &jobs.ETA{Ends: &jobs.Expected{Low: soon.Add(3 * time.Hour), High: soon.Add(7 * time.Hour),
			Coverage: eta.Coverage{Held: 1810, Of: 2001}}},
		Queue: &jobs.Queue{Jobs: 3, Tasks: 412, CoreSeconds: 18_540, Cores: 16, Slots: 30, Later: 2, Never: 1,
			Accounts: []jobs.AccountBefore{{Account: share.Account{Namespace: "default", Owner: "alice"}, Jobs: 1,
				Tasks: 12}}},
		Helps: "a higher weight of namespace research (\"souk quota set --weight\") has it go first more often"}
}

func fixedTasks() []jobs.Task {
	began := time.Now().Add(-210 * time.Minute)
	return []jobs.Task{
		{Index: 0, State: "succeeded", Attempt: 1, ExitCode: new(0), Worker: "fra-1", BeganAt: &began, EndedAt: &began,
			TookMS: 44_000, CPUMS: 41_300, PeakBytes: 61 << 20},
		{Index: 17, State: "failed", Attempt: 2, ExitCode: new(143), Worker: "fra-2-with-a-long-name", BeganAt: &began,
			EndedAt: &began, TookMS: 600_000, CPUMS: 3, PeakBytes: 900 << 10,
			Detail: "it ran for longer than --timeout allows"},
		{Index: 18, State: "running", Attempt: 1, Worker: "fra-1", BeganAt: &began, TookMS: 12_600_000},
		{Index: 19999, State: "waiting"}}
}

func fixedTop() api.UsageList {
	records := fixedRecords()
	return api.UsageList{At: fixedAt, Workers: []api.WorkerUsage{
		{Worker: "fra-1", Member: cluster.MemberAlive, Record: &records[0], Starts: 7, AgeMS: 120, Use: []machine.Use{
			{Machine: "d891275c2e5118", App: "shop", Name: "web-frontend", CPU: 1234, At: 1, MemoryMiB: 34,
				Processes:  3,
				GrantedCPU: 125, GrantedMemory: 1024},
			{Machine: jobs.Life{Job: "jd3e4036686", Index: 17, Attempt: 1}.String(), CPU: 5, At: 1, MemoryMiB: 2,
				Processes: 1}}},
		{Worker: "fra-2-with-a-long-name", Member: cluster.MemberDead, AgeMS: 65_300},
	}}
}

func fixedPlan() api.Plan {
	clause := machine.Clause{Code: "memory", Wanted: "2048 MiB", Had: "500 MiB free of 65536 MiB"}
	gpu := machine.Clause{Code: "gpu", Wanted: "2000m", Had: "0m free of 1000m"}
	considered := func(worker string, fits bool, score float64, failing ...machine.Clause) decision.Considered {
		c := decision.Considered{Candidate: machine.Candidate{Worker: worker, Fits: fits, Score: score,
			Failing: failing}}
		if fits {
			c.Terms = machine.Terms{{Name: "headroom", Value: 0.25}, {Name: "region", Value: 50}, {Name: "spread",
				Value: 0.95}}
		}
		return c
	}
	d := &decision.Decision{ID: "01KKKQ8GSPWBZ0TZ1DSA5R3SSV", At: fixedAt, Why: "create", Strategy: "direct",
		Policy: decision.Policy{Name: "spread"}, Workers: 3, Winner: "fra-1", Outcome: decision.Placed,
		Request: placement.Request{App: "shop", Machine: "d891275c2e5118"},
		Considered: []decision.Considered{considered("fra-1", false, 0, clause), considered("fra-3", false, 0,
			clause, gpu)},
		Groups: []decision.Group{{Codes: []string{"memory"}, Count: 3, Example: "fra-1",
			Failing: []machine.Clause{clause, gpu}}},
		Asks: []decision.Ask{{Worker: "fra-1", Result: market.ResultGranted, Evict: true}},
		Took: decision.Timings{View: 0.01, Rank: 0.12, Ask: 3.4, Total: 3.6}}
	d.Reason = "no worker has room; evicts here, where it costs least: rank 1000 (its own is 2000), about 1 machine"
	return api.Plan{Machine: d.Request.Machine, Verdict: decision.FitsNow, Worker: d.Winner, Reason: d.Reason,
		Sentences: decision.Explain(d), Decision: d, Changes: []decision.Change{},
		Victims: []api.Victims{{Worker: "fra-1", Victims: []string{"3d8d9e2fed5589"}, Cost: 420, Evicted: []api.Evictee{
			{Machine: "3d8d9e2fed5589", Name: "sweep", App: "crunch", Band: machine.BandBatch, Cost: 420}}}}}
}

func fixedImages() api.ImageList {
	ago := func(d time.Duration) time.Time { return time.Now().Add(-d - time.Second) }
	nginx := cluster.StoredImage{Digest: "sha256:4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945",
		Names: []string{"docker.io/library/nginx:1.29"}, Size: 57 << 20, Layers: 7, Used: ago(3 * time.Minute),
		Pins: []string{"d891275c2e5118"}}
	tool := cluster.StoredImage{Digest: "sha256:9b74c9897bac770ffc029102a200c5de0b6ab4d8e11ba873c2f11161202b9450",
		Names: []string{"registry.example.com:5000/platform/crawler-of-the-archive:2026-11-23",
			"registry.example.com:5000/platform/crawler-of-the-archive:latest"}, Size: 3 << 30, Layers: 31,
		Used: ago(30 * time.Hour)}
	loaded := cluster.StoredImage{Digest: "sha256:ef2d127de37b942baad06145e54b0c619a1f22327b2ebbcfbec78f5564afe39d",
		Names: []string{}, Size: 4567, Layers: 1, Used: ago(50 * 24 * time.Hour)}
	return api.ImageList{Stores: []cluster.ImageStore{
		{Worker: "fra-1", Store: "a", Bytes: 4 << 30, Images: []cluster.StoredImage{nginx, tool}},
		{Worker: "fra-2-with-a-long-name", Store: "b", Bytes: 1 << 30, Images: []cluster.StoredImage{nginx, loaded}}},
		Without: []api.UnreachableWorker{}}
}
