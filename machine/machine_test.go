package machine_test

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	mathrand "math/rand/v2"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/oklog/ulid/v2"
	"pgregory.net/rapid"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

func chance() *mathrand.Rand { return mathrand.New(mathrand.NewPCG(1, 2)) }

func TestIDsAreUniqueAndWellFormed(t *testing.T) {
	seen := map[string]bool{}
	c := chance()
	for range 1000 {
		id, vol, name := machine.NewID(rand.Reader), machine.NewVolumeID(rand.Reader), machine.NewName(c)
		if !machine.ValidID(id) || !machine.ValidVolumeID(vol) || !machine.ValidName(name) || !machine.ValidApp(name) {
			t.Fatalf("%q %q %q", id, vol, name)
		}
		if seen[id] || seen[vol] {
			t.Fatalf("%s or %s came twice", id, vol)
		}
		seen[id], seen[vol] = true, true
	}
	if got := machine.NewID(bytes.NewReader([]byte{0xd8, 0x91, 0x27, 0x5c, 0x2e, 0x51,
		0x18})); got != "d891275c2e5118" {
		t.Errorf("%s", got)
	}
	defer func() {
		if recover() == nil {
			t.Error("an id is drawn from nothing")
		}
	}()
	machine.NewID(bytes.NewReader(nil))
}

func TestIDsAndNamesAreValidated(t *testing.T) {
	long := strings.Repeat("a", 64)
	for s, want := range map[string][4]bool{ // id, volume, name, app
		"":               {},
		"d891275c2e5118": {true, false, true, true},
		"d891275c2e511":  {false, false, true, true},
		"D891275C2E5118": {},
		"g891275c2e5118": {false, false, true, true},
		"vol_":           {false, false, true, false},
		"vol_4qrz8j":     {false, true, true, false},
		"vol_../../etc":  {},
		"web.1_a":        {false, false, true, false},
		"-web":           {},
		"..":             {},
		"a/b":            {},
		"é":              {},
		long:             {},
		long[:63]:        {false, false, true, true},
	} {
		got := [4]bool{machine.ValidID(s), machine.ValidVolumeID(s), machine.ValidName(s), machine.ValidApp(s)}
		if got != want {
			t.Errorf("%q: id, volume, name, app %v, want %v", s, got, want)
		}
	}
}

func TestULIDsAreOrderedAndParsed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := mathrand.New(mathrand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		now := time.UnixMilli(rapid.Int64Range(0, 1<<48-1).Draw(t, "now"))
		id := machine.NewULID(now, c)
		theirs, err := ulid.ParseStrict(id)
		if err != nil || theirs.Time() != uint64(now.UnixMilli()) || !machine.ValidULID(id) {
			t.Fatalf("%s: %v", id, err)
		}
		last := ""
		for range 50 { // clocks stand still and go back; ids do not
			now = now.Add(rapid.SampledFrom([]time.Duration{0, 0, 1, time.Millisecond, -time.Second}).Draw(t, "step"))
			if now.UnixMilli() < 0 || now.UnixMilli() >= 1<<48 {
				return
			}
			next := machine.NextULID(last, now, c)
			if next <= last || !machine.ValidULID(next) {
				t.Fatalf("%s behind %s", next, last)
			}
			last = next
		}
	})
	for _, s := range []string{"", "01ARZ3NDEKTSV4RRFFQ69G5FA", "81ARZ3NDEKTSV4RRFFQ69G5FAV",
		"01ARZ3NDEKTSV4RRFFQ69G5FAU", "01arz3ndektsv4rrffq69g5fav"} {
		if machine.ValidULID(s) {
			t.Errorf("%q is taken for a ULID", s)
		}
	}
}

func TestParseImageFillsRegistryAndTag(t *testing.T) {
	digest := "sha256:" + strings.Repeat("ab", 32)
	for image, want := range map[string]machine.ImageRef{
		"nginx":                         {Registry: "docker.io", Repository: "library/nginx", Tag: "latest"},
		"nginx:1.29":                    {Registry: "docker.io", Repository: "library/nginx", Tag: "1.29"},
		"docker.io/nginx":               {Registry: "docker.io", Repository: "library/nginx", Tag: "latest"},
		"index.docker.io/me/app:1":      {Registry: "docker.io", Repository: "me/app", Tag: "1"},
		"souk/host":                     {Registry: "docker.io", Repository: "souk/host", Tag: "latest"},
		"localhost/a":                   {Registry: "localhost", Repository: "a", Tag: "latest"},
		"localhost:5000/a:b":            {Registry: "localhost:5000", Repository: "a", Tag: "b"},
		"ghcr.io/me/app/x@" + digest:    {Registry: "ghcr.io", Repository: "me/app/x", Digest: digest},
		"ghcr.io/me/app:v1@" + digest:   {Registry: "ghcr.io", Repository: "me/app", Tag: "v1", Digest: digest},
		"registry.fly.io/web:deploy-01": {Registry: "registry.fly.io", Repository: "web", Tag: "deploy-01"},
	} {
		got := machine.ParseImage(image)
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", image, d)
		}
		if err := machine.CheckImage(image); err != nil {
			t.Error(err)
		}
		if again := machine.ParseImage(got.String()); !reflect.DeepEqual(again, got) {
			t.Errorf("%s comes back from %s as %+v", image, got, again)
		}
	}
	for image, want := range map[string]bool{
		"souk/host": true, "souk/host:latest": true, "docker.io/souk/host:latest": true, "ghcr.io/souk/host": false,
		"nginx": false, "": false,
	} {
		if machine.IsHostImage(image) != want {
			t.Errorf("IsHostImage(%q) is %v", image, !want)
		}
	}
}

