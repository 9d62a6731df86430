package gateway

import (
	"strings"
	"testing"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/core/quota"
	"github.com/soukhq/souk/core/trial"
)

// TestDefaultSchedulerOfJobs: a job that names no scheduler gets the one of its namespace, else the cluster's, keeps it, and
// cannot claim where it is from.
func TestDefaultSchedulerOfJobs(t *testing.T) {
	s, _ := jobShop(t)
	s.open()
	s.want(201, "POST", "/v1/souk/namespaces", `{"name":"ml"}`)
	s.want(200, "PUT", "/v1/souk/apps/a/namespace", `{"namespace":"ml"}`)
	submit := func(app, more string) (j jobs.Job) {
		t.Helper()
		s.want(201, "POST", "/v1/souk/jobs", `{"app":"`+app+`","command":["true"]`+more+`}`).into(t, &j)
		return j
	}
	wantDefault := func(path, scheduler, from string) {
		t.Helper()
		var d api.SchedulerDefault
		if s.want(200, "GET", path, nil).into(t, &d); d.Scheduler != scheduler || d.From != from {
			t.Errorf("%s: %+v", path, d)
		}
	}
	const cluster, ml = "/v1/souk/scheduler", "/v1/souk/namespaces/ml/scheduler"
	wantDefault(cluster, "market", "souk")
	wantDefault(ml, "market", "souk")
	if j := submit("a", ""); j.Spec.Scheduler != "" || j.Spec.SchedulerFrom != nil {
		t.Errorf("%+v", j.Spec)
	}
	s.want(200, "PUT", cluster, `{"scheduler":"Hawk"}`)
	wantDefault(ml, "hawk", "cluster")
	first := submit("a", "")
	if first.Spec.SchedulerText() != "hawk, the default of the cluster" {
		t.Errorf("%+v", first.Spec)
	}
	s.want(200, "PUT", ml, `{"scheduler":"sparrow:4"}`)
	wantDefault(ml, "sparrow:4", "namespace")
	for _, x := range []struct{ app, more, text string }{
		{"a", "", "sparrow:4, the default of namespace ml"},
		{"b", "", "hawk, the default of the cluster"},
		{"a", `,"scheduler":"pigeon"`, "pigeon"},
		{"a", `,"scheduler":"market"`, ""},
		{"a", `,"scheduler":"pigeon","scheduler_from":{"of":"cluster"}`, "pigeon"},
		{"b", `,"priority":"high"`, "market: hawk, the default of the cluster, knows no priorities"},
	} {
		if j := submit(x.app, x.more); j.Spec.SchedulerText() != x.text {
			t.Errorf("%s%s: %q", x.app, x.more, j.Spec.SchedulerText())
		}
	}
	var list api.SchedulerDefaultList
	s.want(200, "GET", "/v1/souk/schedulers", nil).into(t, &list)
	if len(list.Defaults) != 3 || list.Defaults[0].Namespace != "" || list.Defaults[1].Namespace != quota.Default ||
		list.Defaults[1].From != "cluster" || list.Defaults[2].Scheduler != "sparrow:4" {
		t.Errorf("%+v", list)
	}
	s.want(200, "DELETE", ml, nil)
	wantDefault(ml, "hawk", "cluster")
	s.want(200, "DELETE", cluster, nil)
	s.want(200, "DELETE", cluster, nil)
	wantDefault(ml, "market", "souk")
	var j jobs.Job
	if s.want(200, "GET", "/v1/souk/jobs/"+first.ID, nil).into(t, &j); j.Spec.Scheduler != "hawk" {
		t.Errorf("a later default changed a job: %+v", j.Spec)
	}
}

func TestBadDefaultSchedulersAreRefused(t *testing.T) {
	s, _ := jobShop(t)
	s.open()
	for _, x := range []struct {
		code       int
		path, body string
		says       string
	}{
		{400, "/v1/souk/scheduler", `{"scheduler":"sparow"}`, `no scheduler is named "sparow"`},
		{400, "/v1/souk/scheduler", `{"scheduler":"market:3"}`, "takes no number"},
		{400, "/v1/souk/scheduler", `{"scheduler":""}`, "the scheduler is not named"},
		{400, "/v1/souk/scheduler", `{"name":"hawk"}`, "name"},
		{404, "/v1/souk/namespaces/ml/scheduler", `{"scheduler":"hawk"}`, "there is no namespace ml"},
	} {
		if e := s.want(x.code, "PUT", x.path, x.body).failure(t); !strings.Contains(e.Error, x.says) {
			t.Errorf("%s %s: %s", x.path, x.body, e.Error)
		}
	}
	s.want(404, "GET", "/v1/souk/namespaces/ml/scheduler", nil)
	s.want(404, "DELETE", "/v1/souk/namespaces/ml/scheduler", nil)
}

