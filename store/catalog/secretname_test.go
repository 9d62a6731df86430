package catalog

import (
	"strings"
	"testing"
)

func TestSecretNamesAreValidated(t *testing.T) {
	for name, want := range map[string]bool{
		"A": true, "_": true, "DATABASE_URL": true, "a9": true, strings.Repeat("x", 255): true,
		"": false, "9A": false, "A-B": false, "A B": false, "A=B": false, "A\x00": false, "Ä": false, "@A": false,
		"A`": false, "[": false,
		strings.Repeat("x", 256): false,
	} {
		if validSecretName(name) != want {
			t.Errorf("%q: %v", name, !want)
		}
	}
}
