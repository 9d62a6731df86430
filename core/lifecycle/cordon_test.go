package lifecycle_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/fsm"
	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/fault"
)

func bareSupervisor() *lifecycle.Supervisor {
	return lifecycle.New(cluster.Record{Worker: "w1", State: cluster.Ready, Capacity: cluster.Resources{CPU: 1000}},
		rand.New(rand.NewPCG(1, 1)))
}

// TestCordonSurvivesRestartAndExpires: a cordon is in the journal, survives a restart, expires also while souk is
// down, and shows its author and reason.
func TestCordonSurvivesRestartAndExpires(t *testing.T) {
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	s := bareSupervisor()
	for what, c := range map[string]lifecycle.CordonCommand{
		"nobody": {Reason: "disks"}, "no reason": {Owner: "ann"},
		"long":               {Owner: "ann", Reason: strings.Repeat("x", 300)},
		"back in time":       {Owner: "ann", Reason: "disks", TTL: -time.Second},
		"for ever and a day": {Owner: "ann", Reason: "disks", TTL: 400 * 24 * time.Hour},
		"not a drain":        {Owner: "ann", Reason: "disks", EndTasks: true},
	} {
		if out, err := s.Cordon(at, c); !fault.Is(err, fault.Invalid) || len(out.Records) > 0 {
			t.Errorf("%s: %v, %d records", what, err, len(out.Records))
		}
	}
	out, err := s.Cordon(at, lifecycle.CordonCommand{Owner: "ann", Reason: "disks", TTL: time.Hour})
	if err != nil || !out.Sync || len(out.Records) != 1 || s.Record(at).State != cluster.Cordoned {
		t.Fatalf("%v %+v", err, out)
	}
	journal := out.Records[0]
	if !s.Next().Equal(at.Add(time.Hour)) {
		t.Fatal(s.Next())
	}
	later := at.Add(30 * time.Minute)
	out, err = s.Cordon(later, lifecycle.CordonCommand{Owner: "bob", Reason: "emptied", Drain: true})
	if c := s.Record(later).Cordon; err != nil || c == nil || c.Owner != "bob" || !c.Since.Equal(at) ||
		!c.Until.IsZero() || s.Record(later).State != cluster.Draining {
		t.Fatalf("%v %+v", err, c)
	}
	_ = out

	again := bareSupervisor()
	if err := again.Restore(lifecycle.Decode(journal)); err != nil {
		t.Fatal(err)
	}
	if again.Recover(later, nil, false); again.Record(later).State != cluster.Cordoned {
		t.Fatal("the cordon was lost")
	}
	over := at.Add(2 * time.Hour)
	out = again.Tick(over)
	if rec := again.Record(over); rec.State != cluster.Ready || rec.Cordon != nil || len(out.Records) != 1 ||
		out.Records[0].Value != nil {
		t.Fatalf("%+v, %+v", rec.Cordon, out.Records)
	}
	if err := again.Restore(lifecycle.Decode(fsm.Record{Bucket: lifecycle.CordonBucket, Key: "worker",
		Value: []byte("{")})); !fault.Is(err, fault.Internal) {
		t.Fatal(err)
	}
	if out, err := again.Cordon(over, lifecycle.CordonCommand{End: true}); err != nil || len(out.Records) > 0 {
		t.Fatal(err, out.Records)
	}
}
