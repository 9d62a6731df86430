package image

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/runtime/image/blobs"
)

// Limits of an image's documents.
const (
	maxDocument = 4 << 20
	maxLayers   = 500 // the kernel's limit for one overlay mount
	maxIndexes  = 2   // nested indexes
)

// manifestTypes are the accepted media types of manifests.
var manifestTypes = []string{string(types.OCIManifestSchema1), string(types.OCIImageIndex), //nolint:gochecknoglobals // a constant
	string(types.DockerManifestSchema2), string(types.DockerManifestList)}

// HostPlatform returns this host's platform.
func HostPlatform() v1.Platform { return v1.Platform{OS: "linux", Architecture: runtime.GOARCH} }

// document is a manifest or an index.
type document struct {
	manifest *v1.Manifest
	index    *v1.IndexManifest
}

// parseDocument parses a manifest or an index. It refuses a document that could be parsed as either: a scanner or
// signer might read the other one.
func parseDocument(raw []byte, what string) (*document, error) {
	wrong := func(why string) error {
		return fault.New(fault.Invalid, codeImageManifest, "the manifest of %s is not a valid image manifest: %s; "+
			"build or push the image again",
			what, why)
	}
	var shape struct {
		SchemaVersion int             `json:"schemaVersion"`
		MediaType     types.MediaType `json:"mediaType"`
		Manifests     json.RawMessage `json:"manifests"`
		Layers        json.RawMessage `json:"layers"`
		Config        json.RawMessage `json:"config"`
		FSLayers      json.RawMessage `json:"fsLayers"`
	}
	if err := json.Unmarshal(raw, &shape); err != nil {
		return nil, wrong("it is not JSON of its form")
	}
	isIndex, isManifest := shape.Manifests != nil, shape.Layers != nil || shape.Config != nil
	switch {
	case shape.SchemaVersion == 1 || shape.FSLayers != nil || shape.MediaType.IsSchema1():
		return nil, fault.New(fault.Unimplemented, codeImageManifest,
			"%s is in docker's first format of images, which is given up; push it again with a docker of 2017 or "+
				"later", what)
	case isIndex == isManifest:
		return nil, wrong("it has the parts of both an index and an image, or of neither")
	case shape.MediaType.IsIndex() && !isIndex, shape.MediaType.IsImage() && !isManifest:
		return nil, wrong("it has the parts of another type than it says")
	}
	var err error
	d := &document{}
	if isIndex {
		d.index, err = v1.ParseIndexManifest(bytes.NewReader(raw))
	} else {
		d.manifest, err = v1.ParseManifest(bytes.NewReader(raw))
	}
	if err != nil {
		return nil, wrong(fault.Clip(err.Error(), 200))
	}
	if d.manifest != nil {
		return d, checkManifest(d.manifest, wrong)
	}
	for _, m := range d.index.Manifests {
		if err := blobs.Check(m.Digest); err != nil {
			return nil, err
		}
	}
	return d, nil
}

func checkManifest(m *v1.Manifest, wrong func(string) error) error {
	if len(m.Layers) > maxLayers {
		return wrong(fmt.Sprintf("it has %d layers, and no more than %d can be mounted", len(m.Layers), maxLayers))
	}
	if !m.Config.MediaType.IsConfig() && m.Config.MediaType != "" {
		return wrong(fmt.Sprintf("it is of another kind of thing (%q) than a container's image",
			fault.Clip(string(m.Config.MediaType), 100)))
	}
	for _, d := range append([]v1.Descriptor{m.Config}, m.Layers...) {
		if err := blobs.Check(d.Digest); err != nil {
			return err
		}
		if d.Size < 0 {
			return wrong("one of its sizes is below 0")
		}
	}
	if m.Config.Size > maxDocument {
		return wrong(fmt.Sprintf("its config has more than %d bytes", maxDocument))
	}
	for _, l := range m.Layers {
		if !isLayerType(l.MediaType) {
			return wrong(fmt.Sprintf("a layer is of the type %q, which souk cannot unpack",
				fault.Clip(string(l.MediaType), 100)))
		}
	}
	return nil
}

// Media types of layers that the library does not define.
const (
	dockerZstd        types.MediaType = "application/vnd.docker.image.rootfs.diff.tar.zstd" // buildx writes it
	dockerForeign     types.MediaType = "application/vnd.docker.image.rootfs.foreign.diff.tar"
	ociRestrictedZstd types.MediaType = "application/vnd.oci.image.layer.nondistributable.v1.tar+zstd"
)

// isLayerType reports whether a layer of the type can be unpacked. Its compression is detected from its content.
func isLayerType(t types.MediaType) bool {
	switch t {
	case types.OCILayer, types.OCILayerZStd, types.OCIUncompressedLayer, types.OCIRestrictedLayer,
		types.OCIUncompressedRestrictedLayer, types.DockerLayer, types.DockerUncompressedLayer,
		types.DockerForeignLayer, dockerZstd, dockerForeign, ociRestrictedZstd:
		return true
	}
	return false
}

