package image

import "github.com/soukhq/souk/fault"

// The codes of this package's errors.
const (
	codeImageConfig    fault.Code = "image_config"    // the image's config cannot be used
	codeImageDirectory fault.Code = "image_directory" // the target directory exists already
	codeImageManifest  fault.Code = "image_manifest"  // the image's manifest cannot be used
	codeImagePin       fault.Code = "image_pin"       // the pin lacks its owner
	codeImagePinned    fault.Code = "image_pinned"    // the image is in use
	codeImagePlatform  fault.Code = "image_platform"  // the image is for another platform
)
