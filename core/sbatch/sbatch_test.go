package sbatch

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/soukhq/souk/fault"
)

func optionsOf(t *testing.T, text string) (out []string) {
	t.Helper()
	s, err := Read(text)
	if err != nil {
		t.Fatal(err)
	}
	all, rest, err := Options(s.Words)
	if err != nil || len(rest) > 0 {
		t.Fatalf("%v, %v", rest, err)
	}
	for _, o := range all {
		out = append(out, o.Name+"="+o.Value)
	}
	return out
}

// TestLinesAreReadAsSlurm22Does: which lines, and where they end (reference: sbatch 22.05.8).
func TestLinesAreReadAsSlurm22Does(t *testing.T) {
	for text, want := range map[string][]string{
		"#!/bin/sh\n\n# note\n #SBATCH -J lead\n##SBATCH -J two\n#SBATCH -J good\n: noop\n#SBATCH -J late\n": {
			"job-name=good"},
		"#!/bin/sh\n# SBATCH -J a\n#sbatch -J b\n":             nil,
		"#!/bin/sh\n#SBATCH\t-J x\n":                           {"job-name=x"},
		"#!/bin/sh\n#SBATCH-J x\n":                             {"job-name=x"},
		"#!/bin/sh\r\n#SBATCH -J x\r\n":                        {"job-name=x"},
		"#!/bin/sh\n#SBATCH --comment=\"a b\" -J x # -J y\n":   {"comment=a b", "job-name=x"},
		"#!/bin/sh\n#SBATCH -J x#y\n":                          {"job-name=x"},
		"#!/bin/sh\n#SBATCH -J 'a # b'\n":                      {"job-name=a # b"},
		"#!/bin/sh\n#SBATCH -D $HOME\n":                        {"chdir=$HOME"},
		"#!/bin/sh\n#SBATCH -t 20\n#SBATCH -t 30\n":            {"time=20", "time=30"},
		"#!/bin/sh\n#SBATCH -HWc4 --mem=2G\n":                  {"hold=", "wait=", "cpus-per-task=4", "mem=2G"},
		"#!/bin/sh\n#SBATCH --exclusive --nice=5 --nice -n1\n": {"exclusive=", "nice=5", "nice=", "ntasks=1"},
		"#!/bin/sh\nset -e\n#SBATCH -J late\n":                 nil,
		"#!/bin/sh\n#PBS -N pbs\n#SBATCH -J slurm\n":           {"job-name=slurm"},
	} {
		if d := cmp.Diff(want, optionsOf(t, text)); d != "" {
			t.Errorf("%q (-want +got):\n%s", text, d)
		}
	}
}

func TestScriptsThatAreWrongAreRefusedByLineAndColumn(t *testing.T) {
	for text, want := range map[string]string{
		"echo\n":                                       "begins with #!",
		"#!\n":                                         "no program after #!",
		"#!/bin/sh\n\n#SBATCH -J 'a\n":                 "line 3, column 12: a quote ' is not closed",
		"#!/bin/sh\n#SBATCH -J a --frob=1\n":           "line 2, column 14: --frob is not known here",
		"#!/bin/sh\n#SBATCH  -Z\n":                     "line 2, column 10: -Z is not known here",
		"#!/bin/sh\n#SBATCH -t\n":                      "line 2, column 9: -t wants a value",
		"#!/bin/sh\n#SBATCH --hold=yes\n":              "--hold has no value",
		"#!/bin/sh\n\x00":                              "zero byte",
		"#!/bin/sh\n" + strings.Repeat("#", MaxScript): "at most",
	} {
		s, err := Read(text)
		if err == nil {
			_, _, err = Options(s.Words)
		}
		if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %v, want %s", text, err, want)
		}
	}
}

func TestNotesNameLinesWithoutEffect(t *testing.T) {
	s, err := Read("#!/usr/bin/env  python3\n#PBS -N x\nimport os\n#SBATCH -J late\n#PBS -N y\n")
	if err != nil || len(s.Notes) != 2 || s.Notes[0].Line != 2 || s.Notes[1].Line != 4 {
		t.Errorf("%+v, %v", s, err)
	}
	if d := cmp.Diff([]string{"/usr/bin/env", "python3"}, s.Interpreter); d != "" {
		t.Error(d)
	}
}

