package node

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
)

// TestStartWaitsForSecretsOfItsRelease: secrets that another member has are waited for a while; any other error is returned at once.
func TestStartWaitsForSecretsOfItsRelease(t *testing.T) {
	missing := fault.New(fault.Unavailable, "release_missing", "it is not here yet")
	for _, tt := range []struct {
		name  string
		after time.Duration // it is there
		err   error         // until then
		took  time.Duration
		fails bool
	}{
		{"soon", time.Second, missing, time.Second, false},
		{"never", time.Hour, missing, secretsWithin, true},
		{"another error", time.Hour, fault.New(fault.NotFound, "app_not_found", "it is gone"), 0, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				open := awaitSecrets(t.Context(), func(*machine.Machine) (map[string]string, error) {
					if time.Since(began) < tt.after {
						return nil, tt.err
					}
					return map[string]string{"KEY": "v"}, nil
				})
				got, err := open(nil)
				if (err != nil) != tt.fails || !tt.fails && got["KEY"] != "v" || time.Since(began) != tt.took {
					t.Errorf("%v, %v after %v", got, err, time.Since(began))
				}
			})
		})
	}
}
