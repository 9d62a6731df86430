package placement

import (
	"fmt"
	"slices"

	"github.com/soukhq/souk/cluster"
)

// Builtin is a score term that is written in Go and has a name, for policies to weight.
type Builtin struct {
	Name  string
	About string // one sentence
	Of    func(r *Request, w *cluster.Record) float64
	Note  func(r *Request, w *cluster.Record) string
}

// Builtins lists this package's terms that a policy can name; other packages have more.
func Builtins() []Builtin {
	return []Builtin{
		{Name: "region", About: "1 in the nearest region the request wants, 1/2 in the second, and so on",
			Of: regionTerm},
		{Name: "headroom", About: "the share of the scarcest dimension that is left free", Of: headroomTerm},
		{Name: "spread", About: "1 where the app has no machine, 1/2 where it has one, and so on", Of: spreadTerm},
		{Name: "packed", About: "how full the worker is afterwards, on average over its dimensions: best fit",
			Of: packedTerm},
		{Name: "balance", About: "how evenly its dimensions are filled afterwards, so that none is stranded",
			Of: balanceTerm},
		{Name: "backlog", About: "1 where no work waits, 1/2 where a second's worth does", Of: backlogTerm},
		{Name: "starting", About: "1 where no machine is on its way up, 1/2 where one is, and so on", Of: startingTerm},
		{Name: "image", About: "1 where the image need not be pulled", Of: imageTerm},
		{Name: "price", About: "1 where the attribute price is 0, 1/2 where it is 1; undefined where there is none",
			Of: priceTerm, Note: priceNote},
	}
}

// eachFilledShare calls f with the share of each dimension that would be used after the request, for dimensions that
// the worker has. GPUs count only if the request wants some: other requests leave them unchanged.
func eachFilledShare(r *Request, w *cluster.Record, f func(share float64)) {
	one := func(c, used, want int64) {
		if c > 0 {
			f(min(1, max(0, float64(used+want)/float64(c))))
		}
	}
	one(w.Capacity.CPU, w.Used.CPU, r.Resources.CPU)
	one(w.Capacity.Memory, w.Used.Memory, r.Resources.Memory)
	one(w.Capacity.Disk, w.Used.Disk, r.Resources.Disk)
	if r.Resources.GPU > 0 {
		one(w.Capacity.GPU, w.Used.GPU, r.Resources.GPU)
	}
}

func packedTerm(r *Request, w *cluster.Record) float64 {
	sum, n := 0.0, 0.0
	eachFilledShare(r, w, func(share float64) { sum, n = sum+share, n+1 })
	return sum / max(1, n)
}

// balanceTerm is 1 less the distance between the fullest and the emptiest dimension. Room in the others is stranded
// once the fullest is full (the hybrid of Verma et al., EuroSys 2015, section 3.2, keeps that small).
func balanceTerm(r *Request, w *cluster.Record) float64 {
	low, high := 1.0, 0.0
	eachFilledShare(r, w, func(share float64) { low, high = min(low, share), max(high, share) })
	return 1 - max(0, high-low)
}

func backlogTerm(_ *Request, w *cluster.Record) float64 {
	return 1000 / float64(1000+max(0, w.Backlog))
}

func startingTerm(_ *Request, w *cluster.Record) float64 {
	return 1 / float64(1+max(0, w.Starting))
}

func imageTerm(r *Request, w *cluster.Record) float64 {
	if r.Image != "" && slices.Contains(w.Images, r.Image) {
		return 1
	}
	return 0
}

// PriceAttribute names the attribute that the term price reads: a number from 0.
const PriceAttribute = "price"

func priceTerm(_ *Request, w *cluster.Record) float64 {
	v, _ := w.Attribute(PriceAttribute)
	price, ok := v.Any().(float64)
	if !ok || price < 0 {
		return 0
	}
	return 1 / (1 + price)
}

func priceNote(_ *Request, w *cluster.Record) string {
	v, there := w.Attribute(PriceAttribute)
	price, ok := v.Any().(float64)
	switch {
	case !there:
		return fmt.Sprintf("undefined: worker has no attribute %q", PriceAttribute)
	case !ok:
		return fmt.Sprintf("undefined: attribute %s is the %s %s", PriceAttribute, v.Type(), v)
	case price < 0:
		return fmt.Sprintf("undefined: attribute %s is %s, below 0", PriceAttribute, v)
	}
	return ""
}
