package gateway

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/fleet/buyers"
)

// memFiles keeps what is sent in memory, by app and digest.
type memFiles map[string]string

func (m memFiles) SentSize(app, digest string) (int64, bool) {
	text, here := m[app+digest]
	return int64(len(text)), here
}

func (m memFiles) PutSent(_ context.Context, app, digest string, r io.Reader) (int64, error) {
	raw, err := io.ReadAll(r)
	m[app+digest] = string(raw)
	return int64(len(raw)), err
}

func (memFiles) SpreadSent(context.Context, string, string) []cluster.WorkerID {
	return []cluster.WorkerID{"w1", "w2"}
}

func (memFiles) TaskFiles(_ context.Context, at cluster.WorkerID, l jobs.Life, w io.Writer) error {
	if l.Index == 2 {
		return fault.New(fault.Unavailable, fault.CodeLost, "it does not answer")
	}
	_, err := fmt.Fprintf(w, "files of %d at %s", l.Index, at)
	return err
}

// leftDesk is a buyer whose tasks 1 and 2 left files, 3 none, and 4 runs.
type leftDesk struct{ *deskJobs }

func (d leftDesk) Tasks(ctx context.Context, job string, q jobs.TaskQuery) (out []jobs.Task, next int, err error) {
	if _, err := d.Status(ctx, job); err != nil || q.From > 4 {
		return nil, -1, err
	}
	code := 0
	t := jobs.Task{Index: q.From, Worker: "w7", ExitCode: &code}
	switch l := (jobs.Life{Job: jobs.ID(1), Index: q.From, Attempt: 1, CPU: 1000, Memory: 64}); q.From {
	case 3:
		t.Files = &jobs.TaskFiles{Why: "it left no file that matches out", Life: l.String()}
	case 4:
		t.ExitCode, t.State = nil, "running"
	default:
		t.Files = &jobs.TaskFiles{Files: 1, Bytes: 5, Life: l.String()}
	}
	return []jobs.Task{t}, -1, nil
}

// TestSentFilesAreOfAnApp: who may submit its jobs sends and asks, and nobody else; a job is only taken with what is
// here.
func TestSentFilesAreOfAnApp(t *testing.T) {
	s := newShop(t, forUnixUsers()).open()
	files := memFiles{}
	s.with(func(o *Options) {
		o.Tokens, o.Jobs, o.JobFiles = roleTokens{}, buyers.New(buyers.Options{Own: newDeskJobs()}), files
	})
	digest := "sha256:" + strings.Repeat("0a", 32)
	path := "/v1/souk/sent/" + digest
	if r := s.send("PUT", path, "hello", as("operator@lab")); r.code != 200 ||
		!strings.Contains(r.raw, `"bytes":5,"at":["w1","w2"]`) || files["lab"+digest] != "hello" {
		t.Fatalf("%d %s, %v", r.code, r.raw, files)
	}
	for who, want := range map[string]int{"operator@lab": 200, "admin": 404, "operator": 404, "operator@shop": 404,
		"viewer@lab": 200, "viewer": 404, "operator@unix-bob+bob": 404} {
		if r := s.send("GET", path, nil, as(who)); r.code != want {
			t.Errorf("%s asks: %d %s", who, r.code, r.raw)
		}
		for _, method := range []string{"GET", "PUT"} {
			r := s.send(method, path+"?app=unix-alice", "x", as(who))
			if r.code != 403 && who != "admin" {
				t.Errorf("%s: %s to the app of alice: %d %s", who, method, r.code, r.raw)
			}
		}
	}
	if r := s.send("GET", path+"?app=lab", nil, as("operator@shop")); r.code != 403 {
		t.Errorf("of another app: %d %s", r.code, r.raw)
	}
	if r := s.send("PUT", path, "x", as("viewer@lab")); r.code != 403 {
		t.Errorf("a viewer sends: %d %s", r.code, r.raw)
	}
	job := fmt.Sprintf(`{"command":["/bin/cat","data"],"sent":[{"name":"data","digest":%q,"bytes":1,"at":["w666"]}]}`,
		digest)
	if r := s.send("POST", "/v1/souk/jobs", job, as("operator@shop")); r.code != http.StatusPreconditionFailed ||
		!strings.Contains(r.raw, "send it first") {
		t.Errorf("a job of another app: %d %s", r.code, r.raw)
	}
	var j jobs.Job
	r := s.send("POST", "/v1/souk/jobs", job, as("operator@lab"))
	if r.into(t, &j); r.code != 201 || len(j.Spec.Sent) != 1 || j.Spec.Sent[0].Bytes != 5 ||
		fmt.Sprint(j.Spec.Sent[0].At) != "[w1 w2]" {
		t.Errorf("%d %s", r.code, r.raw)
	}
}

// TestFilesOfTasks: those that were kept are streamed, and otherwise it is said why there are none.
func TestFilesOfTasks(t *testing.T) {
	s := newShop(t, forUnixUsers()).open()
	d := newDeskJobs()
	s.with(func(o *Options) {
		o.Tokens, o.Jobs, o.JobFiles = roleTokens{}, buyers.New(buyers.Options{Own: leftDesk{d}}), memFiles{}
	})
	var j jobs.Job
	s.send("POST", "/v1/souk/jobs", `{"name":"sweep","command":["/bin/true"],"first":1,"last":4,"keep":["out"],`+
		`"stdout":"/srv/secret-name"}`, as("operator@unix-alice+alice")).into(t, &j)
	for _, c := range []struct {
		who, path string
		code      int
		says      string
	}{
		{"operator@unix-alice+alice", "sweep/tasks/1/files", 200, "files of 1 at w7"},
		{"operator@unix-alice+alice", j.ID + "/tasks/2/files", 500, "does not answer"},
		{"operator@unix-alice+alice", j.ID + "/tasks/3/files", 404, "no file that matches out"},
		{"operator@unix-alice+alice", j.ID + "/tasks/4/files", 404, "it is running"},
		{"operator@unix-alice+alice", j.ID + "/tasks/9/files", 404, "has no task 9"},
		{"operator@unix-alice+alice", j.ID + "/tasks/x/files", 400, "no index"},
		{"operator@unix-alice+alice", j.ID + "/tasks/01/files", 400, "no index"},
		{"operator@unix-bob+bob", j.ID + "/tasks/1/files", 403, "alice"},
		{"operator", j.ID + "/tasks/1/files", 403, "alice"},
		{"admin", j.ID + "/tasks/1/files", 200, "files of 1"},
	} {
		if r := s.send("GET", "/v1/souk/jobs/"+c.path, nil, as(c.who)); r.code != c.code || !strings.Contains(r.raw,
			c.says) {
			t.Errorf("%s, %s: %d %s", c.who, c.path, r.code, r.raw)
		}
	}
	if r := s.send("GET", "/v1/souk/jobs/"+j.ID, nil, as("operator@unix-bob+bob")); strings.Contains(r.raw,
		"secret-name") {
		t.Errorf("bob sees where her tasks write: %s", r.raw)
	}
}

var _ JobFiles = memFiles{}
