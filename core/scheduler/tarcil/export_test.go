package tarcil

// SampleSize returns how many workers are sampled for a task if one has a good slot with probability good.
func (t *Tarcil) SampleSize(good float64) int { return t.sampleSize(good) }
