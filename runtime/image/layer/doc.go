// Package layer unpacks the layers of images: each into a directory that overlayfs takes as a lower one (Unpack), or
// all of an image's into one tree (Apply) where there is no overlayfs.
//
// A layer is a stranger's. Every file is reached from its directory's descriptor by one name that is no link, so that
// nothing outside of the directory can be read or written, whatever the layer's names, links and earlier entries are.
// Where an entry's name goes through a symbolic link of the image, as lib/x does where lib is usr/lib, the link is
// followed here, in the image's own tree, as docker and containerd follow it; one that leads above the tree is refused.
//
// What one layer says:
//   - an entry replaces what has its name; a directory on a directory keeps what is in it and gets the entry's owner
//     and mode;
//   - directories that no entry makes are those of the layers below, with their owner and mode, or new ones of 0755;
//   - .wh.NAME hides NAME of the layers below, .wh..wh..opq all that they have in its directory. What the same layer
//     has there stays, before or after;
//   - a device is left out, and so are hard links to it: a machine has a /dev of its own;
//   - a hard link may name a file of a layer below, which is then a file of this layer too.
package layer
