package sim

import (
	"bufio"
	"fmt"
	"html"
	"io"
	"math"
	"strings"
)

// HTML writes a report that needs nothing but itself: the table, and the distributions of runtimes as SVG.
func HTML(w io.Writer, title string, rows []Summary, bounds *Bounds) error {
	out := bufio.NewWriter(w)
	fmt.Fprintf(out, `<!doctype html><html lang="en"><meta charset="utf-8"><title>%s</title><style>
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:70rem;padding:0 1rem;color:#222;background:#fff}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}th,td{padding:.2rem .6rem;text-align:right;border-bottom:1px solid #ddd}
th:first-child,td:first-child{text-align:left}svg{max-width:100%%;height:auto}@media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}th,td{border-color:#444}}
</style><h1>%s</h1><p>Job runtimes in seconds, means over the seeds.</p>`, html.EscapeString(title), html.EscapeString(title))
	fmt.Fprint(out, "<table><tr><th>scheduler<th>short p50<th>p90<th>p99<th>mean<th>long p50<th>p90<th>p99<th>mean<th>all mean<th>messages a task<th>seeds</tr>")
	list := rows
	if bounds != nil {
		list = append(append([]Summary(nil), rows...), bounds.C, bounds.B, bounds.A)
	}
	for _, r := range list {
		fmt.Fprintf(out, "<tr><td>%s", html.EscapeString(r.Scheduler))
		for _, v := range []float64{r.Short.P50, r.Short.P90, r.Short.P99, r.Short.Mean, r.Long.P50, r.Long.P90, r.Long.P99, r.Long.Mean, r.Mean} {
			fmt.Fprintf(out, "<td>%.4g", v)
		}
		fmt.Fprintf(out, "<td>%.1f<td>%d</tr>", r.Messages, r.Seeds)
	}
	fmt.Fprint(out, "</table>")
	cdf(out, "Short jobs", list, func(s Summary) []float64 { return s.ShortTimes })
	cdf(out, "Long jobs", list, func(s Summary) []float64 { return s.LongTimes })
	fmt.Fprint(out, "</html>\n")
	return out.Flush()
}

// cdf draws the share of jobs that took at most so long, the time on a logarithmic axis.
func cdf(w io.Writer, title string, rows []Summary, of func(Summary) []float64) {
	const width, height, left, bottom = 900.0, 380.0, 50.0, 40.0
	lo, hi := math.Inf(1), 0.0
	for _, r := range rows {
		if t := of(r); len(t) > 0 {
			lo, hi = min(lo, max(t[0], 1e-4)), max(hi, t[len(t)-1])
		}
	}
	if hi == 0 {
		return
	}
	hi = max(hi, lo*10)
	x := func(v float64) float64 {
		return left + (width-left-150)*math.Log(max(v, lo)/lo)/math.Log(hi/lo)
	}
	y := func(p float64) float64 { return (height - bottom) * (1 - p*0.97) }
	fmt.Fprintf(w, `<h2>%s</h2><svg viewBox="0 0 %g %g" role="img" aria-label="%s"><g stroke="#8884" font-size="12" fill="currentColor">`, title, width, height, title)
	for e := math.Ceil(math.Log10(lo)); e <= math.Log10(hi); e++ {
		v := math.Pow(10, e)
		fmt.Fprintf(w, `<path d="M%.1f 0V%.1f"/><text stroke="none" x="%.1f" y="%.1f" text-anchor="middle">%g s</text>`, x(v), height-bottom, x(v), height-bottom+18, v)
	}
	for _, p := range []float64{0, 0.5, 0.9, 0.99} {
		fmt.Fprintf(w, `<path d="M%g %.1fH%.1f"/><text stroke="none" x="%g" y="%.1f" text-anchor="end">%g</text>`, left, y(p), width-150, left-6, y(p)+4, p)
	}
	fmt.Fprint(w, "</g>")
	for i, r := range rows {
		t := of(r)
		if len(t) == 0 {
			continue
		}
		var d strings.Builder
		const points = 300
		for k := range points + 1 {
			p := float64(k) / points
			v := t[min(len(t)-1, int(p*float64(len(t))))]
			fmt.Fprintf(&d, "%c%.1f %.1f", "LM"[btoi(k == 0)], x(v), y(p))
		}
		hue := i * 360 / len(rows)
		fmt.Fprintf(w, `<path d="%s" fill="none" stroke="hsl(%d 70%% 45%%)" stroke-width="2"/>`, d.String(), hue)
		fmt.Fprintf(w, `<text x="%g" y="%d" font-size="13" fill="hsl(%d 70%% 45%%)">%s</text>`, width-140, 20+18*i, hue, html.EscapeString(r.Scheduler))
	}
	fmt.Fprint(w, "</svg>")
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
