package fake_test

import (
	"testing"

	"github.com/soukhq/souk/runtime"
	"github.com/soukhq/souk/runtime/fake"
	"github.com/soukhq/souk/runtime/runtimetest"
)

func TestConformance(t *testing.T) {
	runtimetest.Run(t, func(t *testing.T) runtimetest.Subject {
		f := fake.New(fake.Options{})
		return runtimetest.Subject{Runtime: f, Reopen: func(*testing.T) runtime.Runtime { f = f.Reopen(); return f }}
	})
}
