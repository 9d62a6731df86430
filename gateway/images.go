package gateway

import (
	"log/slog"
	"net/http"
	"slices"
	"strings"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/fleet"
	"github.com/soukhq/souk/fleet/find"
	"github.com/soukhq/souk/machine"
)

// imagesAPI serves the images that workers keep.
type imagesAPI struct {
	directory *directory
	log       *slog.Logger
}

func (a *imagesAPI) opHandlers() handlers {
	return handlers{
		"GET /v1/souk/images":                        a.listImages,
		"POST /v1/souk/workers/{worker}/images/pull": a.pullImage,
		"POST /v1/souk/workers/{worker}/images/load": a.loadImages,
		"DELETE /v1/souk/workers/{worker}/images":    a.removeImages,
	}
}

// listImages asks the workers side by side. Workers that give no list are named in the answer.
func (a *imagesAPI) listImages(w http.ResponseWriter, r *http.Request) error {
	workers := a.directory.Workers()
	if named := r.URL.Query()["worker"]; len(named) > 0 {
		workers = a.directory.Those(func(x *fleet.Worker) bool { return slices.Contains(named, string(x.ID)) })
		for _, id := range named {
			if !slices.ContainsFunc(workers, func(w Worker) bool { return string(w.ID()) == id }) {
				return noWorker(id)
			}
		}
	}
	stores, errs := find.AskAll(workers, func(k Worker) (cluster.ImageStore, error) { return k.Images(r.Context()) })
	out := api.ImageList{Stores: []cluster.ImageStore{}, Without: []api.UnreachableWorker{}}
	for i, err := range errs {
		id := workers[i].ID()
		if err != nil {
			out.Without = append(out.Without, api.UnreachableWorker{Worker: id, Error: asFault(err).Text})
			continue
		}
		stores[i].Worker = id
		out.Stores = append(out.Stores, stores[i])
	}
	answerJSON(w, http.StatusOK, out)
	return nil
}

func (a *imagesAPI) pullImage(w http.ResponseWriter, r *http.Request) error {
	var in api.NewPull
	if err := readJSON(w, r, &in, false); err != nil {
		return err
	}
	if err := checkImage(in.Image); err != nil {
		return err
	}
	k, err := a.directory.workerOf(r)
	if err != nil {
		return err
	}
	l := newLines(w, a.log)
	defer l.flushRest()
	i, err := k.PullImage(r.Context(), in.Image, func(p cluster.ImageProgress) error {
		return l.sendLine(api.PullLine{Progress: &p})
	})
	if err == nil {
		err = l.sendLine(api.PullLine{Image: &i})
	}
	return l.finishStream(r, err)
}

// checkImage refuses impossible image names before any worker is asked.
func checkImage(name string) error {
	if err := machine.CheckImage(name); err != nil {
		return err
	}
	if machine.IsHostImage(name) {
		return fault.New(fault.Invalid, machine.CodeImage,
			"%s is no image: it means the files of the host itself, which every worker has", machine.HostImage)
	}
	return nil
}

// loadImages streams the body to the worker: it is not stored here.
func (a *imagesAPI) loadImages(w http.ResponseWriter, r *http.Request) error {
	k, err := a.directory.workerOf(r)
	if err != nil {
		return err
	}
	what := strings.Map(printableRune, clipText(r.URL.Query().Get("name"), 200))
	if what == "" {
		what = "what was sent"
	}
	out := api.LoadedImages{Images: []cluster.StoredImage{}}
	all, err := k.LoadImages(r.Context(), what, r.Body)
	if err != nil {
		return err
	}
	out.Images = append(out.Images, all...)
	answerJSON(w, http.StatusOK, out)
	return nil
}

func printableRune(r rune) rune {
	if r < ' ' || r == 0x7f {
		return -1
	}
	return r
}

func (a *imagesAPI) removeImages(w http.ResponseWriter, r *http.Request) error {
	image := r.URL.Query().Get("image")
	unused, err := queryBool(r, "unused")
	if err != nil {
		return err
	}
	if (image != "") == unused {
		return fault.New(fault.Invalid, codeQuery,
			"say image=NAME for one image, or unused=true for all that nothing needs, and not both")
	}
	if len(image) > maxImageName {
		return fault.New(fault.Invalid, codeQuery, "the name of an image has at most %d bytes", maxImageName)
	}
	k, err := a.directory.workerOf(r)
	if err != nil {
		return err
	}
	var out api.Freed
	if unused {
		out.Bytes, err = k.PruneImages(r.Context())
	} else {
		out.Bytes, err = k.RemoveImage(r.Context(), image)
	}
	if err != nil {
		return err
	}
	answerJSON(w, http.StatusOK, out)
	return nil
}

// maxImageName bounds names and digests, in bytes.
const maxImageName = 600
