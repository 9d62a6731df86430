package gateway

import (
	"strings"
	"testing"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/core/quota"
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
