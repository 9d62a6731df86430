package oci

import "testing"

func TestEngineVersionsAreCompared(t *testing.T) {
	for _, c := range []struct {
		l    least
		said string
		met  bool
	}{
		{leastRunc, "runc version 1.1.5+ds1", true},
		{leastRunc, "runc version 1.1.4", false},
		{leastRunc, "runc version 1.2.0-rc.1", true},
		{leastRunc, "runc version 1.0", false},
		{leastRunc, "runc version 10.0.0", true},
		{leastRunc, "runc version unknown", true},
		{leastSandbox, "runsc version 0.0~20221219.0", true},
		{leastSandbox, "runsc version release-20210125.0", false},
		{leastSandbox, "runsc version release-20260905.0", true},
		{leastSandbox, "runsc version VERSION_MISSING", true},
		{leastConnected, "runsc version 0.0~20221219.0", false},
		{leastOf("crun"), "crun version 0.1", true},
	} {
		if got := c.l.isMet(c.said); got != c.met {
			t.Errorf("%q is at least %s: %v, want %v", c.said, c.l, got, c.met)
		}
	}
	for said, is := range map[string]bool{"runc version 1.1.5+ds1": false, "runc version 1.2.7": false,
		"runc version 1.2.8": true, "runc version 1.3.2": false, "runc version 1.3.3": true,
		"runc version 1.4.0-rc.3": true} {
		if isMended(said) != is {
			t.Errorf("%q is mended: %v, want %v", said, !is, is)
		}
	}
	if err := checkConnectable("/usr/bin/runsc", "runsc version 0.0~20221219.0"); err == nil {
		t.Error("a machine by a runsc of 2022 can have a network")
	}
	if err := checkConnectable("/usr/bin/runc", "runc version 1.1.5"); err != nil {
		t.Error(err)
	}
}
