package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/doc/comment"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// reference is the document about the API.
const reference = "../docs/reference/api.md"

// example is a request that shows what is done with a kind of object.
type example struct {
	op     Op
	values []string // of the path's parameters
	query  string
	body   string
}

// examples has one for each kind.
func examples() map[Kind]example {
	return map[Kind]example{
		KindApp:    {op: CreateApp, body: `{"name": "shop"}`},
		KindSecret: {op: SetSecrets, values: []string{"shop"}, body: `{"values": {"TOKEN": "s3cret", "OLD": null}}`},
		KindMachine: {op: CreateMachine, values: []string{"shop"},
			body: `{"name": "web", "config": {"image": "souk/host", "init": {"exec": ["/bin/sleep", "600"]}}}`},
		KindService:  {op: ListServices, query: "app=shop"},
		KindLog:      {op: StreamLogs, values: []string{"shop", "web"}, query: "tail=10&follow=true"},
		KindVolume:   {op: CreateVolume, values: []string{"shop"}, body: `{"name": "data", "size_gb": 1}`},
		KindSnapshot: {op: CreateSnapshot, values: []string{"shop", "vol_0123456789abcdef"}},
		KindRegion:   {op: ListRegions},
		KindHold: {op: HoldAt, values: []string{"w1"},
			body: `{"app": "shop", "launch": {"config": {"image": "souk/host"}}, "ttl": 10}`},
		KindDecision: {op: ExplainMachine, values: []string{"shop", "web"}},
		KindPolicy: {op: ApplyPolicy,
			body: `{"text": "name = 'packed'\n[[score]]\nname = 's'\nbuiltin = 'packed'\n"}`},
		KindJob: {op: SubmitJob,
			body: `{"app": "shop", "command": ["/bin/echo", "hello"], "first": 1, "last": 100}`},
		KindNamespace: {op: SetQuota, values: []string{"team"},
			body: `{"budget": {"credits_per_hour": 100, "burst": 1000, "lend": false}}`},
		KindPrice:     {op: GetPrice},
		KindScheduler: {op: SetDefaultScheduler, body: `{"scheduler": "sparrow:4"}`},
		KindWorker: {op: CordonWorker, values: []string{"w1"},
			body: `{"owner": "ops", "reason": "new disk", "ttl": 3600}`},
		KindImage:  {op: PullImage, values: []string{"w1"}, body: `{"image": "nginx:1.29"}`},
		KindMember: {op: ListMembers},
		KindServer: {op: GetVersion},
		KindToken:  {op: MakeToken, body: `{"name": "ci", "role": "operator", "expires": 86400}`},
	}
}

// curl writes an example as a command line.
func (e example) curl() string {
	var b strings.Builder
	b.WriteString("curl -H \"Authorization: Bearer $SOUK_TOKEN\"")
	if m := e.op.Method(); m != "GET" && !(m == "POST" && e.body != "") {
		b.WriteString(" -X " + m)
	}
	url := "$SOUK_URL" + e.op.Path(e.values...)
	if e.query != "" {
		url += "?" + e.query
	}
	fmt.Fprintf(&b, " \"%s\"", url)
	if e.body != "" {
		fmt.Fprintf(&b, " \\\n  -d '%s'", strings.ReplaceAll(e.body, "'", `'\''`))
	}
	return b.String()
}

// Each kind has an example, which is about it and whose body is what the route reads.
func TestExampleBodiesDecodeForTheirKind(t *testing.T) {
	routes := map[Op]Route{}
	for _, r := range Routes() {
		routes[r.Op] = r
	}
	for _, k := range Kinds() {
		e, ok := examples()[k]
		if r := routes[e.op]; !ok || r.Kind != k {
			t.Errorf("%s has the example %q, which is about the kind %q", k, e.op, r.Kind)
			continue
		}
		in := routes[e.op].In
		if e.body == "" {
			continue
		}
		if in == nil {
			t.Errorf("%s: %s reads no body", k, e.op)
			continue
		}
		d := json.NewDecoder(strings.NewReader(e.body))
		d.DisallowUnknownFields()
		if err := d.Decode(reflect.New(reflect.TypeOf(in)).Interface()); err != nil {
			t.Errorf("%s: the body of the example: %v", k, err)
		}
	}
}

// TestReferenceMatchesTheRouteTable holds the document about the API against the table. With -update it writes it.
func TestReferenceMatchesTheRouteTable(t *testing.T) {
	got := document(t)
	if *update {
		if err := os.WriteFile(reference, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	onDisk, err := os.ReadFile(reference)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, onDisk) {
		t.Errorf("%s is not what the routes say; run go test ./api -run ReferenceMatches -update", reference)
	}
}

// document makes the reference of the package comment and the table.
func document(t *testing.T) []byte {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), "api.go", nil, parser.ParseComments|parser.PackageClauseOnly)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	b.WriteString("# The HTTP API\n\nMade of package api by its tests; `go test ./api -update` writes it anew. " +
		"`GET /v1/souk/openapi.json` describes every\nrequest and answer field by field.\n\n")
	_, rest, _ := strings.Cut(f.Doc.Text(), "# Who may ask")
	var p comment.Parser
	printer := comment.Printer{HeadingLevel: 2, HeadingID: func(*comment.Heading) string { return "" }}
	b.Write(printer.Markdown(p.Parse("# Who may ask" + rest)))
	b.WriteString("\n## Operations\n\nEach acts with one verb on one kind of object; what somebody may do is said " +
		"with these.\n" +
		"A query parameter with * may be repeated.\n\nVerbs: ")
	b.WriteString(join(Verbs()) + ". Kinds: " + join(Kinds()) + ".\n")
	for _, k := range Kinds() {
		fmt.Fprintf(&b, "\n### %s\n\n", k)
		b.WriteString("| verb | operation | query | body | answer | |\n| --- | --- | --- | --- | --- | --- |\n")
		for _, r := range Routes() {
			if r.Kind == k {
				fmt.Fprintf(&b, "| %s | `%s` | %s | %s | %s | %s |\n", r.Verb, r.Op, code(r.Query),
					code(typeName(r.In)), answerOf(r), r.About)
			}
		}
		fmt.Fprintf(&b, "\n```\n%s\n```\n", examples()[k].curl())
	}
	b.WriteString("\n## Not served\n\nThese parts of the Machines API are answered with 501.\n\n")
	un := Unimplemented()
	for _, path := range sorted(un) {
		fmt.Fprintf(&b, "* `%s`: %s.\n", path, un[path])
	}
	return b.Bytes()
}

func join[T ~string](names []T) string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = "`" + string(n) + "`"
	}
	return strings.Join(out, ", ")
}

func sorted(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }

func code(s string) string {
	if s == "" {
		return ""
	}
	return "`" + s + "`"
}

// typeName returns the name of a body as the OpenAPI description has it.
func typeName(v any) string {
	if v == nil {
		return ""
	}
	t := reflect.TypeOf(v)
	if t.Name() != "" {
		return t.Name()
	}
	if t.Kind() == reflect.Slice {
		return "[" + t.Elem().Name() + "]"
	}
	return "{name: value}"
}

func answerOf(r Route) string {
	text := code(typeName(r.Out))
	switch r.Media {
	case NDJSON:
		text = "lines of " + text
	case Tar:
		text = "a tar stream"
	case Plain:
		text = "text"
	}
	if r.Code != 200 {
		text = strings.TrimSpace(strconv.Itoa(r.Code) + " " + text)
	}
	return text
}
