package sim_test

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/soukhq/souk/core/scheduler"
	"github.com/soukhq/souk/core/scheduler/registry"
	"github.com/soukhq/souk/fault"
)

// payloadRules is what a scheduler's payloads are, by the names of their numbers in JSON. Those without a name are the
// numbers of a list.
type payloadRules struct {
	kinds  int      // of messages that have one
	signed []string // may be below zero
	small  []string // may not be much larger than the fleet
}

var payloads = map[string]payloadRules{
	"apollo":     {2, []string{"q", "r", "s", "o"}, []string{"w", "b", "f"}},
	"mercury":    {2, []string{"k", "l", "r", "s", "at"}, []string{"w", "b", "f", "q", "o", "n", ""}},
	"hawk":       {1, []string{"b"}, nil},
	"eagle":      {2, []string{"t"}, nil},
	"market":     {1, []string{"Short", "Long", "Age", "Work", "Task", "Since", "Tasks"}, nil},
	"yarn":       {1, nil, []string{""}},
	"dlwl":       {1, nil, nil},
	"mesos":      {2, nil, []string{"w", "c"}},
	"omega":      {3, nil, []string{"w", "f", ""}},
	"omega-gang": {3, nil, []string{"w", "f", ""}},
}

// sample is a message with a payload, as it was sent.
type sample struct {
	name  string
	fleet scheduler.Fleet
	jobs  []scheduler.Job
	now   scheduler.Time
	msg   scheduler.Msg
}

// TestDamagedPayloadsAreRefused: a payload with numbers that the fleet cannot have, or of another form, is refused, and one
// that is not refused makes no receiver panic.
func TestDamagedPayloadsAreRefused(t *testing.T) {
	for _, name := range registry.Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			samples := map[scheduler.Kind][]sample{}
			for seed := range uint64(20) {
				var drawn []sample
				fleet, _ := runWatched(t, name, seed, func(d *scheduler.Env, m *scheduler.Msg, _ []scheduler.Out) {
					if m != nil && m.Payload != nil && len(drawn) < 100 {
						drawn = append(drawn, sample{name: name, jobs: d.Jobs, now: d.Now, msg: *m})
					}
				})
				for _, s := range drawn {
					if s.fleet = fleet; len(samples[s.msg.Kind]) < 60 {
						samples[s.msg.Kind] = append(samples[s.msg.Kind], s)
					}
				}
			}
			if rules := payloads[name]; len(samples) != rules.kinds {
				t.Errorf("messages of the kinds %v had payloads; %d kinds should", slices.Sorted(maps.Keys(samples)),
					rules.kinds)
			}
			for _, kind := range samples {
				for _, s := range kind {
					s.damage(t)
				}
			}
			s := sample{name: name, fleet: scheduler.Fleet{Workers: 3}, msg: scheduler.Msg{Kind: 99}}
			s.mustRefuse(t, `{}`)
		})
	}
}

// damage changes the payload in each place.
func (s *sample) damage(t *testing.T) {
	sent, err := json.Marshal(s.msg.Payload)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.deliver(t, string(sent)); err != nil {
		t.Fatalf("%s: %v", sent, err)
	}
	for _, text := range []string{"null", "[", `"x"`, "7", string(sent) + "]"} {
		s.mustRefuse(t, text)
	}
	var whole any
	read := json.NewDecoder(strings.NewReader(string(sent)))
	read.UseNumber()
	if err := read.Decode(&whole); err != nil {
		t.Fatal(err)
	}
	rules := payloads[s.name]
	text := func() string {
		out, err := json.Marshal(whole)
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	walk(whole, "", func(key string, old any, set func(any)) {
		for _, bad := range []any{nil, "x", []any{}, map[string]any{}, []any{nil}, -7, 1 << 30, uint64(1<<64 - 1)} {
			set(bad)
			_, number := old.(json.Number)
			_, object := old.(map[string]any)
			switch {
			case bad == "x", object && bad == nil && key == "",
				number && bad == -7 && !slices.Contains(rules.signed, key),
				number && bad == 1<<30 && slices.Contains(rules.small, key):
				s.mustRefuse(t, text())
			case key == "j": // which jobs there are, the receiver finds out
			default:
				_ = s.deliver(t, text())
			}
		}
		set(old)
	})
}

// walk calls visit for each value in x but x itself, with its key, which is "" in a list.
func walk(x any, key string, visit func(key string, old any, set func(any))) {
	switch x := x.(type) {
	case map[string]any:
		for k, v := range x {
			visit(k, v, func(n any) { x[k] = n })
			walk(v, k, visit)
		}
	case []any:
		for i, v := range x {
			visit("", v, func(n any) { x[i] = n })
			walk(v, "", visit)
		}
	}
}

// deliver delivers the message with another payload to a new instance of the scheduler, unless that refuses it.
func (s *sample) deliver(t *testing.T, payload string) error {
	t.Helper()
	defer func() {
		if r := recover(); r != nil {
			t.Fatalf("%+v with the payload %s: %v", s.msg, payload, r)
		}
	}()
	made, err := registry.New(s.name, s.fleet, registry.Options{})
	if err != nil {
		t.Fatal(err)
	}
	m := s.msg
	m.Payload = nil
	if err := m.ReadPayload(made, []byte(payload)); err != nil {
		return err
	}
	d := scheduler.Env{Now: s.now, Self: m.Receiver(), Jobs: s.jobs, RNG: rand.New(rand.NewPCG(1, 2)),
		Delay: scheduler.Second / 2000}
	_ = m.Number()
	made.Deliver(&d, m)
	return nil
}

func (s *sample) mustRefuse(t *testing.T, payload string) {
	t.Helper()
	if err := s.deliver(t, payload); !fault.Is(err, fault.Invalid) {
		t.Fatalf("%+v with the payload %s: %v", s.msg, payload, err)
	}
}

// TestJobTravelsAsJSON: all that a Job says arrives.
func TestJobTravelsAsJSON(t *testing.T) {
	sent := scheduler.Job{Submitted: 1 << 60, Estimate: 2, Tasks: 3, Buyer: 4, Kind: 5, Long: true}
	raw, err := json.Marshal(sent)
	if err != nil {
		t.Fatal(err)
	}
	var read scheduler.Job
	if err := json.Unmarshal(raw, &read); err != nil || read != sent {
		t.Errorf("%s: %+v, %v", raw, read, err)
	}
}
