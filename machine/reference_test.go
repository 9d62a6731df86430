package machine_test

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// row is a line of the table in docs/reference/config.md.
type row struct{ souk, text string }

func table(t *testing.T) map[string]row {
	t.Helper()
	raw, err := os.ReadFile("../docs/reference/config.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]row{}
	for line := range strings.Lines(string(raw)) {
		cells := strings.SplitN(strings.TrimSpace(line), " | ", 3)
		path, ok := strings.CutPrefix(cells[0], "| `")
		if !ok {
			continue
		}
		if len(cells) != 3 || rows[strings.TrimSuffix(path, "`")] != (row{}) {
			t.Fatalf("a row is there twice or is not whole: %s", line)
		}
		rows[strings.TrimSuffix(path, "`")] = row{cells[1], strings.TrimSuffix(cells[2], " |")}
	}
	return rows
}

// leaves lists the path of every field below t.
func leaves(t reflect.Type, path string) []string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t == reflect.TypeFor[machine.Duration]():
		return []string{path}
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct:
		return leaves(t.Elem(), path+"[]")
	case t.Kind() == reflect.Map && t.Elem().Kind() == reflect.Struct:
		return leaves(t.Elem(), path+".*")
	case t.Kind() != reflect.Struct:
		return []string{path}
	}
	var out []string
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous:
			out = append(out, leaves(f.Type, path)...)
		case path == "":
			out = append(out, leaves(f.Type, name)...)
		default:
			out = append(out, leaves(f.Type, path+"."+name)...)
		}
	}
	return out
}

// cover finds the row that speaks of a path: its own, or that of the nearest field above.
func cover(rows map[string]row, path string) string {
	for p := path; p != ""; {
		if _, ok := rows[p]; ok {
			return p
		}
		switch {
		case strings.HasSuffix(p, "[]"), strings.HasSuffix(p, ".*"):
			p = p[:len(p)-2]
		default:
			p = p[:max(0, strings.LastIndexByte(p, '.'))]
		}
	}
	return ""
}

// TestReferenceCoversEveryConfigField holds docs/reference/config.md against the types: each field has a row, each row a field.
func TestReferenceCoversEveryConfigField(t *testing.T) {
	rows := table(t)
	used := map[string]bool{"config": true}
	all := leaves(reflect.TypeFor[machine.Launch](), "")
	if len(all) < 100 {
		t.Fatalf("only %d fields found", len(all))
	}
	for _, path := range all {
		c := cover(rows, path)
		if c == "" || c == "config" {
			t.Errorf("%s has no row", path)
		}
		used[c] = true
	}
	for path, r := range rows {
		if !used[path] {
			t.Errorf("the row of %s speaks of no field", path)
		}
		if !slices.Contains([]string{"honoured", "refused", "no effect"}, r.souk) {
			t.Errorf("%s: souk does %q", path, r.souk)
		}
	}
}

