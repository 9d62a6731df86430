package conformance_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	fly "github.com/superfly/fly-go"

	"github.com/soukhq/souk/machine"
)

// fill sets every field that v can reach to something that is not zero, and different each time.
func fill(v reflect.Value, n *int) {
	*n++
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), n)
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(v.Field(i), n)
			}
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(v.Index(0), n)
		fill(v.Index(1), n)
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		e := reflect.New(v.Type().Elem()).Elem()
		fill(e, n)
		v.SetMapIndex(reflect.ValueOf(fmt.Sprintf("key%d", *n)), e)
	case reflect.String:
		v.SetString(fmt.Sprintf("text%d", *n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(int64(*n))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(*n))
	case reflect.Float32, reflect.Float64:
		v.SetFloat(float64(*n) / 4)
	case reflect.Interface:
		v.Set(reflect.ValueOf(fmt.Sprintf("any%d", *n)))
	default:
		panic(v.Type().String())
	}
}

// filledInput is a launch of the Go client with every field set.
func filledInput() *fly.LaunchMachineInput {
	in, n := &fly.LaunchMachineInput{}, 0
	fill(reflect.ValueOf(in).Elem(), &n)
	suspend := fly.MachineAutostopSuspend
	for i := range in.Config.Services {
		in.Config.Services[i].Autostop = &suspend
	}
	in.Config.Guest.PersistRootfs = fly.MachinePersistRootfsAlways //nolint:staticcheck // deprecated, and still sent
	in.Config.Rootfs.Persist = fly.MachinePersistRootfsNever
	in.ID, in.SkipHealthChecks, in.RequiresReplacement, in.Timeout = "", false, false, 0 // the client's own
	return in
}

var update = flag.Bool("update", false, "write the golden files anew")

// TestSeedForFuzzersIsCurrent keeps the launch with every field set, which package machine's fuzzer begins with, as
// this version of the client writes it.
func TestSeedForFuzzersIsCurrent(t *testing.T) {
	const seed = "../../machine/testdata/everything.json"
	want, err := json.Marshal(filledInput())
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(seed, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(seed)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s is not what the client writes; go test -run Fuzzers -update (-want +got):\n%s", seed, diff)
	}
}

// TestGoClientMachineRoundTrips has all that the Go client can say of a machine read, written, and read back by the client.
func TestGoClientMachineRoundTrips(t *testing.T) {
	zero := true
	off := fly.MachineAutostopOff
	empty := ""
	for name, in := range map[string]*fly.LaunchMachineInput{
		"everything": filledInput(),
		"the least":  {Config: &fly.MachineConfig{Image: "souk/host"}},
		"as sent": {Config: &fly.MachineConfig{
			Image: "souk/host", Init: fly.MachineInit{Exec: []string{"/bin/sleep", "60"}},
			Services: []fly.MachineService{{Protocol: "tcp", InternalPort: 80, Autostop: &off, Autostart: &zero}},
			Files:    []*fly.File{{GuestPath: "/empty", RawValue: &empty}},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			sent, err := json.Marshal(in)
			if err != nil {
				t.Fatal(err)
			}
			l, err := machine.DecodeLaunch(sent)
			if err != nil {
				t.Fatalf("%v\n%s", err, sent)
			}
			answer, err := json.Marshal(l)
			if err != nil {
				t.Fatal(err)
			}
			var back fly.LaunchMachineInput
			if err := json.Unmarshal(answer, &back); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(in, &back) {
				t.Errorf("(-sent +back):\n%s",
					cmp.Diff(in, &back, cmp.Exporter(func(reflect.Type) bool { return true })))
			}
		})
	}
}

// TestGoClientReadsEveryField has the client read a machine with every field set.
func TestGoClientReadsEveryField(t *testing.T) {
	m, n := &machine.Machine{}, 0
	fill(reflect.ValueOf(m).Elem(), &n)
	m.Config.Guest.PersistRootfs, m.Config.Rootfs.Persist = "always", "never"
	for i := range m.Config.Services {
		*m.Config.Services[i].Autostop = "stop"
	}
	raw, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var back fly.Machine
	if err := json.Unmarshal(raw, &back); err != nil {
		t.Fatal(err)
	}
	if back.ID != m.ID || back.Events[1].Timestamp != m.Events[1].Timestamp ||
		back.Events[0].Request.ExitEvent.ExitCode != m.Events[0].Request.ExitEvent.ExitCode ||
		back.LeaseNonce != m.Nonce || string(back.HostStatus) != m.HostStatus ||
		back.ImageRef.Digest != m.ImageRef.Digest || back.Config.Image != m.Config.Image {
		t.Errorf("read back as %+v", back)
	}
}
