package proc

import (
	"syscall"
	"unsafe"
)

// kernelSigaction is struct sigaction as the kernel of 64-bit Linux has it.
type kernelSigaction struct{ handler, flags, restorer, mask uint64 }

const (
	sigDefault = 0
	sigIgnore  = 1
	lastSignal = 64
)

// RestoreSignals lets go of what this process was told to ignore by whoever started it (nohup, make), so that machines
// do not inherit it. Go hands ignored signals on, and has no way to change those of the C library (32 and 33).
func RestoreSignals() {
	for sig := uintptr(1); sig <= lastSignal; sig++ {
		var old kernelSigaction
		if _, _, e := syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, sig, 0, uintptr(unsafe.Pointer(&old)), 8, 0,
			0); e != 0 || old.handler != sigIgnore {
			continue // SIGKILL and SIGSTOP cannot be asked
		}
		fresh := kernelSigaction{handler: sigDefault}
		// An error would leave the signal ignored, as it was: nothing to be done about it.
		_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(&fresh)), 0, 8, 0, 0)
	}
}