// TestSchedulersAreCompared: jobs that name no scheduler draw one of two until the comparison is ended, and its table counts
// them.
func TestSchedulersAreCompared(t *testing.T) {
	s, _ := jobShop(t)
	s.open()
	const path = "/v1/souk/scheduler/comparison"
	s.want(404, "GET", path, nil)
	s.want(412, "DELETE", path, nil)
	for _, x := range []struct {
		code       int
		body, says string
	}{
		{400, `{"a":"market","b":"hauk","share":50,"margin":10}`, `no scheduler is named "hauk"`},
		{400, `{"a":"market","b":"Market","share":50,"margin":10}`, "not of market with itself"},
		{400, `{"a":"market","b":"hawk","share":100,"margin":10}`, "from 1 to 99; got 100"},
		{400, `{"a":"market","b":"hawk"}`, "from 1 to 99; got 0"},
		{400, `{"a":"market","b":"hawk","share":50,"margin":-1}`, "0 for never; got -1"},
		{412, `{"a":"yarn","b":"hawk","share":50,"margin":10}`, "which is market in the cluster, not yarn"},
	} {
		if e := s.want(x.code, "PUT", path, x.body).failure(t); !strings.Contains(e.Error, x.says) {
			t.Errorf("%s: %s", x.body, e.Error)
		}
	}
	const begin = `{"a":"market","b":"hawk","share":50,"margin":10}`
	s.want(404, "PUT", "/v1/souk/namespaces/ml/scheduler/comparison", begin)
	var c api.SchedulerComparison
	if s.want(200, "PUT", path, begin).into(t, &c); c.A != "market" || c.B != "hawk" || c.Ended != nil ||
		c.Verdict != trial.TooFew {
		t.Errorf("%+v", c)
	}
	e := s.want(412, "PUT", path, begin).failure(t)
	if !strings.Contains(e.Error, "are being compared in the cluster") {
		t.Error(e.Error)
	}
	s.want(412, "PUT", "/v1/souk/scheduler", `{"scheduler":"yarn"}`)
	s.want(412, "PUT", path, `{"a":"market","b":"yarn","share":50,"margin":10}`)
	drew := map[string]int{}
	for range 40 {
		var j jobs.Job
		s.want(201, "POST", "/v1/souk/jobs", `{"app":"a","command":["true"]}`).into(t, &j)
		drew[j.Spec.SchedulerText()]++
	}
	const drawn = ", drawn in the comparison of the cluster"
	market, hawk := drew["market"+drawn], drew["hawk"+drawn]
	if market+hawk != 40 || market == 0 || hawk == 0 {
		t.Errorf("%v", drew)
	}
	if s.want(200, "GET", path, nil).into(t, &c); c.Fared.A.Open != market || c.Fared.B.Open != hawk || c.Says == "" {
		t.Errorf("%+v, and the jobs drew %v", c.Fared, drew)
	}
	var d api.SchedulerDefault
	if s.want(200, "GET", "/v1/souk/namespaces/default/scheduler", nil).into(t, &d); d.Scheduler != "market" ||
		d.Candidate != "hawk" || d.Share != 50 {
		t.Errorf("%+v", d)
	}
	if s.want(200, "DELETE", path, nil).into(t, &c); c.Ended == nil || c.Why != "a user ended it" ||
		c.Fared.A.Open != market {
		t.Errorf("%+v", c)
	}
	var j jobs.Job
	s.want(201, "POST", "/v1/souk/jobs", `{"app":"a","command":["true"]}`).into(t, &j)
	if j.Spec.SchedulerFrom != nil {
		t.Errorf("%+v", j.Spec.SchedulerFrom)
	}
	s.want(200, "PUT", path, `{"a":"market","b":"yarn:2","share":1,"margin":0}`)
	s.with(func(o *Options) { o.Jobs = nil })
	s.want(501, "GET", path, nil)
}