// examples sets each field that has a row, and what it cannot be without. Rows of the launch have a key that is
// not below "config".
func examples() map[string]string {
	mount := func(s string) string { return `{"mounts": [{"volume": "vol_1", "path": "/data"` + s + `}]}` }
	file := func(s string) string { return `{"files": [{"guest_path": "/a"` + s + `}]}` }
	service := `{"services": [{"internal_port": 80, "protocol": "tcp", "autostop": "stop", "checks": [{"type": "tcp", "port": 80}]}]}`
	own := `{"services": [{"internal_port": 80, "hosts": ["www.example.com"], "max_machines_running": 3, "create_up_to": 5, "warm": 2, "autostop_after": "90s", "idle_stream": "5m", ` +
		`"ports": [{"port": 80, "handlers": ["http"]}], "ignore": [{"path": "/up*", "user_agent": "monitor", "source": "192.0.2.0/24", "status": 204}]}]}`
	check := `{"checks": {"a": {"type": "http", "port": 80, "kind": "readiness", "interval": "15s", "timeout": "1s", "grace_period": "3s", "method": "get", "path": "/", "protocol": "https", "tls_skip_verify": true, "tls_server_name": "a.example", "headers": [{"name": "Host", "values": ["a.example"]}]}}}`
	ports := `{"services": [{"internal_port": 80, "min_machines_running": 1, "concurrency": {"type": "requests", "soft_limit": 20}, ` +
		`"ports": [{"port": 443, "handlers": ["tls", "http"], "force_https": true, "http_options": {"h2_backend": true, "idle_timeout": 60, ` +
		`"response": {"headers": {"Server": false}}}}, {"port": 25, "handlers": ["proxy_proto"], "proxy_proto_options": {"version": "v2"}}]}]}`
	publish := `{"image": "nginx", "network": {"publish": [{"address": "127.0.0.1", "protocol": "udp", "host_port": 53, "port": 5353}]}}`
	return map[string]string{
		"config.image":                                                `{"image": "nginx"}`,
		"config.env":                                                  `{"env": {"A": "1"}}`,
		"config.init.exec":                                            `{"init": {"exec": ["/bin/true"]}}`,
		"config.init.entrypoint":                                      `{"init": {"entrypoint": ["/bin/true"]}}`,
		"config.init.cmd":                                             `{"init": {"cmd": ["/bin/true"]}}`,
		"config.init.swap_size_mb":                                    `{"init": {"exec": ["/bin/true"], "swap_size_mb": 64}}`,
		"config.init.tty":                                             `{"init": {"exec": ["/bin/true"], "tty": true}}`,
		"config.init.kernel_args":                                     `{"init": {"exec": ["/bin/true"], "kernel_args": ["quiet"]}}`,
		"config.guest.cpu_kind":                                       `{"guest": {"cpu_kind": "performance"}}`,
		"config.guest.cpus":                                           `{"guest": {"cpus": 2}}`,
		"config.guest.memory_mb":                                      `{"guest": {"memory_mb": 512}}`,
		"config.guest.cpu_milli":                                      `{"guest": {"cpu_milli": 300}}`,
		"config.guest.extras":                                         `{"guest": {"extras": {"licence": 1}}}`,
		"config.guest.max_memory_mb":                                  `{"guest": {"max_memory_mb": 512}}`,
		"config.guest.gpus":                                           `{"guest": {"gpus": 1}}`,
		"config.guest.gpu_kind":                                       `{"guest": {"gpu_kind": "a10"}}`,
		"config.guest.host_dedication_id":                             `{"guest": {"host_dedication_id": "x"}}`,
		"config.guest.persist_rootfs":                                 `{"guest": {"persist_rootfs": "always"}}`,
		"config.guest.kernel_args":                                    `{"guest": {"kernel_args": ["quiet"]}}`,
		"config.metadata":                                             `{"metadata": {"a": "b"}}`,
		"config.mounts[].volume":                                      mount(``),
		"config.mounts[].path":                                        mount(``),
		"config.mounts[].name":                                        mount(`, "name": "data"`),
		"config.mounts[].encrypted":                                   mount(`, "encrypted": true`),
		"config.mounts[].size_gb":                                     mount(`, "size_gb": 1`),
		"config.mounts[].extend_threshold_percent":                    mount(`, "extend_threshold_percent": 80`),
		"config.mounts[].add_size_gb":                                 mount(`, "add_size_gb": 1`),
		"config.mounts[].size_gb_limit":                               mount(`, "size_gb_limit": 9`),
		"config.services":                                             service,
		"config.services[].protocol":                                  service,
		"config.services[].internal_port":                             service,
		"config.services[].autostart":                                 service,
		"config.services[].autostop":                                  service,
		"config.services[].autostop_after":                            own,
		"config.services[].create_up_to":                              own,
		"config.services[].warm":                                      own,
		"config.services[].idle_stream":                               own,
		"config.services[].ignore[].path":                             own,
		"config.services[].ignore[].user_agent":                       own,
		"config.services[].ignore[].source":                           own,
		"config.services[].ignore[].status":                           own,
		"config.services[].min_machines_running":                      service,
		"config.services[].max_machines_running":                      own,
		"config.services[].concurrency":                               service,
		"config.services[].hosts":                                     own,
		"config.services[].ports[].port":                              ports,
		"config.services[].ports[].start_port":                        `{"services": [{"internal_port": 80, "ports": [{"start_port": 9000, "end_port": 9010}]}]}`,
		"config.services[].ports[].end_port":                          `{"services": [{"internal_port": 80, "ports": [{"start_port": 9000, "end_port": 9010}]}]}`,
		"config.services[].ports[].handlers":                          ports,
		"config.services[].ports[].force_https":                       ports,
		"config.services[].ports[].tls_options":                       `{"services": [{"internal_port": 80, "ports": [{"port": 443, "tls_options": {"alpn": ["h2"]}}]}]}`,
		"config.services[].ports[].http_options.h2_backend":           ports,
		"config.services[].ports[].http_options.idle_timeout":         ports,
		"config.services[].ports[].http_options.response":             ports,
		"config.services[].ports[].http_options.compress":             `{"services": [{"internal_port": 80, "ports": [{"port": 443, "http_options": {"compress": true}}]}]}`,
		"config.services[].ports[].http_options.headers_read_timeout": `{"services": [{"internal_port": 80, "ports": [{"port": 443, "http_options": {"headers_read_timeout": 5}}]}]}`,
		"config.services[].ports[].http_options.replay_cache":         `{"services": [{"internal_port": 80, "ports": [{"port": 443, "http_options": {"replay_cache": [{"path_prefix": "/", "ttl_seconds": 60, "type": "cookie", "name": "a"}]}}]}]}`,
		"config.services[].ports[].proxy_proto_options":               ports,
		"config.services[].force_instance_key":                        `{"services": [{"internal_port": 80, "force_instance_key": "a"}]}`,
		"config.services[].force_instance_description":                `{"services": [{"internal_port": 80, "force_instance_description": "a"}]}`,
		"config.checks":                                               check,
		"config.checks.*.kind":                                        check,
		"config.checks.*.type":                                        check,
		"config.checks.*.port":                                        check,
		"config.checks.*.interval":                                    check,
		"config.checks.*.timeout":                                     check,
		"config.checks.*.grace_period":                                check,
		"config.checks.*.method":                                      check,
		"config.checks.*.path":                                        check,
		"config.checks.*.protocol":                                    check,
		"config.checks.*.tls_server_name":                             check,
		"config.checks.*.headers":                                     check,
		"config.metrics":                                              `{"metrics": {"port": 9091, "path": "/metrics"}}`,
		"config.statics":                                              `{"statics": [{"guest_path": "/s", "url_prefix": "/s"}]}`,
		"config.files[].guest_path":                                   file(`, "raw_value": ""`),
		"config.files[].raw_value":                                    file(`, "raw_value": "aGk="`),
		"config.files[].secret_name":                                  file(`, "secret_name": "S"`),
		"config.files[].image_config":                                 file(`, "image_config": "nginx"`),
		"config.files[].mode":                                         file(`, "raw_value": "", "mode": 420`),
		"config.schedule":                                             `{"schedule": "daily"}`,
		"config.auto_destroy":                                         `{"auto_destroy": true}`,
		"config.restart.policy":                                       `{"restart": {"policy": "always"}}`,
		"config.restart.max_retries":                                  `{"restart": {"max_retries": 3}}`,
		"config.restart.gpu_bid_price":                                `{"restart": {"gpu_bid_price": 0.5}}`,
		"config.dns":                                                  `{"dns": {"skip_registration": true}}`,
		"config.processes":                                            `{"processes": [{"user": "nobody", "env": {"A": "1"}, "ignore_app_secrets": true}]}`,
		"config.standbys":                                             `{"standbys": ["d891275c2e5118"]}`,
		"config.stop_config.timeout":                                  `{"stop_config": {"timeout": "10s"}}`,
		"config.stop_config.signal":                                   `{"stop_config": {"signal": "SIGTERM"}}`,
		"config.containers":                                           `{"containers": [{"name": "a", "image": "nginx"}]}`,
		"config.volumes":                                              `{"volumes": [{"name": "a", "temp_dir": {"storage_type": "disk"}}]}`,
		"config.rootfs.persist":                                       `{"rootfs": {"persist": "always"}}`,
		"config.rootfs.size_gb":                                       `{"rootfs": {"size_gb": 1}}`,
		"config.rootfs.read_only":                                     `{"image": "nginx", "rootfs": {"read_only": true}}`,
		"config.runtime":                                              `{"image": "nginx", "runtime": "runsc"}`,
		"config.suspend_to":                                           `{"suspend_to": "disk"}`,
		"config.cache_drive":                                          `{"cache_drive": {"size_mb": 64}}`,
		"config.spot":                                                 `{"spot": {"max_price_fraction": 0.5}}`,
		"config.network.mode":                                         `{"image": "nginx", "network": {"mode": "none"}}`,
		"config.network.publish[].address":                            publish,
		"config.network.publish[].protocol":                           publish,
		"config.network.publish[].host_port":                          publish,
		"config.network.publish[].port":                               publish,
		"config.network.from":                                         `{"image": "nginx", "network": {"from": ["shop"]}}`,
		"config.network.share_ports":                                  `{"network": {"share_ports": true}}`,
		"config.network.egress":                                       `{"image": "nginx", "network": {"egress": ["192.0.2.0/24"]}}`,
		"config.size":                                                 `{"size": "shared-cpu-2x"}`,
		"config.disable_machine_autostart":                            `{"disable_machine_autostart": true}`,
	}
}

// TestReferenceRowsMatchBehaviour sets each field of the table alone and has souk do what its row says.
func TestReferenceRowsMatchBehaviour(t *testing.T) {
	all := examples()
	for path, r := range table(t) {
		example, ok := all[path]
		if !strings.HasPrefix(path, "config.") {
			continue // the launch's own fields: their effects are the gateway's and the worker's
		}
		if !ok {
			t.Errorf("%s has no example", path)
			continue
		}
		l, err := machine.DecodeLaunch(body(t, "C"+example))
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		l.Normalize()
		err = l.Validate()
		warnings := machine.Warnings(l.Config)
		switch r.souk {
		case "honoured":
			if err != nil || len(warnings) != 0 {
				t.Errorf("%s is to be honoured: %v %v", path, err, warnings)
			}
		case "no effect":
			if err != nil || !slices.Equal(warnings, []string{r.text}) {
				t.Errorf("%s is to have no effect, %q:\n%v %q", path, r.text, err, warnings)
			}
		case "refused":
			if e := fault.As(err); e == nil || e.Code != "unsupported" || e.Text != r.text {
				t.Errorf("%s is to be refused, %q:\n%v", path, r.text, err)
			}
		}
	}
}
