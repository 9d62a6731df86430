package image_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sync/errgroup"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime/image"
	"github.com/soukhq/souk/runtime/image/imagetest"
	"github.com/soukhq/souk/runtime/image/remote"
)

func TestPullFetchesOnceAndSurvivesRestart(t *testing.T) {
	for _, compression := range []string{"", "gzip", "zstd", imagetest.DockerZstd} {
		t.Run(compression, func(t *testing.T) {
			reg, dir := imagetest.NewRegistry(t), t.TempDir()
			built := small(t, compression)
			name := reg.Push(t, "me/app:v1", built)
			s := open(t, dir)
			var mu sync.Mutex
			done := map[string]int64{}
			got := must(s.Pull(t.Context(), name, image.PullOptions{Progress: func(p image.Progress) {
				mu.Lock()
				defer mu.Unlock()
				done[p.Blob] = p.Done
			}}))(t)
			if got.Digest != built.Digest() || !slices.Equal(got.Names, []string{name}) || len(got.Layers) != 2 {
				t.Errorf("pulled %+v, want the digest %s", got, built.Digest())
			}
			want := image.Config{Entrypoint: []string{"/run"}, Cmd: []string{"-v"}, Env: []string{"A=1"}, User: "7:8",
				WorkDir: "/w", StopSignal: "SIGINT", ExposedPorts: []string{"53/udp", "80/tcp"}}
			if d := cmp.Diff(want, got.Config); d != "" {
				t.Errorf("its config (-want +got):\n%s", d)
			}
			for _, l := range got.Layers {
				if done[l.Digest] != l.Size {
					t.Errorf("progress ended at %d of %d bytes of %s", done[l.Digest], l.Size, l.Digest)
				}
			}
			if left := leftovers(t, dir); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
			reg.Asked("")
			must(s.Pull(t.Context(), name, image.PullOptions{}))(t)
			if n := reg.Asked("/blobs/"); n != 0 {
				t.Errorf("%d blobs were asked for again", n)
			}
			repository, _, _ := strings.Cut(name, ":v1")
			must(s.Pull(t.Context(), repository+"@"+built.Digest(), image.PullOptions{}))(t)
			if n := reg.Asked(""); n != 0 {
				t.Errorf("%d requests for what is pinned and here", n)
			}
			// A store that is opened later has the same.
			again := must(open(t, dir).Get(name))(t)
			if !reflect.DeepEqual(again.Layers, got.Layers) {
				t.Errorf("after a restart %+v, before %+v", again.Layers, got.Layers)
			}
		})
	}
}

// An entrypoint of one empty word is how a Dockerfile clears the one of its base image.
func TestEmptyEntrypointWordCountsAsNone(t *testing.T) {
	reg := imagetest.NewRegistry(t)
	built := imagetest.Build(t, imagetest.Spec{Layers: [][]byte{imagetest.Tar(t, imagetest.Dir("d"))},
		Config: v1.Config{Entrypoint: []string{""}, Cmd: []string{"/bin/echo", "hi"}}})
	got := must(open(t, t.TempDir()).Pull(t.Context(), reg.Push(t, "app:v1", built), image.PullOptions{}))(t)
	if len(got.Config.Entrypoint) != 0 || len(got.Config.Cmd) != 2 {
		t.Errorf("entrypoint %q, cmd %q; want none, and the command", got.Config.Entrypoint, got.Config.Cmd)
	}
}

