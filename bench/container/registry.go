package container

import (
	"encoding/json"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/soukhq/souk/fault"
)

// registry serves one image on loopback, like a registry.
type registry struct {
	name   string // of the image
	server *http.Server
}

const manifestType = "application/vnd.oci.image.manifest.v1+json"

// serveImage serves an image of one compressed layer. The registry in its name is replaced by this server's address.
func serveImage(name string, layer, packed []byte) (*registry, error) {
	conf, err := imageConfig(layer)
	if err != nil {
		return nil, err
	}
	manifest, err := json.Marshal(map[string]any{"schemaVersion": 2, "mediaType": manifestType,
		"config": map[string]any{"mediaType": "application/vnd.oci.image.config.v1+json", "size": len(conf),
			"digest": digestOf(conf)},
		"layers": []map[string]any{{"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", "size": len(packed),
			"digest": digestOf(packed)}}})
	if err != nil {
		return nil, err
	}
	blobs := map[string][]byte{digestOf(conf): conf, digestOf(packed): packed, digestOf(manifest): manifest}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, fault.CodeBench, "no registry can be served on loopback")
	}
	_, repository, _ := strings.Cut(name, "/")
	r := &registry{name: ln.Addr().String() + "/" + repository, server: &http.Server{ReadHeaderTimeout: time.Minute,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			body, there := manifest, strings.Contains(q.URL.Path, "/manifests/")
			if there {
				w.Header().Set("Content-Type", manifestType)
			} else {
				body, there = blobs[q.URL.Path[strings.LastIndexByte(q.URL.Path, '/')+1:]]
			}
			if !there {
				http.NotFound(w, q)
				return
			}
			http.ServeContent(w, q, "", time.Time{}, strings.NewReader(string(body)))
		})}}
	go func() { _ = r.server.Serve(ln) }() // it ends with close
	return r, nil
}

func (r *registry) close() { _ = r.server.Close() }
