package manifest

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/core/release"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

var update = flag.Bool("update", false, "write the schema of souk.toml anew")

const whole = `
app = "shop"
note = "first"

# The order of groups is kept.
[groups.web]
image = "nginx:1.29"
replicas = 3
memory = "1g"
cpu = 0.5
command = ["nginx", "-g", "daemon off;"]
env = { MODE = "$HOME", PORT = "80" }
mounts = [{ volume = "data", path = "/data", size = "10g" }, { volume = "vol_4qrz8j", path = "/old" }]
lost_after = "30s"
after = ["db"]
checks.alive = { type = "http", port = 80, path = "/", interval = "2s", timeout = 1000000000 }

[groups.web.update]
strategy = "canary"
max_surge = 2
max_unavailable = "25%"
min_up = "1s"
steps = [{ percent = 10 }, { percent = 50, for = "5m" }]

[[groups.web.services]]
internal_port = 80
autostop = "suspend"
[[groups.web.services.ports]]
port = 80
handlers = ["http"]
[[groups.web.services.ports]]
port = 443
handlers = ["tls", "http"]

[groups.db]
command = ["/bin/sleep", "600"]
on_lost = "never"
[groups.db.guest]
memory_mb = 40
`

// TestLoadReadsAFullManifest: a file that says much is the release that it says.
func TestLoadReadsAFullManifest(t *testing.T) {
	m, err := TOML{}.Load("souk.toml", []byte(whole))
	if err != nil {
		t.Fatal(err)
	}
	if m.App != "shop" || m.Release.Note != "first" || len(m.Release.Groups) != 2 {
		t.Fatalf("%+v", m)
	}
	web, db := m.Release.Groups[0], m.Release.Groups[1]
	second := machine.Duration{Duration: time.Second}
	minutes := machine.Duration{Duration: 5 * time.Minute}
	wantUpdate := &release.Update{Strategy: release.Canary, MaxSurge: "2", MaxUnavailable: "25%", MinUp: &second,
		Steps: []release.CanaryStep{{Percent: 10}, {Percent: 50, For: &minutes}}}
	if web.Name != "web" || *web.Replicas != 3 || web.LostAfter.Duration != 30*time.Second ||
		!slices.Equal(web.After, []string{"db"}) || !reflect.DeepEqual(web.Update, wantUpdate) {
		t.Errorf("%+v", web)
	}
	c := web.Config
	if c.Image != "nginx:1.29" || c.Guest.MemoryMB != 1024 || c.Guest.CPUMilli != 500 || len(c.Init.Cmd) != 3 ||
		c.Env["MODE"] != "$HOME" || len(c.Services[0].Ports) != 2 || *c.Services[0].Autostop != "suspend" ||
		c.Mounts[0] != (machine.Mount{Volume: "data", Path: "/data", SizeGB: 10}) ||
		c.Mounts[1].Volume != "vol_4qrz8j" ||
		*c.Checks["alive"].Timeout != second || *c.Checks["alive"].Kind != machine.KindReadiness {
		t.Errorf("%+v", c)
	}
	if db.Name != "db" || db.Config.Image != machine.HostImage || len(db.Config.Init.Exec) != 2 ||
		db.OnLost != "never" || db.Config.Guest.MemoryMB != 40 || db.Replicas != nil {
		t.Errorf("%+v, %+v", db, db.Config)
	}
}

