package proc

import (
	"syscall"
	"unsafe"
)

// kernelSigaction is the struct sigaction of 64-bit Linux kernels.
type kernelSigaction struct{ handler, flags, restorer, mask uint64 }

const (
	sigDefault = 0
	sigIgnore  = 1
	lastSignal = 64
)

// RestoreSignals resets the signals that this process ignores because its parent (nohup, make) did, so that machines do
// not inherit that. Go passes ignored signals on, and cannot change those of the C library (32 and 33).
func RestoreSignals() {
	for sig := uintptr(1); sig <= lastSignal; sig++ {
		var old kernelSigaction
		if _, _, e := syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, sig, 0, uintptr(unsafe.Pointer(&old)), 8, 0,
			0); e != 0 || old.handler != sigIgnore {
			continue // fails for SIGKILL and SIGSTOP
		}
		fresh := kernelSigaction{handler: sigDefault}
		// On an error the signal stays ignored, which cannot be helped.
		_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(&fresh)), 0, 8, 0, 0)
	}
}
