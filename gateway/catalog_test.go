package gateway

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/core/fsm"
	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/store/catalog"
	"github.com/soukhq/souk/store/journal/mem"
)

// TestRepeatedCreateMakesOneMachine repeats creates in every way a client can, and wants one machine.
func TestRepeatedCreateMakesOneMachine(t *testing.T) {
	const body = `{"config":{"image":"demo:1"}}`
	t.Run("the same key again", func(t *testing.T) {
		s := newShop(t).open()
		first := s.launch(body, api.IdempotencyHeader+": k")
		if again := s.launch(body, api.IdempotencyHeader+": k"); again.ID != first.ID {
			t.Errorf("got %s, then %s", first.ID, again.ID)
		}
		if other := s.launch(body, api.IdempotencyHeader+": k2"); other.ID == first.ID {
			t.Error("another key answers the same machine")
		}
		f := s.want(422, "POST", "/v1/apps/a/machines", `{"config":{"image":"demo:2"}}`, api.IdempotencyHeader+
			": k").failure(t)
		if f.Souk.Code != "idempotency_key" {
			t.Errorf("the key for another request is told as %+v", f)
		}
		s.want(201, "POST", "/v1/apps", `{"name":"b"}`)
		var m machine.Machine
		if s.want(200, "POST", "/v1/apps/b/machines", body, api.IdempotencyHeader+": k").into(t, &m); m.ID == first.ID {
			t.Error("a key counts in another app")
		}
		s.want(200, "DELETE", "/v1/apps/a/machines/"+first.ID+"?kill=true", nil)
		if gone := s.launch(body, api.IdempotencyHeader+": k"); gone.ID != first.ID || gone.State != "destroyed" {
			t.Errorf("after the destroy the key answers %+v", gone)
		}
	})
	t.Run("at once", func(t *testing.T) {
		w1, w2 := newMemWorker("w1", "local", room), newMemWorker("w2", "local", room)
		s := newShop(t, w1, w2).open()
		ids := make([]string, 16)
		var wg sync.WaitGroup
		for i := range ids {
			wg.Go(func() {
				var m machine.Machine
				s.do("POST", "/v1/apps/a/machines", body, api.IdempotencyHeader+": k").into(t, &m)
				ids[i] = m.ID
			})
		}
		wg.Wait()
		if n := len(w1.rows) + len(w2.rows); n != 1 {
			t.Errorf("%d machines were made: %v", n, ids)
		}
		for _, id := range ids {
			if id != ids[0] || id == "" {
				t.Errorf("different answers: %v", ids)
			}
		}
	})
	t.Run("with an id of one's own", func(t *testing.T) {
		w1, w2 := newMemWorker("w1", "local", room), newMemWorker("w2", "local", room)
		s := newShop(t, w1, w2).open()
		own := `{"id":"0123456789abcd","lease_ttl":60,"config":{"image":"demo:1"}}`
		first, again := s.launch(own), s.launch(own)
		if first.ID != "0123456789abcd" || again.ID != first.ID || len(w1.rows)+len(w2.rows) != 1 ||
			again.Nonce != first.Nonce {
			t.Errorf("got %+v, then %+v", first, again)
		}
	})
	t.Run("the answer got lost and the gateway died", func(t *testing.T) {
		w1, w2 := newMemWorker("w1", "local", room), newMemWorker("w2", "local", room)
		lost := func(lifecycle.Grant) error { return fault.New(fault.Internal, "crash", "the gateway died here") }
		w1.after, w2.after = lost, lost
		j, key := mem.New(), filepath.Join(t.TempDir(), "key")
		s := openShop(t, j, key, w1, w2).open()
		s.want(500, "POST", "/v1/apps/a/machines", body, api.IdempotencyHeader+": k")
		w1.after, w2.after = nil, nil
		s = openShop(t, j.Reopen(), key, w1, w2)
		m := s.launch(body, api.IdempotencyHeader+": k")
		if n := len(w1.rows) + len(w2.rows); n != 1 || m.State != "started" {
			t.Errorf("%d machines were made; the answer is %+v", n, m)
		}
	})
	t.Run("a lost answer is asked for at the same worker", func(t *testing.T) {
		w1, w2 := newMemWorker("w1", "local", room), newMemWorker("w2", "local", room)
		n := 0
		lost := func(lifecycle.Grant) error {
			if n++; n == 1 {
				return fault.New(fault.Unavailable, "lost", "the connection broke before the answer")
			}
			return nil
		}
		w1.after, w2.after = lost, lost
		s := newShop(t, w1, w2).open()
		s.launch(body)
		if made := len(w1.rows) + len(w2.rows); made != 1 || w1.grants != 2 && w2.grants != 2 {
			t.Errorf("%d machines after %d and %d grants", made, w1.grants, w2.grants)
		}
	})
	t.Run("a refusal does not use the key up", func(t *testing.T) {
		s := newShop(t).open()
		huge := `{"config":{"image":"demo:1","guest":{"cpus":64,"memory_mb":65536}}}`
		s.want(422, "POST", "/v1/apps/a/machines", huge, api.IdempotencyHeader+": k")
		s.want(422, "POST", "/v1/apps/a/machines", huge, api.IdempotencyHeader+": k")
		s.want(400, "POST", "/v1/apps/a/machines", body, api.IdempotencyHeader+": "+strings.Repeat("x", 300))
	})
}