// TestRefusedManifestNamesLineAndFix: the error for a mistake has its line and column, and what was wanted there.
func TestRefusedManifestNamesLineAndFix(t *testing.T) {
	for _, x := range []struct{ text, want string }{
		{"", `1:1: it has no group, so there is nothing to run: add one, as in [groups.web] with an image`},
		{"app = \"shop\"\n\n[groups.web]\nreplica = 3", `4:1: unknown key "replica" in groups.web; did you mean "replicas"?`},
		{"[grups.web]", `1:2: unknown key "grups"; did you mean "groups"?`},
		{"image = \"nginx\"", `1:1: unknown key "image"; it belongs to a group, as in [groups.web]`},
		{"[groups.web]\n  colour = 1", `2:3: unknown key "colour" in groups.web; docs/reference/souk-toml.md lists those that there are`},
		{"[groups.web]\nname = \"web\"", `2:1: unknown key "name" in groups.web: the group's name stands in its heading, as in [groups.web]`},
		{"[groups.web.config]\nimage = \"x\"", `1:13: unknown key "config" in groups.web: the keys of config stand in the group itself: image, env, services and so on`},
		{"groups.web = { image = \"x\", replcas = 3 }", `1:29: unknown key "replcas" in groups.web; did you mean "replicas"?`},
		{"[groups.web]\nservices = [{ internal_port = 1 }, { internal_prt = 2 }]", `2:38: unknown key "internal_prt" in groups.web.services[1]; did you mean "internal_port"?`},
		{"[[groups.web.services]]\n[[groups.web.services]]\n[groups.web.services.ports]", `3:22: groups.web.services[1].ports is a table, and an array is wanted`},
		{"[groups.web]\nreplicas = \"3\"", `2:12: groups.web.replicas is a text, and a whole number is wanted`},
		{"[groups.web]\nreplicas = 2.5", `2:12: groups.web.replicas is a number with a fraction, and a whole number is wanted`},
		{"[groups.web]\nimage = 3", `2:9: groups.web.image is a whole number, and a text is wanted`},
		{"[groups.web]\nimage = 2026-01-01", `2:9: groups.web.image is a date or a time, and a text is wanted`},
		{"[groups.web]\nenv = [\"A=1\"]", `2:1: groups.web.env is an array, and a table is wanted`},
		{"[groups.web]\nenv = { \"a.b\" = 1 }", `2:17: groups.web.env."a.b" is a whole number, and a text is wanted`},
		{"[groups.web]\nlost_after = \"3 s\"", `2:14: groups.web.lost_after is wrong: "3 s" is not a duration; write it as "15s", "2m" or "500ms"`},
		{"[groups.web]\nmemory = \"1q\"", `2:10: groups.web.memory is wrong: memory is whole MiB, such as 512m or 2g, not "1q"`},
		{"[groups.web]\ncpu = 0.0001", `2:7: groups.web.cpu is wrong: CPU is in cores, such as 0.3 or 2: at least 0.01, in thousandths, not "0.0001"`},
		{"[groups.web]\ncpu = 1\ncpus = 1", `2:1: groups.web has cpu and cpus, which both say how much CPU, cpu in cores and cpus in CPUs of the kind: say one of them`},
		{"[groups.web]\ncpus = 0", `2:1: groups.web.cpus is 1 or more, not 0`},
		{"[groups.web]\nmemory = 64\nguest.memory_mb = 64", `2:1: groups.web.memory is said by groups.web.guest, too: say it once`},
		{"[groups.web]\nmemory = 64\nsize = \"shared-cpu-1x\"", `3:1: groups.web.size is a preset, which does not go with memory, cpu and cpus: say one of the two`},
		{"[groups.web]\ncommand = [\"a\"]\ninit.exec = [\"b\"]", `2:1: groups.web.command is said by groups.web.init, too: say it once`},
		{"[groups.web]\nfiles = [{ guest_path = \"/a\", mode = -1 }]", `2:38: groups.web.files[0].mode is -1, and must not be below 0`},
		{"[groups.web]\nupdate.max_surge = 0.5", `2:20: groups.web.update.max_surge is a number with a fraction, and a number such as 5 or a part such as "25%" is wanted`},
		{"[groups.web]\nmounts = [{ volume = \"a\", size = \"1t\" }]", `2:34: groups.web.mounts[0].size is wrong: the size of a volume is a whole number of GB, such as 10 or "10g", not "1t"`},
		{"[groups.web]\nmounts = [{ volume = \"a\", size = 1, size_gb = 1 }]", `2:27: groups.web.mounts[0].size and size_gb both say how large the volume is: say it once`},
		{"[groups.web]\nmounts = [{ volume = \"vol_4qrz8j\", size = 1 }]", `2:36: groups.web.mounts[0].size is for a volume by name, which a deploy makes where there is none; vol_4qrz8j is the id of one that is there: leave size out`},
		{"[groups.web\nimage = 1", `1:12: `},
		{"app = \"a\"\napp = \"b\"", `2:1: `},
		{"app = \"ä\" x", `1:11: `},
		{"app = \"\xff\"", `1:8: it is no UTF-8 text from here on: save it as UTF-8`},
		{"#" + strings.Repeat("x", MaxFile), `1:1: it has 1048577 bytes, and 1048576 are the most: put large files into the image, or fetch them at start`},
	} {
		_, err := TOML{}.Load("souk.toml", []byte(x.text))
		got := ""
		if err != nil {
			got = fault.As(err).Text
		}
		want := "souk.toml:" + x.want
		if fault.CodeOf(err) != "manifest" || got != want && !(strings.HasSuffix(x.want, ": ") &&
			strings.HasPrefix(got, want)) {
			t.Errorf("%.60q:\n%s\nwant\n%s", x.text, got, want)
		}
	}
}

