package client_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/soukhq/souk/client"
	"github.com/soukhq/souk/machine"
)

// BenchmarkList1000Machines is what souk ps of a thousand machines costs its client: mostly the decoding.
func BenchmarkList1000Machines(b *testing.B) {
	ms := make([]*machine.Machine, 1000)
	for i := range ms {
		ms[i] = &machine.Machine{ID: fmt.Sprintf("%014x", i), Name: fmt.Sprintf("machine-%d", i),
			State: machine.Started, Region: "local",
			CreatedAt: "2026-11-21T11:09:44.052668742Z", UpdatedAt: "2026-11-21T11:09:44.057063851Z", HostStatus: "ok",
			App: "a", Worker: "w1-abcdef",
			Config: &machine.Config{Image: "souk/host", Init: machine.Init{Exec: []string{"/bin/sleep", "1000"}},
				Guest: &machine.Guest{CPUKind: "shared", CPUs: 1, MemoryMB: 256}},
			Events: []machine.Event{{ID: "01M7YWRG7S1JJQEHR1SPS3NBJ8", Type: "start", Status: "started",
				Source: "user"}, {ID: "01M7YWRG7MXT4BSJV2XQTDN4W9", Type: "launch", Status: "created", Source: "user"}}}
	}
	raw, err := json.Marshal(ms)
	if err != nil {
		b.Fatal(err)
	}
	c := serve(b, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(len(raw)))
		_, _ = w.Write(raw)
	})
	b.SetBytes(int64(len(raw)))
	for b.Loop() {
		got, err := c.Machines(b.Context(), "a", client.ListOptions{})
		if err != nil || len(got) != len(ms) {
			b.Fatalf("%d machines, %v", len(got), err)
		}
	}
}