// TestConcurrentCreatesOfANameMakeOneMachine lets many ask for one name on several workers.
func TestConcurrentCreatesOfANameMakeOneMachine(t *testing.T) {
	w1, w2 := newMemWorker("w1", "local", room), newMemWorker("w2", "local", room)
	s := newShop(t, w1, w2).open()
	var wg sync.WaitGroup
	codes := make([]int, 16)
	for i := range codes {
		wg.Go(func() {
			codes[i] = s.do("POST", "/v1/apps/a/machines", `{"name":"solo","config":{"image":"demo:1"}}`).code
		})
	}
	wg.Wait()
	made := map[int]int{}
	for _, c := range codes {
		made[c]++
	}
	if made[200] != 1 || made[409] != len(codes)-1 {
		t.Errorf("the answers are %v", made)
	}
}

func TestSecretsAreSealed(t *testing.T) {
	j, key := mem.New(), filepath.Join(t.TempDir(), "key")
	s := openShop(t, j, key, newMemWorker("w1", "local", room)).open()
	var set api.SecretSet
	s.want(200, "POST", "/v1/apps/a/secrets/PEPPER", `{"value":"hush-hush"}`).into(t, &set)
	if set.Name != "PEPPER" || set.Digest == "" || set.Version != 1 {
		t.Errorf("the answer is %+v", set)
	}
	if info, err := os.Stat(key); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key file is %v %v", info.Mode(), err)
	}
	err := j.Load(func(r fsm.Record) error {
		if strings.Contains(string(r.Value), "hush-hush") {
			t.Errorf("%s/%s holds a value in the clear", r.Bucket, r.Key)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range []string{"/v1/apps/a/secrets", "/v1/apps/a/secrets/PEPPER", "/v1/apps/a/secrets?version=1"} {
		if r := s.want(200, "GET", q, nil); strings.Contains(r.raw, "hush") {
			t.Errorf("%s tells a value: %s", q, r.raw)
		}
	}
	s.want(412, "GET", "/v1/apps/a/secrets?version=2", nil)
	s.want(403, "GET", "/v1/apps/a/secrets?show_secrets=true", nil)
	var bulk api.SecretList
	s.want(200, "POST", "/v1/apps/a/secrets", `{"values":{"SALT":"s","PEPPER":null}}`).into(t, &bulk)
	if len(bulk.Secrets) != 1 || bulk.Version != 2 {
		t.Errorf("the answer is %+v", bulk)
	}
	s.want(200, "POST", "/v1/apps/a/secrets/GONE", `{"value":"x"}`)
	s.want(200, "DELETE", "/v1/apps/a/secrets/GONE", nil)
	s.want(404, "DELETE", "/v1/apps/a/secrets/GONE", nil)
	again, err := catalog.Open(j.Reopen(), key)
	if err != nil {
		t.Fatal(err)
	}
	values, err := again.Secrets.OpenSecrets(&machine.Machine{App: "a", Config: &machine.Config{}})
	if err != nil || len(values) != 1 || values["SALT"] != "s" {
		t.Errorf("read again: %v %v", values, err)
	}
}

// TestMachineOfADeletedAppIsDestroyed takes the app away between the grant and the answer.
func TestMachineOfADeletedAppIsDestroyed(t *testing.T) {
	w := newMemWorker("w1", "local", room)
	s := newShop(t, w).open()
	w.after = func(lifecycle.Grant) error {
		if err := s.catalog.Apps.MarkDeleting("a"); err != nil {
			return err
		}
		return s.catalog.Apps.DeleteApp("a")
	}
	s.want(404, "POST", "/v1/apps/a/machines", hostLaunch)
	for _, m := range w.rows {
		if m.State != machine.Destroyed {
			t.Errorf("machine %s of an app that is gone is %s", m.ID, m.State)
		}
	}
}
