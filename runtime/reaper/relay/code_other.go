//go:build !amd64 && !arm64

package relay

import "debug/elf"

const machine = elf.EM_NONE

var code []byte //nolint:gochecknoglobals // a constant
