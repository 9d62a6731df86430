package main

import (
	"path/filepath"
	"regexp"
	"testing"
)

const (
	notThereBegin = "<!-- transcript: go test ./cmd/souk -run NotThere -update -->\n"
	notThereEnd   = "<!-- end of the transcript -->"
)

// notThereSteps show what souk does not do, each with the command that somebody who looks for it would type.
func notThereSteps() []readmeStep {
	const udp = `{"protocol": "udp", "internal_port": 53, "ports": [{"port": 53}]}`
	const handlers = `{"protocol": "tcp", "internal_port": 80, "ports": [{"port": 80, "handlers": ["edge_http"]}]}`
	const options = `{"protocol": "tcp", "internal_port": 80, "ports": [{"port": 80, "handlers": ["http"], ` +
		`"http_options": {"compress": true, "replay_cache": [{"path_prefix": "/", "ttl_seconds": 5}]}}]}`
	config := func(file, keys string) readmeStep {
		return readmeStep{quiet: `echo '{"config": {"image": "souk/host", "init": {"exec": ["/bin/true"]}, ` + keys +
			`}}' > ` + file}
	}
	return []readmeStep{
		{say: "It is asked of this souk:"},
		{dev: "souk dev"},
		{say: "## For all"},
		{say: "A machine that was made alone waits for its host when that is lost, and so does one with a volume, " +
			"which is on one\nworker for life. What is to be made elsewhere is a [service](operating.md#services). " +
			"Volumes are not encrypted:"},
		config("encrypted.json", `"mounts": [{"volume": "data", "path": "/data", "encrypted": true}]`),
		{run: `cat encrypted.json`},
		{run: `souk run -f encrypted.json; echo "exit code $?"`},
		{say: "A machine is one container; what belongs together is several machines of an app:"},
		config("containers.json", `"containers": [{"name": "log", "image": "fluent-bit"}]`),
		{run: `cat containers.json`},
		{run: `souk run -f containers.json; echo "exit code $?"`},
		{say: "There are no users and groups. Who has a token may do what its role allows (`souk token create`):"},
		{run: `souk user ls; echo "exit code $?"`},
		{say: "## Coming from Fly"},
		{say: "Images are not built:"},
		{run: `souk build .; echo "exit code $?"`},
		{say: "No app has an address on the internet: the proxy of each member answers at that member's addresses."},
		{run: `souk ips allocate; echo "exit code $?"`},
		{say: "The proxy leads TCP, and a few keys of its own are read and do nothing:"},
		config("udp.json", `"services": [`+udp+`]`),
		{run: `cat udp.json`},
		{run: `souk plan -f udp.json > /dev/null; echo "exit code $?"`},
		config("handlers.json", `"services": [`+handlers+`]`),
		{run: `cat handlers.json`},
		{run: `souk plan -f handlers.json > /dev/null; echo "exit code $?"`},
		config("options.json", `"services": [`+options+`]`),
		{run: `cat options.json`},
		{run: `souk plan -f options.json > /dev/null; echo "exit code $?"`},
		{say: "The same is said of each key in [the config](reference/config.md), and of each path in " +
			"[the API](reference/api.md)."},
		{say: "## Coming from Slurm"},
		{say: "A job waits for all jobs that `--after` names, not for one of several:"},
		{run: `souk submit --after 'ok:a?ok:b' -- /bin/true; echo "exit code $?"`},
		{say: "What owners used is added up by day, namespace and owner, not by app:"},
		{run: `souk job report --since 2026-01-01 --by app; echo "exit code $?"`},
	}
}

// TestNotThereDocumentMatchesSouk holds docs/not-there.md to what souk says.
func TestNotThereDocumentMatchesSouk(t *testing.T) {
	t.Parallel()
	transcript(t, "docs/not-there.md", notThereSteps(), notThereBegin, notThereEnd)
}

// TestMissingFeaturesAreListedInNotThereOnly: docs/not-there.md is the only document that says what is not built; a
// test checks it.
func TestMissingFeaturesAreListedInNotThereOnly(t *testing.T) {
	said := regexp.MustCompile(`Not there:|(?i:what is not there|not (yet )?built|` +
		`not yet (there|built|supported|tried)|not implemented|not metered)`)
	files := append(documents(t), "../../ARCHITECTURE.md", "../../CONTRIBUTING.md")
	for _, file := range append(files, referencesByHand(t)...) {
		if m := said.FindString(proseOf(t, file)); m != "" && filepath.Base(file) != "not-there.md" {
			t.Errorf("%s says %q: say it in docs/not-there.md, with the command that shows it", filepath.Base(file), m)
		}
	}
}
