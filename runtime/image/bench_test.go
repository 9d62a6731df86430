package image_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/soukhq/souk/runtime/image"
	"github.com/soukhq/souk/runtime/image/imagetest"
)

// body is text that compresses about as programs do.
func body(r *rand.Rand, n int) string {
	words := []string{"image ", "layer ", "\x00\x00\x00\x00", "func ", "0x"}
	var b bytes.Buffer
	for b.Len() < n {
		b.WriteString(words[r.IntN(len(words))])
		fmt.Fprintf(&b, "%x", r.Uint32())
	}
	return b.String()[:n]
}

// BenchmarkUnpack unpacks layers and has tar unpack the same ones, in turns, and prints both: with the files durable,
// as they are when Unpack returns, and without.
func BenchmarkUnpack(b *testing.B) {
	tarProgram, err := exec.LookPath("tar")
	if err != nil {
		b.Skip(err)
	}
	r := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // not a secret
	small, large := []imagetest.File{}, []imagetest.File{}
	for n := range 20_000 {
		if n%50 == 0 {
			small = append(small, imagetest.Dir(fmt.Sprintf("d%d", n/50)))
		}
		small = append(small, imagetest.File{Name: fmt.Sprintf("d%d/f%d", n/50, n), Body: body(r, 500+r.IntN(4000))})
	}
	for n := range 20 {
		large = append(large, imagetest.File{Name: fmt.Sprint("f", n), Body: body(r, 8<<20)})
	}
	for name, files := range map[string][]imagetest.File{"20000 small files": small, "20 files of 8 MiB": large} {
		built := imagetest.Build(b, imagetest.Spec{Layers: [][]byte{imagetest.Tar(b, files...)}, Compression: "gzip"})
		archive := filepath.Join(b.TempDir(), "layer.tar.gz")
		if err := os.WriteFile(archive, built.Blobs[built.Parsed.Layers[0].Digest.String()], 0o600); err != nil {
			b.Fatal(err)
		}
		layout := imagetest.Tar(b, built.Layout(b, "a:b")...)
		b.Run(name, func(b *testing.B) {
			var own, theirs, durable time.Duration
			for b.Loop() {
				s := open(b, b.TempDir())
				must(s.Load(b.Context(), bytes.NewReader(layout), "it"))(b)
				to := b.TempDir()
				flush(b, to)
				start := time.Now()
				if out, err := exec.Command(tarProgram, "xzf", archive, "-C", to).CombinedOutput(); err != nil {
					b.Fatalf("%v: %s", err, out)
				}
				theirs += time.Since(start)
				flush(b, to)
				durable += time.Since(start)
				start = time.Now()
				must(s.Unpack(b.Context(), "a:b"))(b)
				own += time.Since(start)
			}
			ms := func(d time.Duration) float64 { return float64(d.Milliseconds()) / float64(b.N) }
			b.ReportMetric(ms(own), "unpack-ms")
			b.ReportMetric(ms(theirs), "tar-ms")
			b.ReportMetric(ms(durable), "tar+sync-ms")
			b.ReportMetric(durable.Seconds()/own.Seconds(), "of-tar+sync")
			b.ReportMetric(theirs.Seconds()/own.Seconds(), "of-tar")
		})
	}
}

func flush(b *testing.B, dir string) {
	b.Helper()
	if out, err := exec.Command("sync", "-f", dir).CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
}

// BenchmarkPull pulls 200 MB from a registry in this process.
func BenchmarkPull(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // not a secret
	var layers [][]byte
	for n := range 4 {
		layers = append(layers, imagetest.Tar(b, imagetest.File{Name: fmt.Sprint("f", n), Body: body(r, 50_000_000)}))
	}
	reg := imagetest.NewRegistry(b)
	name := reg.Push(b, "app:v1", imagetest.Build(b, imagetest.Spec{Layers: layers}))
	b.SetBytes(200_000_000)
	for b.Loop() {
		must(open(b, b.TempDir()).Pull(b.Context(), name, image.PullOptions{}))(b)
	}
}
