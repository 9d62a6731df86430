package jobs

import (
	"maps"
	"testing"
)

func TestExportedVariables(t *testing.T) {
	here := []string{"A=1", "B=x=y", "C=", "PATH=/opt/x:/bin", "HOME=/root", "USER=root", "LOGNAME=root",
		"SHELL=/bin/sh", "PWD=/tmp", "OLDPWD=/", "SHLVL=2", "_=/usr/bin/souk", "SOUK_TOKEN=secret", "SOUK_ADDR=host:1",
		"SOUK_APP=shop"}
	all := map[string]string{"A": "1", "B": "x=y", "C": "", "PATH": "/opt/x:/bin", "SOUK_APP": "shop"}
	with := func(kv ...string) map[string]string {
		out := maps.Clone(all)
		for i := 0; i < len(kv); i += 2 {
			out[kv[i]] = kv[i+1]
		}
		return out
	}
	for text, want := range map[string]map[string]string{
		"":                  {},
		"NONE":              {},
		"ALL":               all,
		"ALL,A=2,D=":        with("A", "2", "D", ""),
		"ALL,HOME":          with("HOME", "/root"),
		"A":                 {"A": "1"},
		"A,B,nothing":       {"A": "1", "B": "x=y"},
		"B=p=q,C":           {"B": "p=q", "C": ""},
		"SOUK_TOKEN":        {"SOUK_TOKEN": "secret"},
		"A=ALL":             {"A": "ALL"},
		"ALL=1":             {"ALL": "1"},
		"A,ALL":             nil,
		"NONE,A":            nil,
		"ALL,NONE":          nil,
		"A,,B":              nil,
		"=x":                nil,
		"ALL,ALL":           nil,
		"all":               {}, // the name of a variable, which is not set
		"A=1,A=2":           {"A": "2"},
		"ALL,nothing,PATH=": with("PATH", ""),
	} {
		got, err := exported(text, here)
		if (err != nil) != (want == nil) || !maps.Equal(got, want) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}