// TestGroupKeysAreUnique: the keys of a group are those of a release's group, of a config and the short forms, each once.
func TestGroupKeysAreUnique(t *testing.T) {
	seen := map[string]reflect.Type{}
	for _, of := range []reflect.Type{reflect.TypeFor[api.NewGroup](), reflect.TypeFor[machine.Config](),
		reflect.TypeFor[short]()} {
		for key := range keysOf(of) {
			if other := seen[key]; other != nil {
				t.Errorf("%s and %s both have %q", of, other, key)
			}
			seen[key] = of
		}
	}
	for key := range elsewhere() {
		if seen[key] != reflect.TypeFor[api.NewGroup]() {
			t.Errorf("%q is no key of a release's group", key)
		}
	}
}

// TestSchemaMatchesTheTypes holds the schema that editors use against the types. With -update it writes it.
func TestSchemaMatchesTheTypes(t *testing.T) {
	const golden = "../../docs/reference/souk-toml.schema.json"
	if *update {
		if err := os.WriteFile(golden, Schema(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	onDisk, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(onDisk, Schema()) {
		t.Error("the schema is not what the types say; run go test ./api/manifest -run Schema -update")
	}
}

// TestReferenceCoversEveryManifestKey holds docs/reference/souk-toml.md against the types: each key that is a group's own or a short
// form has a row, and each row a key.
func TestReferenceCoversEveryManifestKey(t *testing.T) {
	raw, err := os.ReadFile("../../docs/reference/souk-toml.md")
	if err != nil {
		t.Fatal(err)
	}
	var rows, keys []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(string(raw), -1) {
		rows = append(rows, m[1])
	}
	for prefix, of := range map[string]reflect.Type{"": reflect.TypeFor[file](),
		"groups.NAME.": reflect.TypeFor[api.NewGroup](), "groups.NAME. ": reflect.TypeFor[short]()} {
		for key := range keysOf(of) {
			if elsewhere()[key] == "" || of != reflect.TypeFor[api.NewGroup]() {
				keys = append(keys, strings.TrimSpace(prefix)+key)
			}
		}
	}
	slices.Sort(rows)
	slices.Sort(keys)
	if !slices.Equal(rows, keys) {
		t.Errorf("the rows are of\n%q, the keys\n%q", rows, keys)
	}
	for _, m := range regexp.MustCompile("(?s)```toml\n(.*?)```").FindAllStringSubmatch(string(raw), -1) {
		if _, err := (TOML{}).Load("souk-toml.md", []byte(m[1])); err != nil {
			t.Error(err)
		}
	}
}

// drawn draws a release that a file can say.
func drawn(t *rapid.T) api.NewRelease {
	word := rapid.StringMatching(`[a-zA-Z0-9 ./:$"'\\_-]{1,12}`)
	r := api.NewRelease{Note: rapid.SampledFrom([]string{"", "a \"note\""}).Draw(t, "note")}
	for _, name := range rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z]{1,8}`), 1, 4,
		rapid.ID[string]).Draw(t, "groups") {
		c := &machine.Config{Image: rapid.SampledFrom([]string{"nginx:1", machine.HostImage}).Draw(t, "image"),
			Env:      rapid.MapOfN(word, word, 0, 3).Draw(t, "env"),
			Metadata: rapid.MapOfN(word, word, 0, 2).Draw(t, "metadata")}
		c.Init.Exec = rapid.SliceOfN(word, 0, 3).Draw(t, "exec")
		if rapid.Bool().Draw(t, "guest") {
			c.Guest = &machine.Guest{CPUMilli: rapid.IntRange(10, 4000).Draw(t, "cpu"), MemoryMB: 64}
		}
		if rapid.Bool().Draw(t, "mount") {
			c.Mounts = []machine.Mount{{Volume: rapid.SampledFrom([]string{"data", "vol_4qrz8j"}).Draw(t, "volume"),
				Name: "data", Path: "/data", SizeGB: rapid.IntRange(0, 1).Draw(t, "size")}}
		}
		if rapid.Bool().Draw(t, "service") {
			stop := rapid.SampledFrom([]machine.Autostop{"off", "stop", "suspend"}).Draw(t, "autostop")
			c.Services = []machine.Service{{InternalPort: 80, Autostop: &stop,
				Ports: []machine.Port{{Port: new(80)}, {Port: new(443), Handlers: []string{"tls"}}}}}
			kind := rapid.SampledFrom([]string{machine.KindReadiness, machine.KindInformational}).Draw(t, "kind")
			c.Checks = map[string]machine.CheckConfig{"a.b": {Kind: &kind}}
		}
		g := api.NewGroup{Group: release.Group{Name: name, Config: c, Region: rapid.SampledFrom([]string{"",
			"iad"}).Draw(t, "region")}}
		if rapid.Bool().Draw(t, "counted") {
			g.Replicas = new(rapid.IntRange(0, 1000).Draw(t, "replicas"))
		}
		if rapid.Bool().Draw(t, "updated") {
			d := machine.Duration{Duration: time.Duration(rapid.Int64Range(0, 1e12).Draw(t, "up"))}
			g.LostAfter = &d
			g.Update = &release.Update{Strategy: release.Canary, MaxSurge: "25%", MinUp: &d,
				Steps: []release.CanaryStep{{Percent: 1}, {Percent: 2, For: &d}}}
			g.Scheduling = &machine.Scheduling{Priority: 1}
		}
		r.Groups = append(r.Groups, g)
	}
	slices.SortFunc(r.Groups, func(a, b api.NewGroup) int { return strings.Compare(a.Name, b.Name) })
	return r
}

// TestReleasePrintedAsTOMLReadsBack: a release that is printed as TOML reads as the same release.
func TestReleasePrintedAsTOMLReadsBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawn(t)
		text, err := Write("shop", &want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := TOML{}.Load("souk.toml", text)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		slices.SortFunc(got.Release.Groups, func(a, b api.NewGroup) int { return strings.Compare(a.Name, b.Name) })
		a, _ := json.Marshal(want)
		b, _ := json.Marshal(got.Release)
		if diff := cmp.Diff(string(a), string(b)); diff != "" || got.App != "shop" {
			t.Fatalf("%s\n%s", diff, text)
		}
	})
}

// TestManifestChecksGateRequestsAndRollouts: a check of a file is one that requests and rollouts depend on, unless it says otherwise; one of a
// release that was made over the API and says nothing stays what it is there.
func TestManifestChecksGateRequestsAndRollouts(t *testing.T) {
	for _, x := range []struct{ says, want string }{
		{``, machine.KindReadiness}, {`kind = ""`, machine.KindReadiness},
		{`kind = "readiness"`, machine.KindReadiness}, {`kind = "informational"`, machine.KindInformational},
	} {
		m, err := TOML{}.Load("f", []byte("[groups.web]\n[groups.web.checks.up]\nport = 80\n"+x.says))
		if err != nil {
			t.Fatal(err)
		}
		c := m.Release.Groups[0].Config
		if got := *c.Checks["up"].Kind; got != x.want {
			t.Errorf("%q is %s, want %s", x.says, got, x.want)
		}
	}
	made := api.NewRelease{Groups: []api.NewGroup{{Group: release.Group{Name: "web",
		Config: &machine.Config{Image: "a:1",
			Checks: map[string]machine.CheckConfig{"up": {}}}}}}}
	text, err := Write("shop", &made)
	if err != nil {
		t.Fatal(err)
	}
	read, err := TOML{}.Load("f", text)
	if err != nil {
		t.Fatal(err)
	}
	if got := *read.Release.Groups[0].Config.Checks["up"].Kind; got != machine.KindInformational {
		t.Errorf("a check of the API is %s when it was printed and read\n%s", got, text)
	}
	if made.Groups[0].Config.Checks["up"].Kind != nil {
		t.Error("printing a release changes it")
	}
}

// FuzzLoadNeverPanicsAndLocatesErrors: no file makes the loader panic, and each error says where.
func FuzzLoadNeverPanicsAndLocatesErrors(f *testing.F) {
	f.Add(whole)
	f.Add("[groups.web]\nupdate = { steps = [[1]] }\n[[groups.web.services]]\nports = [1, {}]")
	f.Add("[[groups]]\n[groups.web]\n\"\" = 1")
	f.Add("groups.a.env.\"\".b = nan")
	where := regexp.MustCompile(`^f:[0-9]+:[0-9]+: `)
	f.Fuzz(func(t *testing.T, text string) {
		m, err := TOML{}.Load("f", []byte(text))
		if err != nil && !where.MatchString(fault.As(err).Text) || err == nil && len(m.Release.Groups) == 0 {
			t.Errorf("%q: %+v, %v", text, m, err)
		}
	})
}
