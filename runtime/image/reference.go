package image

import (
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// Parse parses an image's name as people write it and returns its full form: nginx is docker.io/library/nginx:latest.
func Parse(name string) (machine.ImageRef, error) {
	if err := machine.CheckImage(name); err != nil {
		return machine.ImageRef{}, err
	}
	if machine.IsHostImage(name) {
		return machine.ImageRef{}, fault.New(fault.Invalid, machine.CodeImage,
			"%s is no image: it means the files of the host itself; name an image such as "+
				"nginx:1.29", machine.HostImage)
	}
	return machine.ParseImage(name), nil
}

// parseDigest parses a digest, and reports whether it is a valid SHA-256 one.
func parseDigest(s string) (v1.Hash, bool) {
	h, err := v1.NewHash(s)
	return h, err == nil && h.Algorithm == "sha256" && strings.HasPrefix(s, "sha256:")
}
