package devices

import (
	"path"
	"slices"
	"strconv"
	"strings"
)

// findDRM finds GPUs with a render node that no other source has reported. Each includes its card node, which drives
// displays.
func (h *Host) findDRM(known []Device) (out []Device) {
	has := func(n Node) bool {
		return slices.ContainsFunc(known, func(d Device) bool {
			return slices.ContainsFunc(d.Nodes, func(o Node) bool { return o.Kernel == n.Kernel })
		})
	}
	for _, dir := range h.globPaths("/sys/class/drm/renderD*") {
		about := h.readUevent(dir)
		driver, nodes := about["DRIVER"], h.drmNodes(dir)
		// NVIDIA's driver is handled by findNVIDIA; without a driver a device is unusable
		if len(nodes) == 0 || has(nodes[0]) || driver == "nvidia" || driver == "" {
			continue
		}
		d := Device{ID: "drm/" + path.Base(dir), Kind: validKind(driver), Nodes: nodes,
			Model: strings.TrimSpace(driver + " " + about["PCI_ID"])}
		if slot := about["PCI_SLOT_NAME"]; validID(slot) {
			d.ID = "pci/" + slot
		}
		bytes := strings.TrimSpace(h.readFile(dir + "/device/mem_info_vram_total")) // amdgpu reports it
		if total, err := strconv.ParseInt(bytes, 10, 64); err == nil {
			d.Memory = max(0, total>>20)
		}
		if d.Kind != "" && validID(d.ID) {
			out = append(out, d)
		}
	}
	return out
}

// readUevent reads the kernel's description of a render node's device.
func (h *Host) readUevent(dir string) map[string]string {
	about := map[string]string{}
	for line := range strings.Lines(h.readFile(dir + "/device/uevent")) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		about[key] = value
	}
	return about
}

// drmNodes returns a render node and the card node of the same device.
func (h *Host) drmNodes(dir string) []Node {
	paths := []string{"/dev/dri/" + path.Base(dir)}
	for _, card := range h.globPaths(dir + "/device/drm/card*") {
		paths = append(paths, "/dev/dri/"+path.Base(card))
	}
	return h.existingNodes(paths...)
}

// drmOf returns the render node and the card node of the device at a PCI address, if it has any.
func (h *Host) drmOf(slot string) []Node {
	for _, dir := range h.globPaths("/sys/class/drm/renderD*") {
		if strings.EqualFold(h.readUevent(dir)["PCI_SLOT_NAME"], slot) {
			return h.drmNodes(dir)
		}
	}
	return nil
}
