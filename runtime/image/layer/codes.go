package layer

import "github.com/soukhq/souk/fault"

// The codes of this package's errors.
const (
	codeImageEntry   fault.Code = "image_entry"   // a layer has an entry that is refused
	CodeImageLayer   fault.Code = "image_layer"   // a layer cannot be unpacked
	codeImageLimit   fault.Code = "image_limit"   // a layer exceeds a limit
	codeImageOverlay fault.Code = "image_overlay" // the file system cannot hold what overlayfs needs
	codeImageOwner   fault.Code = "image_owner"   // a layer has a file whose owner cannot be set
	codeImageXattr   fault.Code = "image_xattr"   // a layer has an attribute that cannot be set
)
