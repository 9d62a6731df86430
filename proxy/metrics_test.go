package proxy_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/soukhq/souk/proxy"
)

// gather returns the values of the proxy's metrics that have a name, each with its labels.
func gather(t *testing.T, p *proxy.Proxy, name string) string {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	for _, c := range p.Collectors() {
		if err := reg.Register(c); err != nil {
			t.Fatal(err)
		}
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range families {
		if strings.HasSuffix(f.GetName(), name) {
			for _, m := range f.GetMetric() {
				out = append(out, fmt.Sprint(m.GetLabel(), m.GetCounter().GetValue()+m.GetGauge().GetValue()))
			}
		}
	}
	return strings.Join(out, "\n")
}
