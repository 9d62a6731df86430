package gateway

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/core/lifecycle"
)

// TestWaitAnswersOnStateOrTimeout waits in false time: the answer comes when the state does, or when the time is over, not before.
func TestWaitAnswersOnStateOrTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShop(t).open()
		m := s.launch(hostLaunch)
		at := "/v1/apps/a/machines/" + m.ID + "/wait"

		begin := time.Now()
		f := s.want(408, "GET", at+"?state=stopped&timeout=30", nil).failure(t)
		if took := time.Since(begin); took != 30*time.Second {
			t.Errorf("a wait of 30 s took %v", took)
		}
		if f.Error != "deadline_exceeded: machine failed to reach desired state, stopped, currently started" {
			t.Errorf("the text is %q", f.Error)
		}

		begin = time.Now()
		go func() {
			<-time.After(5 * time.Second)
			_, _ = s.workers[0].Do(t.Context(), lifecycle.Command{Verb: lifecycle.Stop, App: "a", Machine: m.ID})
		}()
		var out api.Waited
		s.want(200, "GET", at+"?state=stopped&state=suspended&timeout=30", nil).into(t, &out)
		if took := time.Since(begin); took != 5*time.Second || out.State != "stopped" {
			t.Errorf("a state that came after 5 s was told after %v: %+v", took, out)
		}

		begin = time.Now()
		s.want(408, "GET", at, nil) // started, for 60 s
		if took := time.Since(begin); took != time.Minute {
			t.Errorf("a wait without a time took %v", took)
		}
	})
}

func TestWaitMatchesVersionsAndEvents(t *testing.T) {
	s := newShop(t).open()
	m := s.launch(hostLaunch)
	at := "/v1/apps/a/machines/" + m.ID
	var out api.Waited
	s.want(200, "GET", at+"/wait?version="+m.InstanceID, nil).into(t, &out)
	s.want(200, "GET", at+"/wait?instance_id="+m.InstanceID, nil)
	s.want(200, "GET", at+"/wait?state=settled", nil)
	s.want(200, "GET", at+"/wait?state=stopped,started", nil)
	s.want(408, "GET", at+"/wait?state=started&timeout=1&from_event_id="+out.EventID, nil)
	s.want(200, "POST", at+"/stop", nil)
	s.want(200, "POST", at+"/start", nil)
	s.want(200, "GET", at+"/wait?state=stopped&timeout=1&from_event_id="+out.EventID, nil) // it was, meanwhile
	s.want(200, "POST", at, hostLaunch)
	s.want(400, "GET", at+"/wait?state=started&version="+m.InstanceID, nil)
	s.want(200, "GET", at+"/wait?state=replaced&version="+m.InstanceID, nil)
	s.want(408, "GET", at+"/wait?state=started&timeout=1&version=7ZZZZZZZZZZZZZZZZZZZZZZZZZ", nil)
	s.want(404, "GET", "/v1/apps/a/machines/00000000000000/wait", nil)
}

// TestWaitEndsWhenItsClientLeaves: a wait that nobody waits for any more holds nothing.
func TestWaitEndsWhenItsClientLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShop(t).open()
		m := s.launch(hostLaunch)
		req := httptest.NewRequestWithContext(t.Context(), "GET", "/v1/apps/a/machines/"+m.ID+"/wait?state=stopped",
			strings.NewReader(""))
		req.Header.Set("Authorization", "Bearer "+testToken)
		ctx, cancel := context.WithCancel(req.Context())
		begin := time.Now()
		go func() {
			<-time.After(3 * time.Second)
			cancel()
		}()
		rec := httptest.NewRecorder()
		s.gateway.Handler().ServeHTTP(rec, req.WithContext(ctx))
		if took := time.Since(begin); took != 3*time.Second {
			t.Errorf("the handler went on for %v", took)
		}
	})
}
