package cell

import "slices"

// Scale returns the jobs with times as many batch jobs in the same time, as Omega's load up-scaling does (EuroSys'13,
// section 4.2, figure 8); service jobs are unchanged. Copies of a job arrive in equal steps between it and the next
// batch job; below 1, jobs are left out evenly. Jobs must be sorted by submission, and so is the result.
func Scale(jobs []Job, times float64) []Job {
	if times == 1 {
		return jobs
	}
	var batch []int
	for i := range jobs {
		if jobs[i].Class == Batch {
			batch = append(batch, i)
		}
	}
	var out []Job
	for i := range jobs {
		if jobs[i].Class != Batch {
			out = append(out, jobs[i])
		}
	}
	given := 0
	for k, i := range batch {
		until := jobs[i].Submit
		if k+1 < len(batch) {
			until = jobs[batch[k+1]].Submit
		}
		n := int(float64(k+1)*times) - given
		given += n
		for c := range n {
			j := jobs[i]
			j.Submit += (until - j.Submit) * int64(c) / int64(n)
			out = append(out, j)
		}
	}
	slices.SortStableFunc(out, func(a, b Job) int { return int(min(1, max(-1, a.Submit-b.Submit))) })
	return out
}
