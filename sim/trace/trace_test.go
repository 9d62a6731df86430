package trace_test

import (
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/sim/trace"
)

func all(src trace.Source) (out []trace.Job, err error) {
	for {
		j, err := src.Next()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		j.Durations = append([]float64(nil), j.Durations...)
		out = append(out, j)
	}
}

func TestTRFormatIsRead(t *testing.T) {
	got, err := all(trace.NewTR("x.tr", strings.NewReader("# a comment\n1.5 2 3.25  3 3.5\n\n2 1 7 7 \r\n2 1 0 0")))
	want := []trace.Job{{Submit: 1.5, Mean: 3.25, Durations: []float64{3, 3.5}},
		{Submit: 2, Mean: 7, Durations: []float64{7}},
		{Submit: 2, Mean: 0, Durations: []float64{0}}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Fatal(diff, err)
	}
}

func TestMalformedTRErrorNamesTheLine(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"1 1 1 1\nx 1 1 1\n", "x.tr, line 2: the arrival is \"x\""},
		{"5 1 1 1\n4 1 1 1\n", "line 2: the job arrives at 4, before the one above it at 5"},
		{"1 0 1\n", "the number of tasks is \"0\""},
		{"1 99999999999 1 1\n", "the number of tasks is"},
		{"1 -1 1 1\n", "the number of tasks is"},
		{"1 2\n", "the mean is missing"},
		{"1 2 3 4\n", "it announces 2 tasks and has 1 durations"},
		{"1 1 3 4 5\n", "more durations than the 1 tasks"},
		{"1 1 3 NaN\n", "a duration is \"NaN\""},
		{"1 1 3 -4\n", "a duration is \"-4\""},
		{"1 1 Inf 4\n", "the mean is \"Inf\""},
		{"1e300 1 1 1\n", "the arrival is"},
		{"1 1 1 " + strings.Repeat("z", 1<<20) + "\n", "a duration is \"zzzz"},
	} {
		_, err := all(trace.NewTR("x.tr", strings.NewReader(c.text)))
		if err == nil || !strings.Contains(err.Error(), c.want) || !fault.Is(err, fault.Invalid) ||
			len(err.Error()) > 300 {
			t.Errorf("%.30q: %v, want %q", c.text, err, c.want)
		}
	}
}

