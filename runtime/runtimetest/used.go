package runtimetest

import "time"

// testUsed: an exit says about how much CPU time and memory its own life used, also when it is delivered again.
func testUsed(h *harness) {
	if h.Sandbox {
		h.Skip("its kernel counts differently")
	}
	const touched, ticks = 100 << 20, 20 // a tick is 10 ms
	h.start(sh("m", 1, `used=0; while [ $used -lt 20 ]; do dd if=/dev/zero of=/dev/null bs=100M count=1 2>/dev/null
		set -- $(cut -d' ' -f14-17 /proc/$$/stat); used=$(($1+$2+$3+$4)); done`))
	first := h.exitOf("m", 1)
	if first.Code != 0 || first.CPU < ticks*10*time.Millisecond*9/10 || first.MaxRSS < touched*9/10 {
		h.Errorf("it used %d ms and %d bytes, and its exit says: %+v", ticks*10, touched, first)
	}
	h.reopen()
	if again := h.exitOf("m", 1); again.CPU != first.CPU || again.MaxRSS != first.MaxRSS {
		h.Errorf("delivered again as %+v, first as %+v", again, first)
	}
	h.ok(h.rt.Ack(h.ctx(), "m", 1))
	h.start(spec("m", 2, "true"))
	// without cgroups its memory is at least that of the reaper that forked it
	if x := h.exitOf("m", 2); x.CPU <= 0 || x.CPU > first.CPU/2 || x.MaxRSS <= 0 || x.MaxRSS >= first.MaxRSS {
		h.Errorf("a short life after it says: %+v, the first one: %+v", x, first)
	}
}
