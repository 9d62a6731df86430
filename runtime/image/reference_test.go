package image_test

import (
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime/image"
)

func TestParseReadsImageNames(t *testing.T) {
	digest := "@sha256:" + strings.Repeat("ab", 32)
	for in, want := range map[string]string{
		"nginx":                                "docker.io/library/nginx:latest",
		"docker.io/nginx:1":                    "docker.io/library/nginx:1",
		"index.docker.io/me/a":                 "docker.io/me/a:latest",
		"localhost/a":                          "localhost/a:latest",
		"[::1]/a":                              "",
		"127.0.0.1:5000/a/b/c" + digest:        "127.0.0.1:5000/a/b/c" + digest,
		"a:b" + digest:                         "docker.io/library/a:b" + digest,
		"souk/host":                            "",
		"UPPER":                                "",
		"a/../b":                               "",
		"a@sha256:12":                          "",
		"a@sha512:" + strings.Repeat("ab", 64): "",
		"http://a/b":                           "",
		"a b":                                  "",
		"":                                     "",
	} {
		ref, err := image.Parse(in)
		if want == "" {
			if !fault.Is(err, fault.Invalid) {
				t.Errorf("%q is taken for %s (%v)", in, ref, err)
			}
			continue
		}
		if err != nil || ref.String() != want {
			t.Errorf("%q is %s (%v), want %s", in, ref, err, want)
		}
	}
}

// FuzzParseAgreesWithAnotherParser holds names against another implementation: what souk takes the other takes, and means the same.
func FuzzParseAgreesWithAnotherParser(f *testing.F) {
	for _, s := range []string{"nginx", "docker.io/a:b", "ghcr.io/me/app/x@sha256:" + strings.Repeat("ab", 32),
		"a:5000/b:c",
		"localhost/x", "index.docker.io/a", "a.b/c__d/e--f"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		ref, err := image.Parse(s)
		if err != nil {
			if !fault.Is(err, fault.Invalid) {
				t.Fatalf("%q: %v", s, err)
			}
			return
		}
		if again, err := image.Parse(ref.String()); err != nil || again.String() != ref.String() {
			t.Fatalf("%q is %s, and that is %s (%v)", s, ref, again, err)
		}
		theirs, err := name.ParseReference(s, name.WithDefaultRegistry("docker.io"))
		if err != nil {
			return // of bounds that differ: its repositories have 2 characters or more
		}
		registry := theirs.Context().RegistryStr()
		if registry == "index.docker.io" {
			registry = "docker.io"
		}
		if registry != ref.Registry || theirs.Context().RepositoryStr() != ref.Repository {
			t.Errorf("%q is %s/%s here and %s/%s there", s, ref.Registry, ref.Repository, registry,
				theirs.Context().RepositoryStr())
		}
		want := ref.Tag
		if ref.Digest != "" {
			want = ref.Digest
		}
		if theirs.Identifier() != want {
			t.Errorf("%q is %s here and %s there", s, want, theirs.Identifier())
		}
	})
}
