package catalog

import (
	"reflect"
	"runtime"
	"testing"
)

// TestPackedReleasesReadBackUnchanged: a release that nobody needs is kept as it was written, and is as it was whenever it is read; all that
// have it at one time have the same one.
func TestPackedReleasesReadBackUnchanged(t *testing.T) {
	x := withApp(t, "shop")
	key := "shop/" + x.deploy(t, "shop", "1").Release
	if v := x.Services.releases.all[key]; v.row != nil || v.packed == nil {
		t.Fatalf("%+v", v)
	}
	first := x.Services.releases.get(key)
	if x.Services.releases.get(key) != first {
		t.Error("it was read twice")
	}
	said := *first
	runtime.KeepAlive(first)
	first = nil
	runtime.GC()
	if x.Services.releases.all[key].packed.read.Value() != nil {
		t.Error("a release that nobody has stays in memory")
	}
	if again := x.Services.releases.get(key); !reflect.DeepEqual(*again, said) || key != "shop/"+again.ID() {
		t.Errorf("%+v, and then %+v", said, *again)
	}
}
