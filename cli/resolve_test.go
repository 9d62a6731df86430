package cli

import (
	"os"
	"testing"

	"github.com/soukhq/souk/machine"
)

// TestAmbiguousNameIsResolvedByIDOrApp: in one app only an id tells them apart, in several an app does.
func TestAmbiguousNameIsResolvedByIDOrApp(t *testing.T) {
	a := &machine.Line{ID: "d891275c2e5118", App: "web", Worker: "a"}
	b := &machine.Line{ID: "e784079b449483", App: "web", Worker: "b"}
	c := &machine.Line{ID: "148ed193a32789", App: "shop", Worker: "b"}
	for want, named := range map[string][]*machine.Line{
		`2 machines of app web are named "rb1": d891275c2e5118 on a, e784079b449483 on b; give the id`: {a, b},
		`3 machines are named "rb1", in the apps shop, web; give --app, or the id`:                     {a, b, c},
	} {
		if got := ambiguous(named, "rb1").Error(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// TestReplicaBeingReplacedNamesBothMachines: while one machine takes the place of another both stand for the replica.
func TestReplicaBeingReplacedNamesBothMachines(t *testing.T) {
	a := &machine.Line{ID: "d891275c2e5118", App: "web", Worker: "a", State: machine.Started}
	b := &machine.Line{ID: "e784079b449483", App: "web", Worker: "b", State: machine.Starting}
	c := &machine.Line{ID: "148ed193a32789", App: "shop", Worker: "b", State: machine.Started}
	for want, named := range map[string][]*machine.Line{
		"2 machines of app web are replica rb/1 now: d891275c2e5118 (started, on a), e784079b449483 (starting, on " +
			"b); give the id of one": {a, b},
		"the apps shop, web have a replica rb/1 each; give --app, or the id": {a, b, c},
	} {
		if got := ambiguousReplica(named, "rb/1").Error(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// TestAppOfAFolderComesFromItsManifest: the app of a directory is that of its souk.toml, whatever else is in it.
func TestAppOfAFolderComesFromItsManifest(t *testing.T) {
	t.Chdir(t.TempDir())
	for text, want := range map[string]string{"": "", "app = \"shop\"\n[groups.web]\nimage = \"x\"\n": "shop",
		"app = 7":      "",
		"[groups.web]": "", "app =": ""} {
		if err := os.WriteFile("souk.toml", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := FolderApp(); got != want {
			t.Errorf("%q is of %q", text, got)
		}
	}
}