func TestTwoPullsOfOneImageFetchOnce(t *testing.T) {
	reg, dir := imagetest.NewRegistry(t), t.TempDir()
	name := reg.Push(t, "app:v1", small(t, "gzip"))
	var g errgroup.Group
	for range 6 {
		s := open(t, dir) // as if each were a process of its own
		g.Go(func() error {
			_, err := s.Pull(t.Context(), name, image.PullOptions{})
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	if n := reg.Asked("/blobs/"); n != 3 { // two layers and a config
		t.Errorf("blobs were asked for %d times, there are 3", n)
	}
}

func TestPullChoosesTheHostPlatform(t *testing.T) {
	reg := imagetest.NewRegistry(t)
	layer := [][]byte{imagetest.Tar(t, imagetest.File{Name: "a", Body: "a"})}
	mine := imagetest.Build(t, imagetest.Spec{Layers: layer})
	arm := imagetest.Build(t, imagetest.Spec{Layers: layer, Arch: "riscv64"})
	windows := imagetest.Build(t, imagetest.Spec{Layers: layer, OS: "windows", Arch: "amd64"})
	index := imagetest.Index(t, windows, arm, mine)
	s := open(t, t.TempDir(), func(o *image.Options) { o.Platform = mine.Platform })
	got := must(s.Pull(t.Context(), reg.Push(t, "all:v1", index), image.PullOptions{}))(t)
	if got.Digest != mine.Digest() || got.Index != index.Digest() {
		t.Errorf("chose %s of the index %s, want %s of %s", got.Digest, got.Index, mine.Digest(), index.Digest())
	}
	if by := must(s.Get(index.Digest()))(t); by.Digest != got.Digest {
		t.Errorf("the index's digest means %s", by.Digest)
	}
	_, err := s.Pull(t.Context(), reg.Push(t, "other:v1", imagetest.Index(t, windows, arm)), image.PullOptions{})
	host := mine.Platform.String()
	wantFault(t, err, fault.Precondition, "@/other:v1 is for windows/amd64, linux/riscv64, and this host is "+host+
		"; build it for that, or run it on a worker of another kind")
	_, err = s.Pull(t.Context(), reg.Push(t, "arm:v1", arm), image.PullOptions{})
	wantFault(t, err, fault.Precondition, "@/arm:v1 is for linux/riscv64, and this host is "+host+
		"; build it for that, or run it on a worker of another kind")
}

// Each way in which a registry may fail, and what is said then.
func TestPullReportsEachRegistryFailure(t *testing.T) {
	digest := func(i *imagetest.Image, n int) string { return i.Parsed.Layers[n].Digest.String() }
	built := small(t, "")
	first := digest(built, 0)
	for name, c := range map[string]struct {
		fault imagetest.Fault
		kind  fault.Kind
		text  string
	}{
		"no such image": {imagetest.Fault{Path: "/manifests/", Status: 404,
			Body: `{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest\u0007 unknown"}]}`}, fault.NotFound,
			`the registry @ does not have the image @/app:v1: it says "manifest  unknown"`},
		"401": {imagetest.Fault{Status: 401, Header: map[string]string{"WWW-Authenticate": `Basic realm="x"`}},
			fault.Denied,
			"the registry @ wants credentials for the image @/app:v1, and none are configured for it (or there is " +
				"no such image)"},
		"403": {imagetest.Fault{Status: 403}, fault.Denied,
			"the registry @ denies access to the image @/app:v1 with the configured credentials"},
		"429": {imagetest.Fault{Status: 429, Header: map[string]string{"Retry-After": "3600"}}, fault.Unavailable,
			"the registry @ has had too many requests to give the image @/app:v1 now; try again later, or configure " +
				"a mirror"},
		"500": {imagetest.Fault{Status: 503}, fault.Unavailable,
			"the registry @ answered 503 when asked for the image @/app:v1; try again later"},
		"a web site": {imagetest.Fault{Path: "/manifests/", Status: 200, Body: "<html>"}, fault.Invalid,
			"the manifest of @/app:v1 is not a valid image manifest: it is not JSON of its form; build or push the " +
				"image again"},
		"teapot": {imagetest.Fault{Status: 418}, fault.Invalid,
			"the registry @ answered 418 when asked for the image @/app:v1; is it a registry of images?"},
		"both": {imagetest.Fault{Path: "/manifests/", Status: 200,
			Body: `{"schemaVersion":2,"manifests":[],"layers":[]}`},
			fault.Invalid, "the manifest of @/app:v1 is not a valid image manifest: it has the parts of both an " +
				"index and an image, or of neither; build or push the image again"},
		"schema 1": {imagetest.Fault{Path: "/manifests/", Status: 200, Body: `{"schemaVersion":1,"fsLayers":[]}`},
			fault.Unimplemented, "@/app:v1 is in docker's first format of images, which is given up; push it again " +
				"with a " +
				"docker of 2017 or later"},
		"endless manifest": {imagetest.Fault{Path: "/manifests/", Status: 200, Body: strings.Repeat(" ", 5<<20)},
			fault.Invalid, "the registry @ sent more than 4194304 bytes as the manifest of the image @/app:v1; no " +
				"manifest is " +
				"that long"},
		"wrong bytes": {imagetest.Fault{Path: first, Wrong: true}, fault.Invalid,
			"the data received as the blob " + first + " has the digest DIGEST: it was changed on the way; " +
				"nothing of it " +
				"was kept"},
		"cut": {imagetest.Fault{Path: first, CutAfter: 5000, NoRange: true}, fault.Unavailable,
			"the registry @ broke off in the middle of the blob " + first +
				" of @/app:v1; pull again, and the pull continues there"},
		"short": {imagetest.Fault{Path: first, Short: 5000, NoRange: true}, fault.Unavailable,
			"the registry @ sent 5000 of the 302080 bytes of the blob " + first +
				" of @/app:v1; pull again, and the pull continues there"},
		"loops": {imagetest.Fault{Status: 307, Header: map[string]string{"Location": "/v2/"}}, fault.Unavailable,
			"the registry @ redirects endlessly when asked for the image @/app:v1; ask its operator"},
		"sent to the cloud's own address": {imagetest.Fault{Path: first, Status: 307,
			Header: map[string]string{"Location": "http://169.254.169.254/latest"}}, fault.Denied,
			"the registry redirects to 169.254.169.254:80, a more private address than its own, which souk does not " +
				"follow"},
		"token at the cloud's own address": {imagetest.Fault{Status: 401, Header: map[string]string{
			"WWW-Authenticate": `Bearer realm="http://169.254.169.254/token",service="x"`}}, fault.Denied,
			"the registry redirects to 169.254.169.254:80, a more private address than its own, which souk does not " +
				"follow"},
	} {
		t.Run(name, func(t *testing.T) {
			reg, dir := imagetest.NewRegistry(t), t.TempDir()
			ref := reg.Push(t, "app:v1", built)
			reg.Misbehave(c.fault)
			s := open(t, dir)
			_, err := s.Pull(t.Context(), ref, image.PullOptions{})
			if err != nil {
				f := *fault.As(err)
				if _, after, ok := strings.Cut(f.Text, "has the digest sha256:"); ok && name == "wrong bytes" {
					f.Text = strings.Replace(f.Text, "sha256:"+after[:64], "DIGEST", 1)
				}
				err = &f
			}
			wantFault(t, err, c.kind, c.text)
			if _, err := s.Get(ref); !fault.Is(err, fault.NotFound) {
				t.Errorf("an image that is not whole is known: %v", err)
			}
			reg.Behave()
			got, err := s.Pull(t.Context(), ref, image.PullOptions{})
			if err != nil || got.Digest != built.Digest() {
				t.Errorf("afterwards it cannot be pulled: %v", err)
			}
			if left := leftovers(t, dir); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

func TestPullFromAHangingRegistryTimesOut(t *testing.T) {
	built := small(t, "")
	for name, f := range map[string]imagetest.Fault{
		"at once":               {Path: "/manifests/", Hang: true},
		"in the middle of blob": {Path: built.Parsed.Layers[0].Digest.String(), HangAfter: 1000, NoRange: true},
	} {
		t.Run(name, func(t *testing.T) {
			reg := imagetest.NewRegistry(t)
			ref := reg.Push(t, "app:v1", built)
			reg.Misbehave(f)
			s := open(t, t.TempDir(), func(o *image.Options) { o.Remote.Idle = 50 * time.Millisecond })
			_, err := s.Pull(t.Context(), ref, image.PullOptions{})
			what := "the image @/app:v1"
			if f.HangAfter > 0 {
				what = "the blob " + f.Path + " of @/app:v1"
			}
			wantFault(t, err, fault.Timeout, "the registry @ sent nothing for 50ms while asked for "+what+
				"; try again, or configure a mirror")
		})
	}
}

func TestPullEndsWhenCancelled(t *testing.T) {
	reg := imagetest.NewRegistry(t)
	ref := reg.Push(t, "app:v1", small(t, ""))
	reg.Misbehave(imagetest.Fault{Hang: true})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := open(t, t.TempDir()).Pull(ctx, ref, image.PullOptions{})
	if !fault.Is(err, fault.Timeout) || fault.CodeOf(err) != "image_canceled" {
		t.Errorf("got %v", err)
	}
}

func TestPullFromUnreachableRegistryIsUnavailable(t *testing.T) {
	_, err := open(t, t.TempDir()).Pull(t.Context(), "127.0.0.1:1/app:v1", image.PullOptions{})
	wantFault(t, err, fault.Unavailable, "the registry @ cannot be reached for the image @/app:v1 (dial tcp "+
		"@: connect: connection refused); see that its name is right and that it runs, or load the image from a file")
}

// A blob that was cut is gone on with from there, also by a later process, and verified whole.
func TestPullResumesACutBlob(t *testing.T) {
	built := small(t, "")
	layer := built.Parsed.Layers[0].Digest.String()
	for name, c := range map[string]struct {
		faults []imagetest.Fault
		ranges []string
	}{
		"at the same time": {[]imagetest.Fault{{CutAfter: 1000, Times: 1}},
			[]string{"", "bytes=1000-302079"}},
		"cut twice": {[]imagetest.Fault{{CutAfter: 1000, Times: 1}, {CutAfter: 50_000, Times: 1}},
			[]string{"", "bytes=1000-302079", "bytes=51000-302079"}},
		"a registry without ranges": {[]imagetest.Fault{{CutAfter: 1000, Times: 1}, {NoRange: true, Times: 1}},
			[]string{"", "bytes=1000-302079"}},
		"a registry that refuses ranges": {[]imagetest.Fault{{CutAfter: 1000, Times: 1}, {Status: 416, Times: 1}},
			[]string{"", "bytes=1000-302079", ""}},
		"another range": {[]imagetest.Fault{{CutAfter: 1000, Times: 1}, {Range: "bytes 0-302079/302080", Times: 1}},
			[]string{"", "bytes=1000-302079", ""}},
		"a failure, then busy": {[]imagetest.Fault{{Status: 500, Times: 1},
			{Status: 429, Times: 1, Header: map[string]string{"Retry-After": "1"}}}, []string{"", "", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			reg := imagetest.NewRegistry(t)
			ref := reg.Push(t, "app:v1", built)
			for _, f := range c.faults {
				f.Path = layer
				reg.Misbehave(f)
			}
			must(open(t, t.TempDir()).Pull(t.Context(), ref, image.PullOptions{}))(t)
			if d := cmp.Diff(c.ranges, reg.Ranges(layer)); d != "" {
				t.Errorf("how the blob was asked for (-want +got):\n%s", d)
			}
		})
	}
	t.Run("what was left is wrong", func(t *testing.T) {
		reg, dir := imagetest.NewRegistry(t), t.TempDir()
		ref := reg.Push(t, "app:v1", built)
		s := open(t, dir)
		hex := strings.TrimPrefix(layer, "sha256:")
		if err := os.WriteFile(filepath.Join(dir, "partial", hex), []byte("not its beginning"), 0o600); err != nil {
			t.Fatal(err)
		}
		must(s.Pull(t.Context(), ref, image.PullOptions{}))(t)
		if n := reg.Asked(layer); n != 2 {
			t.Errorf("the blob was asked for %d times, want one for the rest and one for all of it", n)
		}
	})
}

func TestPullTriesMirrorsFirst(t *testing.T) {
	built := small(t, "gzip")
	hub, broken, good := imagetest.NewRegistry(t), imagetest.NewRegistry(t), imagetest.NewRegistry(t)
	ref := hub.Push(t, "me/app:v1", built)
	good.Push(t, "me/app:v1", built)
	broken.Push(t, "me/app:v1", built)
	broken.Misbehave(imagetest.Fault{Path: "/blobs/", Wrong: true})
	mirrored := func(o *image.Options) {
		o.Remote.Registries = map[string]remote.Registry{hub.Host: {Mirrors: []string{broken.URL, good.Host}}}
	}
	must(open(t, t.TempDir(), mirrored).Pull(t.Context(), ref, image.PullOptions{}))(t)
	if n := hub.Asked(""); n != 0 {
		t.Errorf("the registry was asked %d times though a mirror has it all", n)
	}
	if n := broken.Asked("/blobs/"); n == 0 {
		t.Error("the first mirror was not asked first")
	}
	for _, r := range []*imagetest.Registry{good, broken, hub} {
		r.Misbehave(imagetest.Fault{Status: 404})
	}
	_, err := open(t, t.TempDir(), mirrored).Pull(t.Context(), ref, image.PullOptions{})
	wantFault(t, err, fault.NotFound, "the registry @ does not have the image @/me/app:v1; its mirrors did not help "+
		"either: "+
		"http://@ (the registry http://@ does not have the image @/me/app:v1); @ (the registry @ does not have the "+
		"image "+
		"@/me/app:v1)")
}

func TestPullSendsCredentialsOnlyToTheirRegistry(t *testing.T) {
	built := small(t, "gzip")
	reg := imagetest.NewRegistry(t)
	ref := reg.Push(t, "me/app:v1", built)
	config := filepath.Join(t.TempDir(), "config.json")
	login := func(t *testing.T, host, pair string) func(*image.Options) {
		t.Helper()
		raw := fmt.Sprintf(`{"auths":{%q:{"auth":%q}}}`, "https://"+host+"/v1/",
			base64.StdEncoding.EncodeToString([]byte(pair)))
		if err := os.WriteFile(config, []byte(raw), 0o600); err != nil {
			t.Fatal(err)
		}
		return func(o *image.Options) { o.Remote.Credentials = must(remote.DockerConfig(config))(t) }
	}
	t.Run("basic", func(t *testing.T) {
		reg.Behave()
		reg.Misbehave(imagetest.Fault{Status: 401, User: "me:secret",
			Header: map[string]string{"WWW-Authenticate": `Basic realm="x"`}})
		must(open(t, t.TempDir(), login(t, reg.Host, "me:secret")).Pull(t.Context(), ref, image.PullOptions{}))(t)
		_, err := open(t, t.TempDir(), login(t, reg.Host, "me:wrong")).Pull(t.Context(), ref, image.PullOptions{})
		wantFault(t, err, fault.Denied, "the registry @ rejects the credentials that are configured for the image "+
			"@/me/app:v1 (or there is no such image)")
		_, err = open(t, t.TempDir(), login(t, "other", "me:secret")).Pull(t.Context(), ref, image.PullOptions{})
		wantFault(t, err, fault.Denied, "the registry @ wants credentials for the image @/me/app:v1, and none are "+
			"configured "+
			"for it (or there is no such image)")
	})
	t.Run("token", func(t *testing.T) {
		var got string
		realm := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			user, password, _ := r.BasicAuth()
			got = user + ":" + password + " " + r.URL.Query().Get("service") + " " + r.URL.Query().Get("scope")
			_, _ = fmt.Fprint(w, `{"access_token":"abc"}`)
		}))
		defer realm.Close()
		reg.Behave()
		reg.Misbehave(imagetest.Fault{Status: 401, Token: "abc", Header: map[string]string{
			"WWW-Authenticate": `Bearer realm="` + realm.URL + `/token",service="reg",scope="repository:evil:push"`}})
		must(open(t, t.TempDir(), login(t, reg.Host, "me:secret")).Pull(t.Context(), ref, image.PullOptions{}))(t)
		if want := "me:secret reg repository:me/app:pull"; got != want {
			t.Errorf("the realm was asked as %q, want %q", got, want)
		}
	})
	// Who is redirected to gets no credentials, also when it asks for some.
	t.Run("redirected", func(t *testing.T) {
		var sent []string
		storage := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			sent = append(sent, r.Header.Get("Authorization"))
			w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
			w.WriteHeader(401)
		}))
		defer storage.Close()
		reg.Behave()
		reg.Misbehave(imagetest.Fault{Path: "/manifests/", Status: 401, User: "me:secret",
			Header: map[string]string{"WWW-Authenticate": `Basic realm="x"`}})
		reg.Misbehave(imagetest.Fault{Path: "/blobs/", Status: 307, Header: map[string]string{"Location": storage.URL}})
		_, err := open(t, t.TempDir(), login(t, reg.Host, "me:secret")).Pull(t.Context(), ref, image.PullOptions{})
		if !fault.Is(err, fault.Denied) || len(sent) == 0 || strings.Join(sent, "") != "" {
			t.Errorf("got %v, and the storage was sent %q", err, sent)
		}
	})
}

func TestInvalidDockerConfigIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.json")
	for raw, want := range map[string]string{
		"{": "@/config.json is not a config of docker's: it is not JSON of that form; write it with \"docker login\"",
		`{"auths":{"a.io":{"auth":"!"}}}`: "the credentials of a.io in @/config.json are not NAME:PASSWORD in " +
			"base64; log in " +
			"again",
	} {
		if err := os.WriteFile(path, []byte(raw), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := remote.DockerConfig(path)
		wantFault(t, err, fault.Invalid, want)
	}
}
