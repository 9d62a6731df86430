// Package layer unpacks the layers of images: each into a directory that overlayfs can use as a lower directory
// (Unpack), or, without overlayfs, all layers of an image into one tree (Apply).
//
// Layers are not trusted. Every file is reached from its directory's descriptor by one name that is no link, so that
// nothing outside of the directory can be read or written, whatever the layer's names, links and earlier entries are.
// If an entry's name goes through a symbolic link of the image, like lib/x when lib is usr/lib, the link is resolved
// here, in the image's own tree, as docker and containerd do; a link that leads out of the tree is refused.
//
// The rules for the entries of a layer:
//   - an entry replaces an existing one of its name; a directory entry for an existing directory keeps the content and
//     sets the owner and mode;
//   - a directory without an entry gets the owner and mode that it has in the layers below, or is a new one with mode
//     0755;
//   - .wh.NAME hides NAME of the layers below, .wh..wh..opq hides everything that they have in its directory. Entries
//     of the same layer stay, whether they come before or after;
//   - a device is left out, and so are hard links to it: a machine has its own /dev;
//   - a hard link may name a file of a layer below, which is then copied into this layer.
package layer
