package jobs_test

import (
	"testing"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/auction"
	"github.com/soukhq/souk/core/jobs"
)

// BenchmarkOffers hears 64 bids, offers 16 free slots, and takes them back.
func BenchmarkOffers(b *testing.B) {
	var bulletin jobs.Bulletin
	for i := range 64 {
		bulletin.Bids = append(bulletin.Bids, bidAt(int64(i), int64(10+i), 1<<30).Bids...)
	}
	rec := cluster.Record{Worker: "w", State: cluster.Ready, Capacity: cluster.Resources{CPU: 64000, Memory: 1 << 20},
		Attributes: cluster.Attributes{"arch": cluster.Text("arm64"), "zone": cluster.Text("a")}}
	s := jobs.NewSlots(16, auction.DefaultRules(64))
	for b.Loop() {
		s.Hear("b", &bulletin)
		offers := s.Offers(time.Unix(1000, 0), rec)["b"]
		if len(offers) != 16 {
			b.Fatal(len(offers))
		}
		for _, o := range offers {
			s.Back("b", o.Offer)
		}
	}
}
