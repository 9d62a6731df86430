package machine_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

var update = flag.Bool("update", false, "rewrite golden files")

// refused are launches that must be refused, one for each sentence. C{...} stands for a whole launch whose config
// is a good one with these fields on top.
func refused() [][2]string {
	long := strings.Repeat("x", 200)
	many := func(n int, entry string) string { return strings.TrimSuffix(strings.Repeat(entry+",", n), ",") }
	numbered := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `"k%d":"v",`, i)
		}
		return strings.TrimSuffix(b.String(), ",")
	}
	return [][2]string{
		{"empty", ``},
		{"same: spaces", "  \n"},
		{"not json", `config: {}`},
		{"cut off", `{"config": {"image": "souk/ho`},
		{"trailing data", `{"config": {}} {"config": {}}`},
		{"trailing comma", `{"name": "a",}`},
		{"a list", `[]`},
		{"null", `null`},
		{"not UTF-8", "{\"name\": \"\xff\"}"},
		{"too long", `{"name": "` + strings.Repeat("x", machine.MaxBody) + `"}`},
		{"unknown at the top", `{"nmae": "a"}`},
		{"unknown far from all", `{"quorum": 3}`},
		{"unknown with control characters", `{"a\u001b[31m": 3}`},
		{"unknown and long", `{"` + long + `": 3}`},
		{"wrong case", `{"Config": {}}`},
		{"unknown within", `C{"guest": {"cpu": 2}}`},
		{"unknown in a list", `C{"files": [{"guest_path": "/a", "raw_value": ""}, {"path": "/b"}]}`},
		{"unknown in a map", `C{"checks": {"alive": {"intervall": "1s"}}}`},
		{"given twice", `{"name": "a", "name": "b"}`},
		{"same: given twice with an escape", `{"name": "a", "n\u0061me": "b"}`},
		{"map key twice", `C{"env": {"A": "1", "A": "2"}}`},
		{"object for text", `{"name": {}}`},
		{"number for text", `C{"env": {"PORT": 80}}`},
		{"text for number", `C{"guest": {"cpus": "2"}}`},
		{"fraction for whole", `C{"guest": {"cpus": 1.5}}`},
		{"exponent for whole", `C{"guest": {"cpus": 1e1}}`},
		{"number too large", `C{"guest": {"cpus": 99999999999999999999}}`},
		{"negative for unsigned", `C{"rootfs": {"size_gb": -1}}`},
		{"network mode", `{"config": {"image": "nginx", "network": {"mode": "bridge"}}}`},
		{"network of a program of the host", `C{"network": {"mode": "own"}}`},
		{"port of a program of the host", `C{"network": {"publish": [{"host_port": 80, "port": 80}]}}`},
		{"port without a network",
			`{"config": {"image": "nginx", "network": {"mode": "none", "publish": [{"host_port": 80, "port": 80}]}}}`},
		{"port 0", `{"config": {"image": "nginx", "network": {"publish": [{"port": 80}]}}}`},
		{"port to nowhere", `{"config": {"image": "nginx", "network": {"publish": [{"host_port": 80}]}}}`},
		{"port of no protocol",
			`{"config": {"image": "nginx", "network": {"publish": [{"host_port": 80, "port": 80, "protocol": "sctp"}]}}}`},
		{"port twice", `{"config": {"image": "nginx", "network": {"publish": [` +
			many(2, `{"host_port": 80, "port": 80}`) + `]}}}`},
		{"port at one address and at all", `{"config": {"image": "nginx", "network": {"publish": [` +
			`{"address": "127.0.0.1", "host_port": 81, "port": 80}, {"address": "0.0.0.0", "host_port": 81, "port": 80}]}}}`},
		{"port at a name", `{"config": {"image": "nginx", "network": {"publish": [` +
			`{"address": "localhost", "host_port": 81, "port": 80}]}}}`},
		{"port at the loopback of IPv6", `{"config": {"image": "nginx", "network": {"publish": [` +
			`{"address": "::1", "host_port": 81, "port": 80}]}}}`},
		{"port at an address of many", `{"config": {"image": "nginx", "network": {"publish": [` +
			`{"address": "ff02::1", "host_port": 81, "port": 80}]}}}`},
		{"port at an address of a link", `{"config": {"image": "nginx", "network": {"publish": [` +
			`{"address": "fe80::1%eth0", "host_port": 81, "port": 80}]}}}`},
		{"many published ports", `{"config": {"image": "nginx", "network": {"publish": [` +
			many(65, `{"host_port": 80, "port": 80}`) + `]}}}`},
		{"ports of its own that are shared", `{"config": {"image": "nginx", "network": {"share_ports": true}}}`},
		{"from no app", `{"config": {"image": "nginx", "network": {"from": ["A B"]}}}`},
		{"from many apps", `{"config": {"image": "nginx", "network": {"from": [` + many(65, `"a"`) + `]}}}`},
		{"egress to a name", `{"config": {"image": "nginx", "network": {"egress": ["example.com"]}}}`},
		{"same: egress to none and more",
			`{"config": {"image": "nginx", "network": {"egress": ["none", "10.0.0.0/8"]}}}`},
		{"egress to an address in a network", `{"config": {"image": "nginx", "network": {"egress": ["10.0.0.1/8"]}}}`},
		{"egress to many", `{"config": {"image": "nginx", "network": {"egress": [` + many(65, `"10.0.0.0/8"`) + `]}}}`},
		{"mode as text", `C{"files": [{"guest_path": "/a", "raw_value": "", "mode": "0644"}]}`},
		{"text for boolean", `C{"auto_destroy": "yes"}`},
		{"text for list", `C{"init": {"exec": "/bin/true"}}`},
		{"list for object", `C{"env": ["A=1"]}`},
		{"duration", `C{"stop_config": {"timeout": "soon"}}`},
		{"duration of a wrong type", `C{"stop_config": {"timeout": true}}`},
		{"autostop", `C{"services": [{"internal_port": 80, "autostop": "maybe"}]}`},
		{"persist", `C{"rootfs": {"persist": "sometimes"}}`},
		{"too deep", `C{"services": [{"internal_port": 80, "ports": [{"http_options": {"response": {"headers": {"a": ` +
			strings.Repeat("[", 40) + strings.Repeat("]", 40) + `}}}}]}]}`},

		{"id", `{"id": "D891275C2E5118", "config": {}}`},
		{"name", `{"name": "Web 1", "config": {}}`},
		{"long name", `{"name": "` + long + `", "config": {}}`},
		{"region", `{"region": "../iad", "config": {}}`},
		{"lease_ttl", `{"lease_ttl": -1, "config": {}}`},
		{"current_version", `{"current_version": "7", "config": {}}`},
		{"no config", `{"name": "web"}`},
		{"same: config null", `{"config": null}`},
		{"no image", `{"config": {}}`},
		{"image in capitals", `C{"image": "Souk/Host"}`},
		{"image with spaces", `C{"image": "souk host"}`},
		{"image without tag", `C{"image": "nginx:"}`},
		{"image with a bad tag", `C{"image": "nginx:-1"}`},
		{"image with a bad digest", `C{"image": "nginx@sha256:123"}`},
		{"image with two digests", `C{"image": "nginx@a@b"}`},
		{"image with a bad registry", `C{"image": "my!registry.io/nginx"}`},
		{"image too long", `C{"image": "` + strings.Repeat("a", 600) + `"}`},
		{"no command", `{"config": {"image": "souk/host"}}`},
		{"empty program", `C{"init": {"exec": [""]}}`},
		{"zero byte in a word", `C{"init": {"exec": ["/bin/echo", "a\u0000b"]}}`},
		{"long word", `C{"init": {"exec": ["/bin/echo", "` + strings.Repeat("x", machine.MaxEnvValue+1) + `"]}}`},
		{"many words", `C{"init": {"cmd": [` + many(machine.MaxArgs+1, `"a"`) + `]}}`},
		{"swap", `C{"init": {"exec": ["a"], "swap_size_mb": -5}}`},
		{"env name", `C{"env": {"1A": "x"}}`},
		{"env name with =", `C{"env": {"A=B": "x"}}`},
		{"env name empty", `C{"env": {"": "x"}}`},
		{"env zero byte", `C{"env": {"A": "\u0000"}}`},
		{"env value long", `C{"env": {"A": "` + strings.Repeat("x", machine.MaxEnvValue+1) + `"}}`},
		{"env many", `C{"env": {` + numbered(machine.MaxEnv+1) + `}}`},
		{"env total", `C{"env": {"A":"` + strings.Repeat("x", 130000) + `","B":"` + strings.Repeat("x", 130000) +
			`","C":"` + strings.Repeat("x", 130000) + `","D":"` + strings.Repeat("x", 130000) + `","E":"` +
			strings.Repeat("x", 130000) + `"}}`},
		{"size", `C{"size": "shared-cpu-3x"}`},
		{"size and guest", `C{"size": "shared-cpu-4x", "guest": {"cpus": 2}}`},
		{"cpu_kind", `C{"guest": {"cpu_kind": "fast"}}`},
		{"cpus", `C{"guest": {"cpus": 1048577}}`},
		{"cpus below 0", `C{"guest": {"cpus": -1}}`},
		{"cpu_milli below the least", `C{"guest": {"cpu_milli": 9}}`},
		{"cpu_milli below 0", `C{"guest": {"cpu_milli": -300}}`},
		{"cpu_milli beyond what can be meant", `C{"guest": {"cpu_milli": 1048576001}}`},
		{"cpu_milli as a fraction", `C{"guest": {"cpu_milli": 0.3}}`},
		{"cpu_milli as Kubernetes writes it", `C{"guest": {"cpu_milli": "300m"}}`},
		{"cpu_milli that overflows", `C{"guest": {"cpu_milli": 9223372036854775808}}`},
		{"cpus and cpu_milli", `C{"guest": {"cpus": 1, "cpu_milli": 300}}`},
		{"memory below the least", `C{"guest": {"memory_mb": 1}}`},
		{"memory below 0", `C{"guest": {"cpu_milli": 300, "memory_mb": -40}}`},
		{"memory beyond what can be meant", `C{"guest": {"memory_mb": 1073741825}}`},
		{"memory in parts of a MiB", `C{"guest": {"memory_mb": 40.5}}`},
		{"same: size and cpu_milli",
			`C{"size": "shared-cpu-1x", "guest": {"cpu_kind": "shared", "cpu_milli": 62, "memory_mb": 256}}`},
		{"extra without a name", `C{"guest": {"extras": {"": 1}}}`},
		{"extra that has a way of its own", `C{"guest": {"extras": {"memory": 1}}}`},
		{"extra that is a GPU", `C{"guest": {"extras": {"gpu.a10": 1000}}}`},
		{"extra of none", `C{"guest": {"extras": {"licence": 0}}}`},
		{"extras many", `C{"guest": {"extras": {` + strings.ReplaceAll(numbered(machine.MaxExtras+1), `"v"`, "1") + `}}}`},
		{"max_memory_mb", `C{"guest": {"max_memory_mb": -1}}`},
		{"gpus", `C{"guest": {"gpus": 17}}`},
		{"gpu_kind", `C{"guest": {"gpu_kind": "A 10"}}`},
		{"host_dedication_id", `C{"guest": {"host_dedication_id": "mine"}}`},
		{"metadata key", `C{"metadata": {"a b": "x"}}`},
		{"metadata value", `C{"metadata": {"a": "` + strings.Repeat("x", 4097) + `"}}`},
		{"metadata many", `C{"metadata": {` + numbered(machine.MaxMetadata+1) + `}}`},
		{"mount without volume", `C{"mounts": [{"path": "/data"}]}`},
		{"mount path relative", `C{"mounts": [{"volume": "vol_1", "path": "data"}]}`},
		{"mount path climbs", `C{"mounts": [{"volume": "vol_1", "path": "/data/../../etc"}]}`},
		{"mount at the root", `C{"mounts": [{"volume": "vol_1", "path": "/"}]}`},
		{"mount name", `C{"mounts": [{"volume": "vol_1", "path": "/data", "name": "My Data"}]}`},
		{"mount twice", `C{"mounts": [{"volume": "vol_1", "path": "/a"}, {"volume": "vol_1", "path": "/b"}]}`},
		{"mount in mount", `C{"mounts": [{"volume": "vol_1", "path": "/a"}, {"volume": "vol_2", "path": "/a/b"}]}`},
		{"mounts many", `C{"mounts": [` + many(machine.MaxMounts+1, `{"volume": "vol_1", "path": "/a"}`) + `]}`},
		{"mount encrypted", `C{"mounts": [{"volume": "vol_1", "path": "/a", "encrypted": true}]}`},
		{"file path relative", `C{"files": [{"guest_path": "etc/a", "raw_value": ""}]}`},
		{"file path climbs", `C{"files": [{"guest_path": "/../../etc/passwd", "raw_value": ""}]}`},
		{"file path with zero byte", `C{"files": [{"guest_path": "/a\u0000", "raw_value": ""}]}`},
		{"file mode", `C{"files": [{"guest_path": "/a", "raw_value": "", "mode": 2541}]}`},
		{"file twice said", `C{"files": [{"guest_path": "/a", "raw_value": "", "secret_name": "S"}]}`},
		{"file without content", `C{"files": [{"guest_path": "/a"}]}`},
		{"file of no secret", `C{"files": [{"guest_path": "/a", "secret_name": ""}]}`},
		{"file not base64", `C{"files": [{"guest_path": "/a", "raw_value": "hello!"}]}`},
		{"file twice", `C{"files": [{"guest_path": "/a", "raw_value": ""}, {"guest_path": "/a", "raw_value": ""}]}`},
		{"files many", `C{"files": [` + many(machine.MaxFiles+1, `{"guest_path": "/a", "raw_value": ""}`) + `]}`},
		{"file of an image", `C{"files": [{"guest_path": "/a", "image_config": "nginx"}]}`},
		{"rootfs", `C{"rootfs": {"size_gb": 100000}}`},
		{"rootfs of the host", `C{"rootfs": {"read_only": true}}`},
		{"suspend to", `C{"suspend_to": "tape"}`},
		{"runtime of the host", `C{"runtime": "runsc"}`},
		{"runtime by its path", `{"config": {"image": "nginx", "runtime": "/usr/bin/runsc"}}`},
		{"schedule", `C{"schedule": "@daily"}`},
		{"restart policy", `C{"restart": {"policy": "sometimes"}}`},
		{"restart at a price", `C{"restart": {"policy": "spot-price"}}`},
		{"max_retries", `C{"restart": {"max_retries": -1}}`},
		{"stop timeout", `C{"stop_config": {"timeout": "10m"}}`},
		{"stop signal", `C{"stop_config": {"signal": "SIGNONE"}}`},
		{"containers", `C{"containers": [{"name": "a", "image": "nginx"}]}`},
		{"volumes of containers", `C{"volumes": [{"name": "a"}]}`},
		{"two processes", `C{"processes": [{}, {}]}`},
		{"process user", `C{"processes": [{"user": "a b"}]}`},
		{"process env", `C{"processes": [{"env": {"-": "", "": ""}}]}`},
		{"process env_from", `C{"processes": [{"env_from": [{"env_var": "A", "field_ref": "password"}]}]}`},
		{"process env_from name", `C{"processes": [{"env_from": [{"env_var": "", "field_ref": "id"}]}]}`},
		{"process secret", `C{"processes": [{"secrets": [{"env_var": "A B", "name": "S"}]}]}`},
		{"service port", `C{"services": [{"protocol": "tcp"}]}`},
		{"service protocol", `C{"services": [{"protocol": "icmp", "internal_port": 80}]}`},
		{"service min_machines_running", `C{"services": [{"internal_port": 80, "min_machines_running": -1}]}`},
		{"service hosts", `C{"services": [{"internal_port": 80, "hosts": ["WWW.example.com"]}]}`},
		{"many service hosts", `C{"services": [{"internal_port": 80, "hosts": [` + many(machine.MaxHosts+1, `"a.b"`) +
			`]}]}`},
		{"service max_machines_running", `C{"services": [{"internal_port": 80, "max_machines_running": 0}]}`},
		{"service max below min", `C{"services": [{"internal_port": 80, "min_machines_running": 3, "max_machines_running": 2}]}`},
		{"service create_up_to", `C{"services": [{"internal_port": 80, "create_up_to": 0}]}`},
		{"service warm of none", `C{"services": [{"internal_port": 80, "create_up_to": 2, "warm": 0}]}`},
		{"service warm of too many", `C{"services": [{"internal_port": 80, "create_up_to": 2, "warm": 1001}]}`},
		{"service warm without a bound", `C{"services": [{"internal_port": 80, "warm": 2}]}`},
		{"service warm beyond its bound", `C{"services": [{"internal_port": 80, "create_up_to": 2, "warm": 2}]}`},
		{"service warm without autostart", `C{"services": [{"internal_port": 80, "create_up_to": 2, "warm": 1, "autostart": false}]}`},
		{"service warm without any autostart", `C{"disable_machine_autostart": true, "services": [{"internal_port": 80, "create_up_to": 2, "warm": 1}]}`},
		{"service create_up_to with a volume", `C{"mounts": [{"volume": "vol_1234567890", "path": "/data"}], "services": [{"internal_port": 80, "create_up_to": 2}]}`},
		{"service idle_stream", `C{"services": [{"internal_port": 80, "idle_stream": "100ms"}]}`},
		{"service ignore, no HTTP", `C{"services": [{"internal_port": 80, "ignore": [{"path": "/"}]}]}`},
		{"service ignore, empty", `C{"services": [{"internal_port": 80, "ports": [{"port": 80, "handlers": ["http"]}], "ignore": [{"status": 200}]}]}`},
		{"service ignore, path", `C{"services": [{"internal_port": 80, "ports": [{"port": 80, "handlers": ["http"]}], "ignore": [{"path": "/*/a"}]}]}`},
		{"service ignore, source", `C{"services": [{"internal_port": 80, "ports": [{"port": 80, "handlers": ["http"]}], "ignore": [{"source": "home"}]}]}`},
		{"service ignore, status", `C{"services": [{"internal_port": 80, "ports": [{"port": 80, "handlers": ["http"]}], "ignore": [{"path": "/", "status": 100}]}]}`},
		{"service autostop_after", `C{"services": [{"internal_port": 80, "autostop_after": "100ms"}]}`},
		{"large services", `C{"services": [` + many(40, `{"internal_port": 80, "ports": [{"port": 80, "handlers": ["`+
			strings.Repeat("x", 200)+`"]}]}`) + `]}`},
		{"service concurrency", `C{"services": [{"internal_port": 80, "concurrency": {"type": "users"}}]}`},
		{"service limits", `C{"services": [{"internal_port": 80, "concurrency": {"hard_limit": 5, "soft_limit": 10}}]}`},
		{"outside port", `C{"services": [{"internal_port": 80, "ports": [{"port": 70000}]}]}`},
		{"outside ports", `C{"services": [{"internal_port": 80, "ports": [{"start_port": 20, "end_port": 10}]}]}`},
		{"many outside ports", `C{"services": [{"internal_port": 80, "ports": [` +
			many(machine.MaxPorts+1, `{"port": 80}`) + `]}]}`},
		{"many services", `C{"services": [` + many(machine.MaxServices+1, `{"internal_port": 80}`) + `]}`},
		{"service check port", `C{"services": [{"internal_port": 80, "checks": [{"port": 0}]}]}`},
		{"many service checks", `C{"services": [{"internal_port": 80, "checks": [` + many(machine.MaxChecks+1, `{}`) +
			`]}]}`},
		{"check type", `C{"checks": {"alive": {"port": 80, "type": "ping"}}}`},
		{"check kind", `C{"checks": {"alive": {"port": 80, "kind": "startup"}}}`},
		{"check without a port", `C{"checks": {"alive": {"type": "tcp"}}}`},
		{"check without a name", `C{"checks": {"": {"port": 80}}}`},
		{"check named as a service's", `C{"checks": {"servicecheck-00-tcp-80": {"port": 80}}}`},
		{"check protocol", `C{"checks": {"alive": {"port": 80, "protocol": "h2"}}}`},
		{"check method", `C{"checks": {"alive": {"port": 80, "method": "GET / HTTP/1.1\r\n"}}}`},
		{"check by a tunnel", `C{"checks": {"alive": {"port": 80, "method": "connect"}}}`},
		{"check path", `C{"checks": {"alive": {"port": 80, "path": "http://169.254.169.254/"}}}`},
		{"check path with a line end", `C{"checks": {"alive": {"port": 80, "path": "/\r\nHost: a"}}}`},
		{"check path with a space", `C{"checks": {"alive": {"port": 80, "path": "/ HTTP/1.1"}}}`},
		{"check header name", `C{"checks": {"alive": {"port": 80, "headers": [{"name": "A\r\nB", "values": ["1"]}]}}}`},
		{"check header value", `C{"checks": {"alive": {"port": 80, "headers": [{"name": "A", "values": ["1\r\nB: 2"]}]}}}`},
		{"check host", `C{"checks": {"alive": {"port": 80, "headers": [{"name": "host", "values": ["a/b"]}]}}}`},
		{"check headers", `C{"checks": {"alive": {"port": 80, "headers": [` + many(33, `{"name": "A"}`) + `]}}}`},
		{"check server name", `C{"checks": {"alive": {"port": 80, "tls_server_name": "a b"}}}`},
		{"many checks together", `C{"services": [{"internal_port": 80, "checks": [` + many(40, `{}`) +
			`]}, {"internal_port": 81, "checks": [` + many(40, `{}`) + `]}]}`},
		{"check interval", `C{"checks": {"alive": {"port": 80, "interval": "2h"}}}`},
		{"metrics port", `C{"metrics": {"port": 0, "path": "/metrics"}}`},
	}
}

