package sim

// Peer is the published result of another simulator, to compare with. Seconds; each class is p50, p90, p99, mean.
type Peer struct {
	Scheduler   string
	Short, Long [4]float64
	Mean        float64
}

// Case is a trace and a fleet with published results.
type Case struct {
	Name    string
	File    string // below the directory of traces
	Workers int
	Cutoff  float64
	Reserve float64
	Peers   []Peer
}

// Cases returns the cases of docs/results.md. The peers' figures are of one run each of the simulator published with
// Eagle, on the same traces, with the parameters of its README.
func Cases() []Case {
	const yahoo, google = "tr/YH2_sub.tr.gz", "tr/GOOG_subtrace.tr.gz"
	return []Case{
		{"Yahoo, 4,000 workers", yahoo, 4000, 90.5811, 2, []Peer{
			{"sparrow", [4]float64{1739, 13112, 14285, 4265}, [4]float64{2749, 13575, 15936, 4987}, 4337},
			{"hawk", [4]float64{205.8, 787.5, 1207, 308.7}, [4]float64{1520, 11989, 13955, 3580}, 636.5},
			{"eagle", [4]float64{24, 71, 148.6, 34.4}, [4]float64{1528, 11930, 14030, 3577}, 389.4},
			{"clwl", [4]float64{27, 90, 320, 44.3}, [4]float64{1500, 11892, 14015, 3574}, 398.1},
			{"dlwl", [4]float64{28, 83, 226.1, 41.1}, [4]float64{1448, 6042, 14037, 2363}, 273.9}}},
		{"Yahoo, 5,000 workers", yahoo, 5000, 90.5811, 2, []Peer{
			{"sparrow", [4]float64{890.2, 9207, 10909, 2720}, [4]float64{2042, 9991, 13223, 3585}, 2807},
			{"hawk", [4]float64{72, 535, 1091, 214.7}, [4]float64{1256, 8252, 12512, 2729}, 466.7},
			{"eagle", [4]float64{22, 62, 107, 28.8}, [4]float64{1256, 8281, 12512, 2728}, 299.2},
			{"dlwl", [4]float64{23, 67, 122, 32.6}, [4]float64{1204, 6583, 12512, 2266}, 256.4}}},
		{"Yahoo, 8,000 workers", yahoo, 8000, 90.5811, 2, []Peer{
			{"sparrow", [4]float64{58, 5338, 7176, 1227}, [4]float64{1261, 6145, 10444, 2333}, 1338},
			{"hawk", [4]float64{40, 635, 1141, 165.5}, [4]float64{1184, 3984, 8112, 1727}, 322},
			{"eagle", [4]float64{21, 60, 99, 27.5}, [4]float64{1184, 3984, 8112, 1727}, 197.8}}},
		{"Google, 10,000 workers", google, 10000, 1129.532, 17, []Peer{
			{"sparrow", [4]float64{4035, 6917, 14568, 4754}, [4]float64{6556, 15666, 86237, 10117}, 5238},
			{"hawk", [4]float64{2867, 5214, 8992, 3072}, [4]float64{5418, 15463, 55342, 8556}, 3567},
			{"eagle", [4]float64{210.1, 3352, 9689, 1035}, [4]float64{2631, 13702, 53969, 6519}, 1531},
			{"clwl", [4]float64{1825, 3600, 11480, 2097}, [4]float64{4728, 14573, 54818, 7898}, 2621}}},
		{"Google, 15,000 workers", google, 15000, 1129.532, 17, []Peer{
			{"sparrow", [4]float64{274, 2111, 9881, 1032}, [4]float64{2822, 12650, 56722, 6421}, 1518},
			{"hawk", [4]float64{147, 762, 1666, 294.3}, [4]float64{2308, 10899, 53309, 5714}, 783.7},
			{"eagle", [4]float64{98, 439, 1371, 199.7}, [4]float64{2205, 10307, 53335, 5541}, 682.1}}},
	}
}

// chainLink is one technique at one load of Sparrow's synthetic experiment: mean and median in milliseconds, from
// Sparrow's own simulator with its seed 1.
type chainLink struct {
	scheduler    string
	mean, median float64
}

func publishedChain() map[string][]chainLink {
	return map[string][]chainLink{
		"0.5": {{"fifo", 101.45, 70.51}, {"sparrow", 102.41, 72.58}, {"batch", 101.77, 71.72},
			{"per-task", 109.68, 82.01}, {"random", 272.60, 248.68}},
		"0.8": {{"fifo", 101.23, 70.05}, {"sparrow", 105.12, 76.03}, {"sparrow-cancel", 104.18, 75.12},
			{"batch", 157.70, 133.39},
			{"per-task", 211.78, 186.86}, {"random", 569.38, 543.26}},
		"0.9": {{"fifo", 101.05, 70.00}, {"sparrow", 122.31, 93.22}, {"sparrow-cancel", 118.93, 90.10},
			{"batch", 215.63, 190.15},
			{"per-task", 254.72, 230.10}, {"random", 708.74, 686.38}},
	}
}
