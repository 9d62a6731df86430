package machine

import (
	"strings"

	"github.com/soukhq/souk/fault"
)

// HostImage is the image name of a machine that runs the worker's own files.
const HostImage = "souk/host"

// IsHostImage reports whether an image's name means HostImage, also in the full form that clients send back.
func IsHostImage(image string) bool {
	r := ParseImage(image)
	return r.Registry == defaultRegistry && r.Repository == HostImage
}

const (
	defaultRegistry = "docker.io"
	defaultTag      = "latest"
	maxImage        = 512
)

// ParseImage parses an image's name by docker's rules. The part before the first "/" is a registry if it has a "." or
// ":" or is "localhost"; otherwise the registry is docker.io (index.docker.io is the same), where a name of one part
// is in library/. Without a tag and a digest the tag is latest. It does not validate the parts: CheckImage does.
func ParseImage(image string) ImageRef {
	var r ImageRef
	rest, digest, _ := strings.Cut(image, "@")
	r.Digest = digest
	if i := strings.LastIndexByte(rest, ':'); i >= 0 && !strings.Contains(rest[i:], "/") {
		rest, r.Tag = rest[:i], rest[i+1:]
	}
	first, tail, slash := strings.Cut(rest, "/")
	switch {
	case slash && (strings.ContainsAny(first, ".:") || first == "localhost"):
		r.Registry, r.Repository = first, tail
	case slash:
		r.Registry, r.Repository = defaultRegistry, rest
	default:
		r.Registry, r.Repository = defaultRegistry, rest
	}
	if r.Registry == "index."+defaultRegistry {
		r.Registry = defaultRegistry
	}
	if r.Registry == defaultRegistry && !strings.Contains(r.Repository, "/") {
		r.Repository = "library/" + r.Repository
	}
	if r.Tag == "" && r.Digest == "" {
		r.Tag = defaultTag
	}
	return r
}

// String returns the full name.
func (r ImageRef) String() string {
	s := r.Registry + "/" + r.Repository
	if r.Tag != "" {
		s += ":" + r.Tag
	}
	if r.Digest != "" {
		s += "@" + r.Digest
	}
	return s
}

// FullName returns an image's full name, the form that workers use for their images; for host programs it is
// HostImage.
func FullName(image string) string {
	if IsHostImage(image) {
		return HostImage
	}
	return ParseImage(image).String()
}

// Pinned returns the image that a machine is started from: pinned to the digest that its name had when the machine was
// made.
func Pinned(m *Machine) string {
	if m.ImageRef.Digest == "" || IsHostImage(m.Config.Image) {
		return m.Config.Image
	}
	return m.ImageRef.String()
}

// shownDigest is how many hexadecimal digits of an image's digest are shown.
const shownDigest = 12

// ShortImage returns an image's short name for people, with the first digits of its digest: nginx:1.29@1a2b3c4d5e6f.
func ShortImage(image string) string {
	name, digest, pinned := strings.Cut(image, "@sha256:")
	if !pinned {
		return image
	}
	return name + "@" + digest[:min(len(digest), shownDigest)]
}

// CheckImage checks that image is a name that docker accepts.
func CheckImage(image string) error {
	wrong := func(why string) error {
		return fault.New(fault.Invalid, CodeImage,
			"%s is not the name of an image: %s; write it as \"souk/host\", \"nginx:1.29\" or "+
				"\"ghcr.io/me/app@sha256:...\"",
			quote(image), why)
	}
	if image == "" || len(image) > maxImage {
		return wrong("it needs 1 to 512 characters")
	}
	if strings.Count(image, "@") > 1 {
		return wrong("it has two digests")
	}
	r := ParseImage(image)
	if strings.HasSuffix(image, "@") || strings.HasSuffix(image, ":") {
		return wrong("it ends in the middle")
	}
	for part := range strings.SplitSeq(r.Repository, "/") {
		if part == "" || !lowerOrDigit(part[0]) || !lowerOrDigit(part[len(part)-1]) ||
			!hasOnly(part, func(c byte) bool { return lowerOrDigit(c) || c == '-' || c == '_' || c == '.' }) {
			return wrong("each part of a repository is a-z, 0-9 and, inside, \"-\", \"_\" and \".\"")
		}
	}
	if !hasOnly(r.Registry, func(c byte) bool { return tagByte(c) || c == ':' }) {
		return wrong("its registry is not a host with a port")
	}
	if len(r.Tag) > 128 || r.Tag != "" && (r.Tag[0] == '.' || r.Tag[0] == '-') || !hasOnly(r.Tag, tagByte) {
		return wrong("a tag is up to 128 of letters, digits, \"-\", \"_\" and \".\"")
	}
	if r.Digest != "" && !validDigest(r.Digest) {
		return wrong("a digest is \"sha256:\" and 64 hexadecimal digits")
	}
	return nil
}

func tagByte(c byte) bool {
	return lowerOrDigit(c) || c >= 'A' && c <= 'Z' || c == '-' || c == '_' || c == '.'
}

func validDigest(d string) bool {
	hex, ok := strings.CutPrefix(d, "sha256:")
	return ok && len(hex) == 64 && hasOnly(hex, func(c byte) bool {
		return c >= '0' && c <= '9' || c >= 'a' &&
			c <= 'f'
	})
}