// choosePlatform returns the image of an index that fits a platform best.
func choosePlatform(index *v1.IndexManifest, want v1.Platform, what string) (v1.Descriptor, error) {
	best, at := 0, -1
	var there []string
	for i, m := range index.Manifests {
		if m.Platform == nil {
			if len(index.Manifests) == 1 {
				return m, nil // its config is checked for the platform later
			}
			continue
		}
		if m.Platform.OS == "unknown" { // attestations and the like
			continue
		}
		if name := m.Platform.String(); !slices.Contains(there, name) {
			there = append(there, name)
		}
		if fit := platformFit(*m.Platform, want); fit > best {
			best, at = fit, i
		}
	}
	if at < 0 {
		return v1.Descriptor{}, foreignPlatform(what, there, want)
	}
	return index.Manifests[at], nil
}

// platformFit rates how well an image's platform fits the wanted one; 0: not at all.
func platformFit(have, want v1.Platform) int {
	if have.OS != want.OS || have.Architecture != want.Architecture {
		return 0
	}
	plain := map[string]string{"arm64": "v8", "amd64": "v1", "arm": "v7"}[have.Architecture]
	switch {
	case have.Variant == want.Variant:
		return 4
	case want.Variant != "":
		return 0
	case have.Variant == plain:
		return 3
	case have.Architecture == "arm" && (have.Variant == "v6" || have.Variant == "v5"):
		return 2
	}
	return 0 // amd64/v3, for instance: this host's processor may lack its instructions
}

func foreignPlatform(what string, there []string, want v1.Platform) error {
	for i := range there {
		there[i] = fault.Clip(there[i], 40)
	}
	list := strings.Join(there[:min(20, len(there))], ", ")
	if list == "" {
		list = "no platform at all"
	}
	return fault.New(fault.Precondition, codeImagePlatform,
		"%s is for %s, and this host is %s; build it for that, or run it on a worker of another kind", what, list, want)
}

// Config is how an image wants to be run.
type Config struct {
	Entrypoint   []string          `json:"entrypoint,omitempty"`
	Cmd          []string          `json:"cmd,omitempty"`
	Env          []string          `json:"env,omitempty"`
	User         string            `json:"user,omitempty"`
	WorkDir      string            `json:"workdir,omitempty"`
	StopSignal   string            `json:"stop_signal,omitempty"`
	ExposedPorts []string          `json:"exposed_ports,omitempty"` // "80/tcp", sorted
	Volumes      []string          `json:"volumes,omitempty"`       // sorted
	Labels       map[string]string `json:"labels,omitempty"`
}

// parseConfig parses an image's config and checks it against its manifest and the host.
func parseConfig(raw []byte, m *v1.Manifest, want v1.Platform, what string) (Config, []v1.Hash, error) {
	file, err := v1.ParseConfigFile(bytes.NewReader(raw))
	wrong := func(why string) (Config, []v1.Hash, error) {
		return Config{}, nil, fault.New(fault.Invalid, codeImageConfig,
			"the config of %s is not a valid image config: %s; build or push the image again", what, why)
	}
	if err != nil {
		return wrong(fault.Clip(err.Error(), 200))
	}
	if len(file.RootFS.DiffIDs) != len(m.Layers) {
		return wrong(fmt.Sprintf("it has %d layers, and the manifest has %d", len(file.RootFS.DiffIDs), len(m.Layers)))
	}
	for _, d := range file.RootFS.DiffIDs {
		if err := blobs.Check(d); err != nil {
			return Config{}, nil, err
		}
	}
	if p := file.Platform(); p != nil && p.Architecture != "" && platformFit(*p, want) == 0 {
		return Config{}, nil, foreignPlatform(what, []string{p.String()}, want)
	}
	c := file.Config
	all := slices.Concat(c.Entrypoint, c.Cmd, c.Env, []string{c.User, c.WorkingDir, c.StopSignal})
	if slices.ContainsFunc(all, func(s string) bool { return strings.ContainsRune(s, 0) }) {
		return wrong("there is a zero byte in its command, environment, user or directory")
	}
	if len(c.Entrypoint) == 1 && c.Entrypoint[0] == "" { // a Dockerfile clears the base image's entrypoint this way
		c.Entrypoint = nil
	}
	out := Config{Entrypoint: c.Entrypoint, Cmd: c.Cmd, Env: c.Env, User: c.User, WorkDir: c.WorkingDir,
		StopSignal: c.StopSignal, Labels: c.Labels, ExposedPorts: sortedKeys(c.ExposedPorts),
		Volumes: sortedKeys(c.Volumes)}
	return out, file.RootFS.DiffIDs, nil
}

func sortedKeys(m map[string]struct{}) (out []string) {
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// chainIDs returns the id on disk of each layer: it covers the layer and all below it, because the meaning of a layer's
// links and whiteouts depends on those.
func chainIDs(diffIDs []v1.Hash) []v1.Hash {
	out := make([]v1.Hash, len(diffIDs))
	for i, d := range diffIDs {
		out[i] = d
		if i > 0 {
			out[i] = hashOf([]byte(out[i-1].String() + " " + d.String()))
		}
	}
	return out
}

func hashOf(raw []byte) v1.Hash {
	sum := sha256.Sum256(raw)
	return v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(sum[:])}
}