const goodConfig = `{"image": "souk/host", "init": {"exec": ["/bin/true"]}}`

// body makes a launch of a case: C{...} lays its fields over a good config.
func body(t testing.TB, s string) []byte {
	t.Helper()
	over, ok := strings.CutPrefix(s, "C")
	if !ok || !strings.HasPrefix(over, "{") {
		return []byte(s)
	}
	// The fields on top are kept as they are written, so that a key given twice stays given twice.
	var base, top map[string]json.RawMessage
	if err := json.Unmarshal([]byte(goodConfig), &base); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(over), &top); err != nil {
		t.Fatalf("%s: %v", s, err)
	}
	out := strings.TrimPrefix(over[:len(over)-1], "{")
	for _, k := range []string{"image", "init"} {
		if top[k] == nil {
			out = fmt.Sprintf("%q: %s, ", k, base[k]) + out
		}
	}
	return []byte(`{"config": {` + strings.TrimSuffix(out, ", ") + `}}`)
}

func check(b []byte) error {
	l, err := machine.DecodeLaunch(b)
	if err != nil {
		return err
	}
	l.Normalize()
	return l.Validate()
}

// TestErrorSentencesMatchGoldenFile holds every sentence of this package in a file that people read when it changes.
func TestErrorSentencesMatchGoldenFile(t *testing.T) {
	var out strings.Builder
	texts := map[string]string{}
	for _, c := range refused() {
		err := check(body(t, c[1]))
		if err == nil {
			t.Errorf("%s: it is accepted", c[0])
			continue
		}
		e := fault.As(err)
		if e.Kind != fault.Invalid || e.Code == "" || e.Err != nil {
			t.Errorf("%s: kind %q, code %q, cause %v; want an invalid with a code and no cause", c[0], e.Kind, e.Code,
				e.Err)
		}
		if len(e.Text) > 400 || strings.ContainsAny(e.Text, "\x00\x1b\n") {
			t.Errorf("%s: not a sentence to print: %.500q", c[0], e.Text)
		}
		if other, ok := texts[e.Text]; ok && !strings.HasPrefix(c[0], "same: ") {
			t.Errorf("%s: says the same as %s", c[0], other)
		}
		texts[e.Text] = c[0]
		fmt.Fprintf(&out, "%s\n\t%s: %s\n", c[0], e.Code, e.Text)
	}
	const file = "testdata/errors.golden"
	if *update {
		if err := os.WriteFile(file, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), out.String()); d != "" {
		t.Errorf("run with -update if these are better (-golden +now):\n%s", d)
	}
}

