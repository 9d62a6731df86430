package proc

import (
	"testing"
	"time"
)

// TestParseHostReadsProcFiles: the host's figures are read from Linux's own files.
func TestParseHostReadsProcFiles(t *testing.T) {
	stat := "cpu  100 20 30 5000 70 6 4 8 50 0\ncpu0 50 10 15 2500 35 3 2 4 25 0\ncpu1 50 10 15 2500 35 3 2 4 25 0\n" +
		"intr 1 2 3\nctxt 5\n"
	memory := "MemTotal:       8000000 kB\nMemFree:         100000 kB\nMemAvailable:   6000000 kB\n"
	h, err := parseHost([]byte(stat), []byte(memory))
	want := Host{CPU: 1600 * time.Millisecond, CPUs: 2, Memory: 8000000 << 10, Available: 6000000 << 10}
	if err != nil || h != want {
		t.Errorf("%+v, %v", h, err)
	}
	for _, bad := range [][2]string{{"", memory}, {stat, ""}, {"cpu x 1 1 1 1 1 1\n" + stat, memory}} {
		if h, err := parseHost([]byte(bad[0]), []byte(bad[1])); err == nil {
			t.Errorf("%q gives %+v", bad, h)
		}
	}
	if h, err := ReadHost(); err != nil || h.CPU <= 0 || h.CPUs < 1 {
		t.Errorf("this host: %+v, %v", h, err)
	}
}
