package machine

import (
	"math"
	"strconv"
	"strings"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/fault"
)

// ReadCPU reads an amount of CPU in cores, such as 0.3, 2 or 0.125, and returns thousandths of a core. It reads
// decimal digits without floating point, so the result is exact. The error is Invalid, code cpu.
func ReadCPU(text string) (milli int, err error) {
	whole, part, _ := strings.Cut(text, ".")
	digits := whole + (part + "000")[:max(3, len(part))]
	n, err := strconv.ParseUint(digits, 10, 31)
	if err != nil || whole == "" || strings.HasSuffix(text, ".") || len(part) > 3 || n < MinCPUMilli {
		return 0, fault.New(fault.Invalid, codeCPU, "CPU is in cores, such as 0.3 or 2: at least %s, in thousandths, "+
			"not %q", strconv.FormatFloat(float64(MinCPUMilli)/1000, 'f', -1, 64), fault.Clip(text, 40))
	}
	return int(n), nil
}

// ReadMebibytes reads a size such as 512, 512m, 1.5g or 2GiB, in whole MiB; a number alone is MiB. what names it in the
// error, which is Invalid, code size.
func ReadMebibytes(what, text string) (int, error) {
	number, unit := SizeUnit(text)
	v, err := strconv.ParseFloat(number, 64)
	mib := v * unit
	if err != nil || !(mib >= 1) || mib > float64(cluster.MaxAmount) || mib != math.Trunc(mib) {
		return 0, fault.New(fault.Invalid, fault.CodeSize, "%s is whole MiB, such as 512m or 2g, not %q", what,
			fault.Clip(text, 40))
	}
	return int(mib), nil
}

// SizeUnit splits the unit off a size, and returns how many MiB the unit is. Units are powers of 1024 in any spelling:
// 2g, 2G, 2GB and 2GiB are the same.
func SizeUnit(s string) (number string, unit float64) {
	number = strings.ToLower(s)
	number = strings.TrimSuffix(strings.TrimSuffix(number, "ib"), "b")
	for unit, mib := range map[string]float64{"t": 1 << 20, "g": 1 << 10, "m": 1} {
		if n, ok := strings.CutSuffix(number, unit); ok {
			return n, mib
		}
	}
	return s, 1
}
