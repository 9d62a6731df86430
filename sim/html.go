package sim

import (
	"bufio"
	"fmt"
	"html"
	"io"
)

// HTML writes a self-contained report: the table and, as SVG, the distributions of runtimes, the use of the slots over
// time, and the mean runtime against the number of messages.
func HTML(w io.Writer, title string, rows []Summary, bounds *Bounds) error {
	out := bufio.NewWriter(w)
	fmt.Fprintf(out, `<!doctype html><html lang="en"><meta charset="utf-8"><title>%s</title><style>
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:70rem;padding:0 1rem;color:#222;background:#fff}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}th,td{padding:.2rem .6rem;text-align:right;border-bottom:1px solid #ddd}
th:first-child,td:first-child{text-align:left}svg{max-width:100%%;height:auto}@media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}th,td{border-color:#444}}
</style><h1>%s</h1><p>Job runtimes in seconds, means over the seeds.</p>`, html.EscapeString(title), html.EscapeString(title))
	fmt.Fprint(out, "<table><tr><th>scheduler<th>short p50<th>p90<th>p99<th>mean<th>long "+
		"p50<th>p90<th>p99<th>mean<th>all mean<th>over A<th>over C<th>messages a task<th>wasted "+
		"holds<th>conflicts<th>fairness<th>utilisation<th>makespan<th>seeds</tr>")
	list := rows
	if bounds != nil {
		list = append(append([]Summary(nil), rows...), bounds.C, bounds.B, bounds.A)
	}
	for _, r := range list {
		fmt.Fprintf(out, "<tr><td>%s", html.EscapeString(r.Scheduler))
		for _, v := range []float64{r.Short.P50, r.Short.P90, r.Short.P99, r.Short.Mean, r.Long.P50, r.Long.P90,
			r.Long.P99, r.Long.Mean, r.Mean} {
			fmt.Fprintf(out, "<td>%.4g", v)
		}
		overA, overC := "", ""
		if bounds != nil {
			overA, overC = fmt.Sprintf("%+.1f %%", 100*Regret(r, bounds.A)),
				fmt.Sprintf("%+.1f %%", 100*Regret(r, bounds.C))
		}
		fmt.Fprintf(out, "<td>%s<td>%s<td>%.1f<td>%.4f<td>%.4f<td>%.3f<td>%.0f %%<td>%.5g<td>%d</tr>", overA, overC,
			r.Messages, r.Idled, r.Conflicts,
			r.Fairness, 100*r.Busy, r.Makespan, r.Seeds)
	}
	fmt.Fprint(out, "</table>")
	drawCDF(out, "Short jobs", list, func(s Summary) []float64 { return s.ShortTimes })
	drawCDF(out, "Long jobs", list, func(s Summary) []float64 { return s.LongTimes })
	drawUsage(out, rows)
	drawFrontier(out, rows)
	fmt.Fprint(out, "</html>\n")
	return out.Flush()
}
