package gateway

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// linesOf reads NDJSON.
func linesOf(t *testing.T, raw string) (out []api.PullLine, failed api.ErrorBody) {
	t.Helper()
	for line := range strings.Lines(raw) {
		if strings.HasPrefix(line, `{"error"`) {
			if err := json.Unmarshal([]byte(line), &failed); err != nil {
				t.Fatal(err)
			}
			continue
		}
		var l api.PullLine
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatal(err)
		}
		out = append(out, l)
	}
	return out, failed
}

// TestImagesArePulledListedAndRemovedPerWorker: what is pulled at one worker is listed for it, and is removed there.
func TestImagesArePulledListedAndRemovedPerWorker(t *testing.T) {
	none := newMemWorker("w3", "local", room)
	none.noImages = fault.New(fault.Precondition, "images", "worker w3 keeps no images")
	s := newShop(t, newMemWorker("w1", "local", room), newMemWorker("w2", "local", room), none)
	got, failed := linesOf(t, s.want(200, "POST", "/v1/souk/workers/w2/images/pull", `{"image":"x:1"}`).raw)
	if failed.Error != "" || len(got) != 3 || got[0].Progress == nil || got[2].Image == nil ||
		got[2].Image.Names[0] != "docker.io/library/x:1" {
		t.Fatalf("a pull said %+v, %+v", got, failed)
	}
	var list api.ImageList
	s.want(200, "GET", "/v1/souk/images", nil).into(t, &list)
	if len(list.Stores) != 2 || list.Stores[0].Worker != "w1" || len(list.Stores[0].Images) != 0 ||
		len(list.Stores[1].Images) != 1 || len(list.Without) != 1 || list.Without[0].Worker != "w3" ||
		!strings.Contains(list.Without[0].Error, "keeps no images") {
		t.Errorf("listed are %+v", list)
	}
	s.want(200, "GET", "/v1/souk/images?worker=w2", nil).into(t, &list)
	if len(list.Stores) != 1 || list.Stores[0].Worker != "w2" || len(list.Without) != 0 {
		t.Errorf("of w2 are listed %+v", list)
	}
	var loaded api.LoadedImages
	s.want(200, "POST", "/v1/souk/workers/w1/images/load?name=x.tar", "four").into(t, &loaded)
	if len(loaded.Images) != 1 || loaded.Images[0].Size != 4 {
		t.Errorf("loaded are %+v", loaded)
	}
	var freed api.Freed
	s.want(200, "DELETE", "/v1/souk/workers/w2/images?image=x:1", nil).into(t, &freed)
	if freed.Bytes != 2 {
		t.Errorf("freed are %+v", freed)
	}
	s.want(200, "DELETE", "/v1/souk/workers/w2/images?unused=true", nil).into(t, &freed)
	if freed.Bytes != 0 {
		t.Errorf("freed are %+v", freed)
	}
}

// TestBadImageRequestsReachNoWorker: each mistake has a code and a sentence that names it, and no worker was asked.
func TestBadImageRequestsReachNoWorker(t *testing.T) {
	s := newShop(t)
	w := s.workers[0]
	for _, c := range []struct {
		method, path string
		body         any
		code         int
		says         string
	}{
		{"POST", "/w1/images/pull", `{"image":"X Y"}`, 400, "is not the name of an image"},
		{"POST", "/w1/images/pull", `{"image":"souk/host"}`, 400, "every worker has"},
		{"POST", "/w1/images/pull", `{"name":"x"}`, 400, "there is no field"},
		{"POST", "/w1/images/pull", nil, 400, "the body is empty"},
		{"POST", "/w9/images/pull", `{"image":"x"}`, 404, "there is no worker w9"},
		{"POST", "/w9/images/load", "x", 404, "there is no worker w9"},
		{"POST", "/w1/images/load?name=a%0Ab.tar", "junk", 400, "ab.tar is no archive of images"},
		{"POST", "/w1/images/load", "junk", 400, "what was sent is no archive of images"},
		{"DELETE", "/w1/images", nil, 400, "say image=NAME"},
		{"DELETE", "/w1/images?image=x&unused=true", nil, 400, "and not both"},
		{"DELETE", "/w1/images?unused=maybe", nil, 400, "neither true nor false"},
		{"DELETE", "/w1/images?image=" + strings.Repeat("x", 700), nil, 400, "at most 600 bytes"},
		{"DELETE", "/w1/images?image=nothing", nil, 404, "is not on this host"},
		{"DELETE", "/w9/images?unused=1", nil, 404, "there is no worker w9"},
	} {
		r := s.want(c.code, c.method, "/v1/souk/workers"+c.path, c.body)
		if text := r.failure(t).Error; !strings.Contains(text, c.says) {
			t.Errorf("%s %s says %q, not %q", c.method, c.path, text, c.says)
		}
	}
	if text := s.want(404, "GET", "/v1/souk/images?worker=w9", nil).failure(t).Error; !strings.Contains(text, "w9") {
		t.Error(text)
	}
	// A pull that has told of its progress ends with a line that is the error.
	w.pull = func(string) error {
		return fault.New(fault.NotFound, "image_unknown", "the registry r does not have x")
	}
	got, failed := linesOf(t, s.want(200, "POST", "/v1/souk/workers/w1/images/pull", `{"image":"x"}`).raw)
	if len(got) != 2 || failed.Souk.Kind != fault.NotFound || !strings.Contains(failed.Error, "does not have x") {
		t.Errorf("a pull that fails says %+v, %+v", got, failed)
	}
	w.noImages = fault.New(fault.Precondition, "images", "worker w1 keeps no images")
	for _, path := range []string{"/pull", "/load"} {
		s.want(412, "POST", "/v1/souk/workers/w1/images"+path, `{"image":"x"}`)
	}
}

