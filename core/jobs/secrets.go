package jobs

import (
	"strings"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// TaskSecrets are the secrets of its app that a job's tasks have in their environment. Only their names travel: the worker that
// starts a task opens them.
type TaskSecrets struct {
	Secrets []machine.SecretRef `json:"secrets,omitempty"`
	// SecretsVersion is the version of the app's secrets when the job was submitted. A worker whose member has not
	// reached it waits for it. The gateway sets it.
	SecretsVersion uint64 `json:"secrets_version,omitempty"`
}

// MaxSecrets bounds the secrets of a job.
const MaxSecrets = 64

// maxSecretName bounds the name of a secret and of its variable, in bytes.
const maxSecretName = 255

// settleSecrets fills in the variables' names, and refuses what no task could be given.
func (s *Spec) settleSecrets() error {
	no := func(format string, args ...any) error {
		return fault.New(fault.Invalid, fault.CodeJob, format, args...)
	}
	if len(s.Secrets) > MaxSecrets {
		return no("a task has at most %d secrets, not %d", MaxSecrets, len(s.Secrets))
	}
	given := map[string]bool{}
	for i := range s.Secrets {
		x := &s.Secrets[i]
		if x.EnvVar == "" {
			x.EnvVar = x.Name
		}
		for _, name := range []string{x.Name, x.EnvVar} {
			if name == "" || len(name) > maxSecretName || strings.ContainsAny(name, "=\x00") {
				return no("%.40q can name neither a secret nor an environment variable", name)
			}
		}
		if _, is := s.Env[x.EnvVar]; is || given[x.EnvVar] {
			return no("the variable %.80q is to be the secret %.80q, and something else, too: leave one out", x.EnvVar,
				x.Name)
		}
		given[x.EnvVar] = true
	}
	return nil
}

// SecretEnviron returns the variables with the secrets, as KEY=VALUE, of values by the secrets' names.
func (s *TaskSecrets) SecretEnviron(values map[string]string) []string {
	out := make([]string, 0, len(s.Secrets))
	for _, x := range s.Secrets {
		out = append(out, x.EnvVar+"="+values[x.Name])
	}
	return out
}

// SecretNames returns the names of the secrets.
func (s *TaskSecrets) SecretNames() []string {
	out := make([]string, 0, len(s.Secrets))
	for _, x := range s.Secrets {
		out = append(out, x.Name)
	}
	return out
}
