package jobs

import (
	"slices"
	"strings"
	"testing"

	"github.com/soukhq/souk/machine"
)

// TestSecretsOfJobsAreChecked: each variable is given once, and the job has names alone.
func TestSecretsOfJobsAreChecked(t *testing.T) {
	ref := func(name, variable string) machine.SecretRef { return machine.SecretRef{Name: name, EnvVar: variable} }
	for _, c := range []struct {
		secrets []machine.SecretRef
		want    string
	}{
		{nil, ""},
		{[]machine.SecretRef{ref("KEY", ""), ref("HUB", "TOKEN"), ref("KEY", "AGAIN")}, ""},
		{[]machine.SecretRef{ref("", "X")}, "can name neither"},
		{[]machine.SecretRef{ref("A=B", "")}, "can name neither"},
		{[]machine.SecretRef{ref("A", "B=C")}, "can name neither"},
		{[]machine.SecretRef{ref(strings.Repeat("x", 256), "X")}, "can name neither"},
		{[]machine.SecretRef{ref("A", "X"), ref("B", "X")}, `"X" is to be the secret "B", and something else`},
		{[]machine.SecretRef{ref("A", "HERE")}, `"HERE" is to be the secret "A", and something else`},
		{make([]machine.SecretRef, MaxSecrets+1), "at most 64 secrets, not 65"},
	} {
		s := Spec{App: "app", Command: []string{"x"}, Env: map[string]string{"HERE": "1"},
			TaskSecrets: TaskSecrets{Secrets: c.secrets}}
		err := s.Settle()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%v: %v, want %q", c.secrets, err, c.want)
		}
	}
	s := Spec{App: "app", Command: []string{"x"}, TaskSecrets: TaskSecrets{Secrets: []machine.SecretRef{ref("KEY", ""),
		ref("HUB", "TOKEN")}}}
	if err := s.Settle(); err != nil {
		t.Fatal(err)
	}
	terms := s.termsOf("j0000000001")
	if got := terms.SecretEnviron(map[string]string{"KEY": "a", "HUB": "b"}); !slices.Equal(got,
		[]string{"KEY=a", "TOKEN=b"}) || !slices.Equal(terms.SecretNames(), []string{"KEY", "HUB"}) {
		t.Errorf("got %q", got)
	}
	if j := (&job{terms: terms}); !j.shape().Extended {
		t.Error("a worker of a build that knows no secrets would run its tasks")
	}
}