// TestImageArchiveStreamsToTheWorker: it is not kept here: the worker has its beginning before there is an end.
func TestImageArchiveStreamsToTheWorker(t *testing.T) {
	s := newShop(t)
	from, to := io.Pipe()
	begun := make(chan struct{})
	go func() {
		_, _ = io.WriteString(to, strings.Repeat("x", 1<<20)) // it is taken, or the test ends without it
		close(begun)
		_ = to.Close()
	}()
	res := s.dial("POST", s.listen()+"/v1/souk/workers/w1/images/load", from)
	var got api.LoadedImages
	if err := json.NewDecoder(bufio.NewReader(res.Body)).Decode(&got); err != nil {
		t.Fatal(err)
	}
	<-begun
	if len(got.Images) != 1 || got.Images[0].Size != 1<<20 {
		t.Errorf("%d: %+v", res.StatusCode, got)
	}
}

// TestOnlyOperatorsMayChangeImages: a viewer lists them, an operator changes them.
func TestOnlyOperatorsMayChangeImages(t *testing.T) {
	for _, r := range api.Routes() {
		if r.Kind == api.KindImage && (!api.RoleOperator.May(r) || api.RoleViewer.May(r) != (r.Op == api.ListImages)) {
			t.Errorf("%s: operator %v, viewer %v", r.Op, api.RoleOperator.May(r), api.RoleViewer.May(r))
		}
	}
}

// Images are those that were pulled or loaded.
func (w *memWorker) Images(context.Context) (cluster.ImageStore, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return cluster.ImageStore{Worker: w.id, Store: "disk-" + string(w.id), Bytes: 100,
		Images: append([]cluster.StoredImage{}, w.images...)}, cmp.Or(w.down, w.noImages)
}

func (w *memWorker) PullImage(_ context.Context, name string,
	tell func(cluster.ImageProgress) error) (i cluster.StoredImage, err error) {
	if err := cmp.Or(w.down, w.noImages); err != nil {
		return i, err
	}
	for _, done := range []int64{1, 2} {
		if err := tell(cluster.ImageProgress{Blob: "sha256:1", Done: done, Size: 2}); err != nil {
			return i, err
		}
	}
	if w.pull != nil {
		if err := w.pull(name); err != nil {
			return i, err
		}
	}
	i = cluster.StoredImage{Digest: "sha256:1", Names: []string{machine.ParseImage(name).String()}, Size: 2, Layers: 1}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.images = append(w.images, i)
	return i, nil
}

func (w *memWorker) LoadImages(_ context.Context, what string, in io.Reader) ([]cluster.StoredImage, error) {
	raw, err := io.ReadAll(in)
	if err := cmp.Or(w.down, w.noImages, err); err != nil {
		return nil, err
	}
	if string(raw) == "junk" {
		return nil, fault.New(fault.Invalid, "image_file", "%s is no archive of images", what)
	}
	return []cluster.StoredImage{{Digest: "sha256:2", Names: []string{}, Size: int64(len(raw))}}, nil
}

func (w *memWorker) RemoveImage(_ context.Context, name string) (int64, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for n, i := range w.images {
		if slices.Contains(i.Names, machine.ParseImage(name).String()) {
			w.images = slices.Delete(w.images, n, n+1)
			return i.Size, w.down
		}
	}
	return 0, cmp.Or[error](w.down, fault.New(fault.NotFound, "image", "the image %s is not on this host", name))
}

func (w *memWorker) PruneImages(context.Context) (freed int64, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, i := range w.images {
		freed += i.Size
	}
	w.images = nil
	return freed, w.down
}