func TestSignalsParseByNameAndNumber(t *testing.T) {
	for s, want := range map[string]syscall.Signal{
		"SIGTERM": 15, "TERM": 15, "term": 15, "15": 15, "9": 9, "SIGKILL": 9, "sigint": 2, "USR1": syscall.SIGUSR1,
		"SIGRTMIN": 34, "SIGRTMIN+3": 37, "rtmin+30": 64, "RTMAX-2": 62, "SIGRTMAX": 64, "64": 64, "37": 37, "1": 1,
		"SIGCONT": 18, "SIGTTIN": 21, "ttou": 22, "SIGSTOP": 19, "SIGIOT": 6, "SIGPWR": 30,
	} {
		if got, err := machine.ParseSignal(s); err != nil || got != want {
			t.Errorf("%s: %v, %v", s, got, err)
		}
	}
	for _, s := range []string{"", "0", "-1", "65", "SIG", "SIGNOPE", "9.0", "SIGRTMIN+31", "SIGRTMIN-1",
		"SIGRTMAX+1", "SIGRTMIN+", "SIGRTMIN3", "SIGRTMIN+x", "SIGRTMIN++3", "SIGSIGTERM",
		strings.Repeat("9", 400)} {
		if got, err := machine.ParseSignal(s); !fault.Is(err, fault.Invalid) || len(err.Error()) > 400 {
			t.Errorf("%q: %v, %v", s, got, err)
		}
	}
	for raw, want := range map[string]string{`9`: "9", `"SIGKILL"`: "SIGKILL", `null`: "", `"9"`: "9"} {
		var s machine.SignalText
		if err := json.Unmarshal([]byte(raw), &s); err != nil || string(s) != want {
			t.Errorf("%s: %q, %v", raw, s, err)
		}
	}
	var s machine.SignalText
	if err := json.Unmarshal([]byte(`[9]`), &s); !fault.Is(err, fault.Invalid) {
		t.Errorf("a list: %v", err)
	}
	for sig, want := range map[syscall.Signal]string{15: "SIGTERM", 37: "SIGRTMIN+3", 34: "SIGRTMIN", 32: "signal 32"} {
		if got := machine.SignalName(sig); got != want {
			t.Errorf("the name of %d is %q, want %q", sig, got, want)
		}
	}
}

func config(t *testing.T, over string) *machine.Config {
	t.Helper()
	l, err := machine.DecodeLaunch(body(t, "C"+over))
	if err != nil {
		t.Fatal(err)
	}
	l.Normalize()
	if err := l.Validate(); err != nil {
		t.Fatal(err)
	}
	return l.Config
}

func TestResourcesFollowGuestSize(t *testing.T) {
	for over, want := range map[string]cluster.Resources{
		`{}`:                                     {CPU: 62, Memory: 256},
		`{"guest": {"cpus": 4}}`:                 {CPU: 248, Memory: 1024},
		`{"guest": {"cpu_kind": "performance"}}`: {CPU: 1000, Memory: 2048},
		`{"size": "performance-2x"}`:             {CPU: 2000, Memory: 4096},
		`{"guest": {"gpu_kind": "a10"}}`: {CPU: 62, Memory: 256, GPU: 1000,
			Named: map[string]int64{"gpu.a10": 1000}},
		`{"guest": {"gpus": 2}}`:     {CPU: 62, Memory: 256, GPU: 2000},
		`{"rootfs": {"size_gb": 3}}`: {CPU: 62, Memory: 256, Disk: 3072},
		`{"services": [{"internal_port": 80}, {"internal_port": 80}, {"internal_port": 81}]}`: {CPU: 62, Memory: 256,
			Ports: 2},
	} {
		if d := cmp.Diff(want, machine.Resources(config(t, over))); d != "" {
			t.Errorf("%s (-want +got):\n%s", over, d)
		}
	}
}

func TestArgvCombinesEntrypointAndCommand(t *testing.T) {
	for over, want := range map[string]string{
		`{"init": {"exec": ["a", "b"], "entrypoint": ["c"], "cmd": ["d"]}}`:             "a b",
		`{"init": {"entrypoint": ["c", "e"], "cmd": ["d"]}}`:                            "c e d",
		`{"init": {"cmd": ["d", "f"]}}`:                                                 "d f",
		`{"init": {"exec": ["a"]}, "processes": [{"entrypoint": ["x"], "cmd": ["y"]}]}`: "x y",
		`{"init": {"exec": ["a"]}, "processes": [{"env": {"A": "1"}}]}`:                 "a",
		`{"image": "nginx", "init": {}}`:                                                "",
		`{"image": "nginx", "init": {"entrypoint": [""], "cmd": ["d"]}}`:                "d",
	} {
		if got := strings.Join(machine.Argv(config(t, over)), " "); got != want {
			t.Errorf("%s: %q, want %q", over, got, want)
		}
	}
}