func TestSWFFormatIsRead(t *testing.T) {
	got, err := all(trace.NewSWF("x.swf", strings.NewReader("; Version: 2\n"+
		"1 10 5 100 2 -1 -1 2 150 -1 1 1 1 1 1 1 -1 -1\n"+
		"2 12 5 -1 2 -1 -1 2 150 -1 0 1 1 1 1 1 -1 -1\n"+
		"3 11 5 7 -1 -1 -1 1 -1 -1 1 1 1 1 1 1 -1 -1\n")))
	want := []trace.Job{{Submit: 10, Mean: 150, Durations: []float64{100, 100}, User: 1},
		{Submit: 11, Mean: 7, Durations: []float64{7}, User: 1}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Fatal(diff, err)
	}
	for _, text := range []string{"1 2 3\n", "1 2 3 4 x 6 7 8 9\n", "1 2 3 4 99999999999 6 7 8 9\n"} {
		if _, err := all(trace.NewSWF("x.swf", strings.NewReader(text))); err == nil ||
			!strings.Contains(err.Error(), "x.swf, line 1") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestCSVFormatIsRead(t *testing.T) {
	got, err := all(trace.NewCSV("x.csv",
		strings.NewReader("job,submit_s,workload,tasks,duration_s\n0,1.5,batch,2,30\n1,2, service,1,7.5\n")))
	want := []trace.Job{{Submit: 1.5, Mean: 30, Durations: []float64{30, 30}},
		{Submit: 2, Mean: 7.5, Durations: []float64{7.5}}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Fatal(diff, err)
	}
	for text, want := range map[string]string{"a,b\n": "must name the columns",
		"submit_s,tasks,duration_s\n1,2\n":          "x.csv, line 2: it has 2 fields",
		"submit_s,tasks,duration_s\n1,1.5,3\n":      "tasks is 1.5",
		"submit_s,tasks,duration_s\n5,1,3\n4,1,3\n": "line 3: the job arrives at 4"} {
		if _, err := all(trace.NewCSV("x.csv", strings.NewReader(text))); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func TestOpenbPodsAreJobsOfOneTask(t *testing.T) {
	head := "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
	got, err := all(trace.NewCSV("x.csv",
		strings.NewReader(head+"a,1,1,1,1000,,LS,Running,5,25,10\nb,1,1,0,0,,BE,Failed,7,9,\n")))
	want := []trace.Job{{Submit: 5, Mean: 15, Durations: []float64{15}}, {Submit: 7, Mean: 2, Durations: []float64{2}}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Fatal(diff, err)
	}
	for text, want := range map[string]string{"a,1,1,1,1000,,LS,Running,5,4,\n": "line 2: the pod is created at 5",
		"a,1,1,1,1000,,LS,Running,5,,\n":   "deletion_time is",
		"a,1,1,1,1000,,LS,Running,5,9,x\n": "scheduled_time is"} {
		if _, err := all(trace.NewCSV("x.csv", strings.NewReader(head+text))); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func google(tasks, jobs string) *trace.Google {
	if jobs == "" {
		return trace.NewGoogle([]string{"task_events.csv"}, []io.Reader{strings.NewReader(tasks)}, nil, nil)
	}
	return trace.NewGoogle([]string{"task_events.csv"}, []io.Reader{strings.NewReader(tasks)},
		[]string{"job_events.csv"}, []io.Reader{strings.NewReader(jobs)})
}

// TestGoogleTraceEventsBecomeJobs: job 7 has a task that is evicted and runs again, one that fails, and one that never ends; job 6 was
// submitted before it by its own table; job 8 never ran.
func TestGoogleTraceEventsBecomeJobs(t *testing.T) {
	tasks := "Time stamp,Missing info,jobID,Task index,machine ID,Event type\n" +
		"2000000,,7,0,,0,u,3,9,0.1,0.1,0,0\n2000000,,7,1,,0\n2000000,,7,2,,0\n3000000,,7,0,5,1\n3000000,,7,1,5,1\n3500000,,7,2,5,1\n" +
		"4000000,,7,0,5,2\n5000000,,6,0,,0\n5000000,,7,0,6,1\n6000000,,6,0,6,1\n7000000,,8,0,,0\n7500000,,7,1,5,3\n8000000,,6,0,6,4\n" +
		"9000000,,7,0,6,7\n11000000,,7,0,6,4\n9223372036854775807,,7,2,5,5\n"
	got, err := all(google(tasks, "1000000,,6,0,u,3,n,l\n6000000,,6,1,u,3,n,l\n"))
	want := []trace.Job{{Submit: 1, Mean: 2, Durations: []float64{2}},
		{Submit: 2, Mean: 5.25, Durations: []float64{6, 4.5}}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Fatal(diff, err)
	}
	for text, want := range map[string]string{
		"0,,1,0,,0\n5,,1\n":              "task_events.csv, line 2: it has 3 fields, and at least 6",
		"9,,1,0,,0\n5,,1,0,,0\n":         "line 2: its time stamp 5 is before",
		"9,,x,0,,0\n":                    "the job's number is",
		"9,,1,-1,,0\n":                   "the task's index is",
		"9,,1,0,,9\n":                    "the event type is 9",
		"9,,1,0,,z\n":                    "the event type is",
		"99999999999999999999,,1,0,,0\n": "the time stamp is",
		"999999999999999999,,1,0,,0\n":   "the time stamp is 999999999999999999 microseconds",
		"9,,1,0,,0\n":                    "of 1 jobs no task is seen to be scheduled and to end",
	} {
		if _, err := all(google(text, "")); err == nil || !strings.Contains(err.Error(), want) ||
			!fault.Is(err, fault.Invalid) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	if _, err := all(google("1,,1,0,,0\n", "3,,x,0\n")); err == nil ||
		!strings.Contains(err.Error(), "job_events.csv, line 1: the job's number") {
		t.Error(err)
	}
}

func TestMachineEventsAreRead(t *testing.T) {
	m, err := trace.ReadMachines("m.csv",
		strings.NewReader("0,1,0,p,0.5,0.25\n0,2,0,p,1,1\n5,1,1,p,,\n6,3,0,p,0.5,0.5\n7,3,2,p,0.25,0.5\n"))
	if err != nil || m.Most != 2 || m.Last != 2 || m.CPU != 1.25 || m.Memory != 1.5 || m.Events != 5 {
		t.Fatalf("%+v %v", m, err)
	}
	for text, want := range map[string]string{"0,1,3,p,1,1\n": "a machine's is 0, 1 or 2",
		"0,x,0,p,1,1\n": "the machine's number", "0,1,0,p,NaN,1\n": "the CPU is", "0,1\n": "it has 2 fields"} {
		if _, err := trace.ReadMachines("m.csv", strings.NewReader(text)); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestOpenReadsGooglesFolder: tables in parts, compressed, as they are published.
func TestOpenReadsGooglesFolder(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "task_events"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"part-00000-of-00500.csv.gz": "1000000,,1,0,,0\n2000000,,1,0,5,1\n",
		"part-00001-of-00500.csv.gz": "9000000,,1,0,5,4\n"} {
		var z bytes.Buffer
		w := gzip.NewWriter(&z)
		fmt.Fprint(w, text)
		w.Close()
		if err := os.WriteFile(filepath.Join(dir, "task_events", name), z.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	src, c, err := trace.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	got, err := all(src)
	if diff := cmp.Diff([]trace.Job{{Submit: 1, Mean: 7, Durations: []float64{7}}}, got); diff != "" || err != nil {
		t.Fatal(diff, err)
	}
	if _, _, err := trace.Open(t.TempDir()); err == nil || !strings.Contains(err.Error(), "has no task_events") {
		t.Error(err)
	}
}

func FuzzGoogleReadsOrRefuses(f *testing.F) {
	f.Add("2000000,,7,0,,0,u,3,9\n3000000,,7,0,5,1\n4000000,,7,0,5,4\n")
	f.Fuzz(func(t *testing.T, text string) {
		jobs, err := all(google(text, ""))
		if err != nil && !fault.Is(err, fault.Invalid) {
			t.Fatal(err)
		}
		for _, j := range jobs {
			if len(j.Durations) == 0 || j.Mean < 0 {
				t.Fatalf("%+v", j)
			}
		}
	})
}

func TestOpenReadsGzipAndNamesDamage(t *testing.T) {
	dir := t.TempDir()
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	fmt.Fprint(w, "1 1 1 1\n2 1 1 1\n")
	w.Close()
	for name, data := range map[string][]byte{"a.tr.gz": z.Bytes(), "cut.tr.gz": z.Bytes()[:z.Len()-12],
		"not.tr.gz": []byte("1 1 1 1\n"), "b.tr": []byte("1 1 1 1\n")} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	read := func(name string) (int, error) {
		src, c, err := trace.Open(filepath.Join(dir, name))
		if err != nil {
			return 0, err
		}
		defer c.Close()
		jobs, err := all(src)
		return len(jobs), err
	}
	if n, err := read("a.tr.gz"); n != 2 || err != nil {
		t.Error(n, err)
	}
	if n, err := read("b.tr"); n != 1 || err != nil {
		t.Error(n, err)
	}
	var two bytes.Buffer
	for _, files := range [][]string{{"a.swf"}, {"a.swf", "b.swf"}} {
		two.Reset()
		zw := zip.NewWriter(&two)
		for _, name := range files {
			f, _ := zw.Create(name)
			fmt.Fprint(f, "1 10 5 100 2 -1 -1 2 150 -1 1 1 1 1 1 1 -1 -1\n")
		}
		zw.Close()
		if err := os.WriteFile(filepath.Join(dir, files[len(files)-1]+".zip"), two.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := read("a.swf.zip"); n != 1 || err != nil {
		t.Error(n, err)
	}
	for name, want := range map[string]string{"b.swf.zip": "has 2 files", "cut.tr.gz": "the file ends badly",
		"not.tr.gz": "not compressed with gzip", "none.tr": "cannot be opened"} {
		if _, err := read(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
}

func TestGeneratedTraceHasTheWantedLoad(t *testing.T) {
	in, err := trace.Scan(trace.NewTR("x", strings.NewReader("0 2 10 10 10\n5 1 100 100\n20 1 10 10\n")), 50)
	if err != nil || in.Jobs != 3 || in.Tasks != 4 || in.SlotSeconds != 130 || in.Peak != 3 || in.LongJobs*3 != 1 ||
		in.Cutoff != 50 {
		t.Fatalf("%+v %v", in, err)
	}
	for _, name := range trace.Shapes() {
		var a, b bytes.Buffer
		for _, w := range []*bytes.Buffer{&a, &b} {
			src, err := trace.Generate(trace.Shape{Name: name, Jobs: 2000, Slots: 1000, Load: 0.7, Seed: 3})
			if err != nil {
				t.Fatal(err)
			}
			if err := trace.WriteTR(w, src); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(a.Bytes(), b.Bytes()) {
			t.Errorf("%s: the same seed gave two traces", name)
		}
		in, err := trace.Scan(trace.NewTR(name, &a), 0)
		if err != nil || in.Jobs != 2000 {
			t.Fatalf("%s: %v", name, err)
		}
		if load := in.SlotSeconds / (in.Last - in.First) / 1000; load < 0.4 || load > 1.1 {
			t.Errorf("%s: the load is %.2f, wanted about 0.7", name, load)
		}
	}
	if _, err := trace.Generate(trace.Shape{Name: "none", Jobs: 1, Slots: 1, Load: 1}); err == nil {
		t.Error("an unknown shape is accepted")
	}
}

func FuzzTRReadsOrRefuses(f *testing.F) {
	f.Add("1.5 2 3.25 3 3.5\n")
	f.Add("1 1 1 1\n0 1 1 1\n")
	f.Fuzz(func(t *testing.T, text string) {
		jobs, err := all(trace.NewTR("x", strings.NewReader(text)))
		if err != nil && !fault.Is(err, fault.Invalid) {
			t.Fatal(err)
		}
		for _, j := range jobs {
			if len(j.Durations) == 0 {
				t.Fatal("a job without tasks")
			}
		}
	})
}