func TestValuesAreReadAsSlurm22Does(t *testing.T) {
	for text, want := range map[string]time.Duration{"90": 90 * time.Minute, "1:30": 2 * time.Minute,
		"1-2": 26 * time.Hour, "0:10": time.Minute, "0": 0, "100:00": 100 * time.Minute, "1:40:00": 100 * time.Minute,
		"1-2:30": 26*time.Hour + 30*time.Minute, "2-0:0:1": 48*time.Hour + time.Minute, "UNLIMITED": 0} {
		if d, err := Minutes(text); err != nil || d != want {
			t.Errorf("%s is %v, want %v: %v", text, d, want, err)
		}
	}
	for text, want := range map[string]int{"1500K": 2, "1": 1, "0": 0, "4G": 4096, "2g": 2048, "1T": 1 << 20} {
		if n, err := Megabytes(text); err != nil || n != want {
			t.Errorf("%s is %d, want %d: %v", text, n, want, err)
		}
	}
	for text, want := range map[string]string{"2": ":2", "a100:2": "a100:2", "gpu": ":1", "gpu:3": ":3",
		"gpu:a100": "a100:1", "gpu:a100:2": "a100:2"} {
		kind, n, err := GPUs(text, strings.HasPrefix(text, "gpu"))
		if got := kind + ":" + string(rune('0'+n)); err != nil || got != want {
			t.Errorf("%s is %s, want %s: %v", text, got, want, err)
		}
	}
	for text, want := range map[string]string{"now": "0s", "now+1hour": "1h0m0s", "now+90": "1m30s", "16:00": "16:00",
		"now+2days": "48h0m0s"} {
		if got, err := Begin(text); err != nil || got != want {
			t.Errorf("%s is %s, want %s: %v", text, got, want, err)
		}
	}
	got, err := Dependencies("afterok:j1:prep,afterany:j2,aftercorr:j3,afternotok:j4")
	if d := cmp.Diff([]string{"ok:j1", "ok:prep", "any:j2", "corr:j3", "fail:j4"}, got); d != "" || err != nil {
		t.Error(d, err)
	}
}

func TestValuesThatAreWrongAreRefused(t *testing.T) {
	for name, f := range map[string]func(text string) error{
		"time":   func(text string) error { _, err := Minutes(text); return err },
		"memory": func(text string) error { _, err := Megabytes(text); return err },
		"gres":   func(text string) error { _, _, err := GPUs(text, true); return err },
		"begin":  func(text string) error { _, err := Begin("now" + text); return err },
		"after":  func(text string) error { _, err := Dependencies(text); return err },
	} {
		for _, text := range map[string][]string{
			"time":   {"", "a", "-1", "1:2:3:4", "1-", "1-1:2:3:4", "99999999999999999999"},
			"memory": {"", "G", "1.5G", "-1", "1X", "99999999999999T"},
			"gres":   {"", "gpus", "tpu:1", "gpu:", "gpu:a:b:1", "gpu:-1", "gpu:1,fpga:1"},
			"begin":  {"+", "+1fortnight", "1hour", "-1hour", "+99999999999"},
			"after": {"", "afterok", "afterok:", "singleton", "afterok:1?afterok:2", "afterok:1_2", "after:1",
				"afterok:1+5"},
		}[name] {
			if err := f(text); err == nil {
				t.Errorf("%s: %q is accepted", name, text)
			}
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add("#!/bin/sh\n#SBATCH -J 'a b' --mem=1G # x\n#SBATCH -HW\necho\n")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Read(text)
		if err != nil {
			return
		}
		for _, w := range s.Words {
			if w.Line < 1 || w.Col < len(directive)+1 {
				t.Fatalf("%+v", w)
			}
		}
		_, _, _ = Options(s.Words)
	})
}