func TestEnvironmentMergesImageConfigAndSecrets(t *testing.T) {
	c := config(t, `{"env": {"A": "1", "B": "2"}, "processes": [{"user": "nobody", "env": {"B": "3"}, "secrets": [{"env_var": "S", "name": "T"}, {"env_var": "U"}, {"env_var": "V"}],
		"env_from": [{"env_var": "ID", "field_ref": "id"}, {"env_var": "VER", "field_ref": "version"}, {"env_var": "APP", "field_ref": "app_name"},
		{"env_var": "IP", "field_ref": "private_ip"}, {"env_var": "REG", "field_ref": "region"}, {"env_var": "IMG", "field_ref": "image"}]}]}`)
	m := &machine.Machine{ID: "id", InstanceID: "ver", App: "app", PrivateIP: "ip", Region: "reg", Config: c}
	want := map[string]string{"A": "1", "B": "3", "ID": "id", "VER": "ver", "APP": "app", "IP": "ip", "REG": "reg",
		"IMG": "souk/host"}
	if d := cmp.Diff(want, machine.Environment(m)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if machine.User(c) != "nobody" || machine.User(config(t, `{}`)) != "" {
		t.Error("user")
	}
	all := map[string]string{"T": "t", "U": "u", "W": "w"}
	got, missing := machine.Secrets(c, all)
	if d := cmp.Diff(map[string]string{"S": "t", "U": "u"}, got); d != "" ||
		!reflect.DeepEqual(missing, []string{"V"}) {
		t.Errorf("missing %v (-want +got):\n%s", missing, d)
	}
	if got, missing := machine.Secrets(config(t, `{}`), all); !reflect.DeepEqual(got, all) || missing != nil {
		t.Errorf("%v %v", got, missing)
	}
	if got, _ := machine.Secrets(config(t, `{"processes": [{"ignore_app_secrets": true}]}`), all); len(got) != 0 {
		t.Errorf("%v", got)
	}
}

// TestCloneSharesNothing changes everything a copy can reach: nothing of the first changes.
func TestCloneSharesNothing(t *testing.T) {
	m, n := &machine.Machine{}, 0
	fill(reflect.ValueOf(m).Elem(), &n)
	before, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	c := m.Clone()
	if !reflect.DeepEqual(m, c) {
		t.Errorf("(-first +copy):\n%s", cmp.Diff(m, c))
	}
	scribble(reflect.ValueOf(c).Elem())
	after, err := json.Marshal(m)
	if err != nil || !bytes.Equal(before, after) {
		t.Errorf("the first was changed by its copy: %v", err)
	}
	s := m.Summary()
	if s.Config != nil || len(s.Events) != 0 || s.Events == nil || s.ID != m.ID || m.Config == nil {
		t.Errorf("summary %+v", s)
	}
	if (*machine.Config)(nil).Clone() != nil {
		t.Error("a copy of nothing is something")
	}
}

func scribble(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		scribble(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			scribble(v.Field(i))
		}
	case reflect.Slice:
		for i := range v.Len() {
			scribble(v.Index(i))
		}
	case reflect.Map:
		for k := range v.Seq2() {
			v.SetMapIndex(k, reflect.Value{})
		}
	case reflect.String:
		if v.CanSet() {
			v.SetString("scribbled")
		}
	case reflect.Int, reflect.Int64:
		if v.CanSet() {
			v.SetInt(-1)
		}
	}
}

func TestScalarsReadEveryAcceptedForm(t *testing.T) {
	for _, c := range []struct{ in, out string }{
		{`"15s"`, `"15s"`}, {`15000000000`, `"15s"`}, {`"1m30s"`, `"1m30s"`}, {`0`, `"0s"`}, {`"0s"`, `"0s"`},
		{`null`, `"0s"`},
	} {
		var d machine.Duration
		err := json.Unmarshal([]byte(c.in), &d)
		out, err2 := json.Marshal(d)
		if errors.Join(err, err2) != nil || string(out) != c.out {
			t.Errorf("duration %s: %s, %v", c.in, out, errors.Join(err, err2))
		}
	}
	for _, c := range []struct{ in, out string }{
		{`true`, `true`}, {`false`, `false`}, {`"stop"`, `true`}, {`"off"`, `false`}, {`"suspend"`, `"suspend"`},
		{`null`, `false`},
	} {
		var a machine.Autostop
		err := json.Unmarshal([]byte(c.in), &a)
		out, err2 := json.Marshal(a)
		if errors.Join(err, err2) != nil || string(out) != c.out {
			t.Errorf("autostop %s: %s, %v", c.in, out, errors.Join(err, err2))
		}
	}
}