// accepted are launches at the edge of what is refused.
func TestEdgeCaseLaunchesAreAccepted(t *testing.T) {
	for name, s := range map[string]string{
		"least":           `{"config": ` + goodConfig + `}`,
		"nulls":           `C{"env": null, "guest": null, "services": [{"internal_port": 1, "force_instance_key": null}], "stop_config": {"timeout": null}, "rootfs": {"persist": null}}`,
		"full image name": `C{"image": "docker.io/souk/host:latest"}`,
		"image of others": `{"config": {"image": "registry:5000/a/b_c/d.e:V1@sha256:` + strings.Repeat("0", 64) +
			`"}}`,
		"sizes":             `C{"size": "performance-16x"}`,
		"largest guest":     `C{"guest": {"cpu_kind": "performance", "cpus": 64, "memory_mb": 524288}}`,
		"smallest guest":    `C{"guest": {"cpus": 1, "memory_mb": 256}}`,
		"size and guest":    `C{"size": "shared-cpu-2x", "guest": {"cpus": 2}}`,
		"numeric durations": `C{"stop_config": {"timeout": 5000000000, "signal": "15"}}`,
		"empty signal":      `C{"stop_config": {"timeout": "300s", "signal": ""}}`,
		"old persist":       `C{"guest": {"persist_rootfs": 3}}`,
		"two mounts":        `C{"mounts": [{"volume": "vol_1", "path": "/a"}, {"volume": "vol_2", "path": "/ab"}]}`,
		"service of souk's": `C{"services": [{"internal_port": 80, "hosts": ["shop", "www.example.com", "xn--bcher-kva.example"], "min_machines_running": 1, "max_machines_running": 1, "autostop_after": "90s", "idle_stream": "10s", "ports": [{"port": 80, "handlers": ["http"]}], "ignore": [{"path": "/up"}, {"source": "2001:db8::/32"}]}]}`,
		"empty file":        `C{"files": [{"guest_path": "/a", "raw_value": "", "mode": 511}]}`,
		"one process":       `{"config": {"image": "souk/host", "processes": [{"cmd": ["/bin/true"], "user": "1000:1000"}]}}`,
		"all of a launch":   `{"id": "d891275c2e5118", "name": "w-1.a_b", "region": "iad", "skip_launch": true, "skip_secrets": false, "min_secrets_version": null, "lease_ttl": 60, "current_version": "01ARZ3NDEKTSV4RRFFQ69G5FAV", "config": ` + goodConfig + `}`,
		"white space":       " \n\t{ \"config\" :\r\n" + goodConfig + " } \n",
	} {
		if err := check(body(t, s)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestReadBodyStopsAtItsLimit(t *testing.T) {
	b, err := machine.ReadBody(strings.NewReader(strings.Repeat("x", machine.MaxBody)))
	if err != nil || len(b) != machine.MaxBody {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	_, err = machine.ReadBody(strings.NewReader(strings.Repeat("x", 10<<20)))
	if !fault.Is(err, fault.Invalid) || !strings.Contains(fmt.Sprint(err), "more than 1048576 bytes") {
		t.Errorf("10 MB: %v", err)
	}
}
