package machine_test

import (
	"encoding/json"
	"os"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// FuzzDecodeLaunchRoundTripsOrRefuses: whatever comes, no panic; what is refused is refused with a sentence; what is accepted reads the
// same after it was written, and stays accepted.
func FuzzDecodeLaunchRoundTripsOrRefuses(f *testing.F) {
	for _, c := range refused() {
		if b := body(f, c[1]); len(b) < 4096 {
			f.Add(b)
		}
	}
	in, err := os.ReadFile("testdata/everything.json")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(in)
	f.Add(typical())
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := machine.DecodeLaunch(b)
		if err != nil {
			if e := fault.As(err); e.Kind != fault.Invalid || e.Code == "" || len(e.Text) > 4000 {
				t.Fatalf("kind %q, code %q: %.500v", e.Kind, e.Code, err)
			}
			return
		}
		again := roundTrip(t, l)
		if !reflect.DeepEqual(l, again) {
			t.Fatalf("(-read +read again):\n%s", cmp.Diff(l, again))
		}
		l.Normalize()
		if err := l.Validate(); err != nil {
			if e := fault.As(err); e.Kind != fault.Invalid || e.Code == "" || len(e.Text) > 4000 {
				t.Fatalf("kind %q, code %q: %.500v", e.Kind, e.Code, err)
			}
			return
		}
		checkBounds(t, l)
		again = roundTrip(t, l)
		again.Normalize()
		if err := again.Validate(); err != nil || !reflect.DeepEqual(l, again) {
			t.Fatalf("normalized a second time: %v\n%s", err, cmp.Diff(l, again))
		}
		machine.Warnings(l.Config)
		if c := l.Clone(); !reflect.DeepEqual(l, c) {
			t.Fatalf("the clone differs:\n%s", cmp.Diff(l, c))
		}
	})
}

func roundTrip(t *testing.T, l *machine.Launch) *machine.Launch {
	t.Helper()
	raw, err := json.Marshal(l)
	if err != nil {
		t.Fatal(err)
	}
	again, err := machine.DecodeLaunch(raw)
	if err != nil {
		t.Fatalf("%v\n%s", err, raw)
	}
	normalizeEmpty(reflect.ValueOf(l).Elem())
	normalizeEmpty(reflect.ValueOf(again).Elem())
	return again
}

// normalizeEmpty makes empty lists and maps nil: "[]" and nothing mean the same and are written as nothing.
func normalizeEmpty(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			normalizeEmpty(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			normalizeEmpty(v.Field(i))
		}
	case reflect.Slice, reflect.Map:
		if v.Len() == 0 && v.CanSet() && !v.IsNil() {
			v.SetZero()
			return
		}
		if v.Kind() == reflect.Slice {
			for i := range v.Len() {
				normalizeEmpty(v.Index(i))
			}
			return
		}
		for k, e := range v.Seq2() {
			c := reflect.New(e.Type()).Elem()
			c.Set(e)
			normalizeEmpty(c)
			v.SetMapIndex(k, c)
		}
	}
}

func checkBounds(t *testing.T, l *machine.Launch) {
	t.Helper()
	c := l.Config
	r := machine.Resources(c)
	if !r.Valid() || r.CPU < machine.SharedMilli || r.Memory < 256 {
		t.Fatalf("it asks for %v", r)
	}
	if len(machine.Argv(c)) > 2*machine.MaxArgs || len(c.Env) > machine.MaxEnv || len(c.Files) > machine.MaxFiles ||
		len(c.Mounts) > machine.MaxMounts {
		t.Fatal("bounds are passed")
	}
}

// typical is a small launch as the Go client sends it.
func typical() []byte {
	return []byte(`{"config":{"env":{"PORT":"8080","LOG_LEVEL":"info"},"init":{"exec":["/bin/sh","-c","echo hello; sleep 60"]},
		"guest":{"cpu_kind":"shared","cpus":1,"memory_mb":256},"metadata":{"fly_platform_version":"v2","fly_process_group":"app"},
		"services":[{"protocol":"tcp","internal_port":8080,"autostop":false,"autostart":true,"ports":[{"port":80,"handlers":["http"],"force_https":true},
		{"port":443,"handlers":["http","tls"]}],"concurrency":{"type":"requests","hard_limit":25,"soft_limit":20},"force_instance_key":null}],
		"checks":{"alive":{"type":"http","port":8080,"path":"/","interval":"15s","timeout":"2s","grace_period":"5s"}},"image":"souk/host",
		"files":[{"guest_path":"/etc/app.conf","raw_value":"aGVsbG8gd29ybGQK","mode":420}],"restart":{"policy":"on-failure","max_retries":3},
		"stop_config":{"timeout":"10s","signal":"SIGTERM"}},"region":"local","name":"web-1","skip_secrets":false}`)
}

const small = `{"config":{"env":{"A":"1"},"init":{"exec":["/bin/sleep","60"]},"guest":{"cpu_kind":"shared","cpus":1,"memory_mb":256},"image":"souk/host"},"region":"local","skip_secrets":false}`

func BenchmarkLaunchDecoding(b *testing.B) {
	for name, in := range map[string][]byte{"small": []byte(small), "typical": typical()} {
		b.Run("read/"+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := machine.DecodeLaunch(in); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("floor, json.Unmarshal/"+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := json.Unmarshal(in, &machine.Launch{}); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("normalize and validate/"+name, func(b *testing.B) {
			l, err := machine.DecodeLaunch(in)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				l.Normalize()
				if err := l.Validate(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
