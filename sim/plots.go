package sim

import (
	"fmt"
	"html"
	"io"
	"math"
	"strings"
)

// The size of a plot, and of its margins.
const plotWidth, plotHeight, plotLeft, plotRight, plotBottom = 900.0, 380.0, 50.0, 150.0, 40.0

func beginPlot(w io.Writer, title string) {
	fmt.Fprintf(w, `<h2>%s</h2><svg viewBox="0 0 %g %g" role="img" aria-label="%s"><g stroke="#8884" font-size="12" fill="currentColor">`,
		title, plotWidth, plotHeight, title)
}

// drawLine draws the i-th of n lines, and its name in the margin.
func drawLine(w io.Writer, i, n int, d, name string) {
	hue := i * 360 / n
	fmt.Fprintf(w, `<path d="%s" fill="none" stroke="hsl(%d 70%% 45%%)" stroke-width="2"/>`, d, hue)
	fmt.Fprintf(w, `<text x="%g" y="%d" font-size="13" fill="hsl(%d 70%% 45%%)">%s</text>`, plotWidth-plotRight+10,
		20+18*i, hue, html.EscapeString(name))
}

// drawCDF draws the distribution of runtimes, with time on a logarithmic axis.
func drawCDF(w io.Writer, title string, rows []Summary, of func(Summary) []float64) {
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
		return plotLeft + (plotWidth-plotLeft-plotRight)*math.Log(max(v, lo)/lo)/math.Log(hi/lo)
	}
	y := func(p float64) float64 { return (plotHeight - plotBottom) * (1 - p*0.97) }
	beginPlot(w, title)
	for e := math.Ceil(math.Log10(lo)); e <= math.Log10(hi); e++ {
		v := math.Pow(10, e)
		fmt.Fprintf(w, `<path d="M%.1f 0V%.1f"/><text stroke="none" x="%.1f" y="%.1f" text-anchor="middle">%g s</text>`,
			x(v), plotHeight-plotBottom, x(v), plotHeight-plotBottom+18, v)
	}
	for _, p := range []float64{0, 0.5, 0.9, 0.99} {
		fmt.Fprintf(w, `<path d="M%g %.1fH%.1f"/><text stroke="none" x="%g" y="%.1f" text-anchor="end">%g</text>`,
			plotLeft, y(p), plotWidth-plotRight, plotLeft-6, y(p)+4, p)
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
			fmt.Fprintf(&d, "%c%.1f %.1f", "LM"[boolToInt(k == 0)], x(v), y(p))
		}
		drawLine(w, i, len(rows), d.String(), r.Scheduler)
	}
	fmt.Fprint(w, "</svg>")
}

// drawUsage draws the busy share of the slots over the time of the first seed's run.
func drawUsage(w io.Writer, rows []Summary) {
	end := 0.0
	for _, r := range rows {
		end = max(end, r.Makespan)
	}
	if end == 0 {
		return
	}
	x := func(t float64) float64 { return plotLeft + (plotWidth-plotLeft-plotRight)*min(1, t/end) }
	y := func(p float64) float64 { return (plotHeight - plotBottom) * (1 - p*0.97) }
	beginPlot(w, "Slots busy over time")
	for k := range 6 {
		t := end * float64(k) / 5
		fmt.Fprintf(w, `<path d="M%.1f 0V%.1f"/><text stroke="none" x="%.1f" y="%.1f" text-anchor="middle">%.3g s</text>`,
			x(t), plotHeight-plotBottom, x(t), plotHeight-plotBottom+18, t)
	}
	for _, p := range []float64{0, 0.5, 1} {
		fmt.Fprintf(w, `<path d="M%g %.1fH%.1f"/><text stroke="none" x="%g" y="%.1f" text-anchor="end">%g %%</text>`,
			plotLeft, y(p), plotWidth-plotRight, plotLeft-6, y(p)+4, 100*p)
	}
	fmt.Fprint(w, "</g>")
	for i, r := range rows {
		var d strings.Builder
		for k, b := range r.Load.Busy {
			fmt.Fprintf(&d, "%c%.1f %.1f", "LM"[boolToInt(k == 0)], x((float64(k)+0.5)*float64(r.Load.Width)/1e6), y(b))
		}
		if d.Len() > 0 {
			drawLine(w, i, len(rows), d.String(), r.Scheduler)
		}
	}
	fmt.Fprint(w, "</svg>")
}

// drawFrontier draws each row's mean runtime against its messages, both on logarithmic axes. Rows of one scheduler
// with several values of its parameter are joined, to show the effect of more messages.
func drawFrontier(w io.Writer, rows []Summary) {
	minX, maxX, minY, maxY := math.Inf(1), 0.0, math.Inf(1), 0.0
	var points []Summary
	for _, r := range rows {
		if r.Messages > 0 && r.Mean > 0 {
			points = append(points, r)
			minX, maxX, minY, maxY = min(minX, r.Messages), max(maxX, r.Messages), min(minY, r.Mean), max(maxY, r.Mean)
		}
	}
	if len(points) < 2 {
		return
	}
	minX, maxX, minY, maxY = minX/1.1, maxX*1.1, minY/1.05, maxY*1.05
	x := func(v float64) float64 {
		return plotLeft + (plotWidth-plotLeft-plotRight)*math.Log(v/minX)/math.Log(maxX/minX)
	}
	y := func(v float64) float64 {
		return (plotHeight - plotBottom) * (1 - 0.97*math.Log(v/minY)/math.Log(maxY/minY))
	}
	beginPlot(w, "Mean runtime against messages a task")
	for k := range 5 {
		f := float64(k) / 4
		vx, vy := minX*math.Pow(maxX/minX, f), minY*math.Pow(maxY/minY, f)
		fmt.Fprintf(w, `<path d="M%.1f 0V%.1f"/><text stroke="none" x="%.1f" y="%.1f" text-anchor="middle">%.3g</text>`,
			x(vx), plotHeight-plotBottom, x(vx), plotHeight-plotBottom+18, vx)
		fmt.Fprintf(w, `<path d="M%g %.1fH%.1f"/><text stroke="none" x="%g" y="%.1f" text-anchor="end">%.3g s</text>`,
			plotLeft, y(vy), plotWidth-plotRight, plotLeft-2, y(vy)+4, vy)
	}
	fmt.Fprint(w, "</g>")
	for i, r := range points {
		base, _, _ := strings.Cut(r.Scheduler, ":")
		hue := i * 360 / len(points)
		if i > 0 {
			if before, _, _ := strings.Cut(points[i-1].Scheduler, ":"); before == base {
				p := points[i-1]
				fmt.Fprintf(w, `<path d="M%.1f %.1fL%.1f %.1f" stroke="#8888" fill="none"/>`, x(p.Messages), y(p.Mean),
					x(r.Messages), y(r.Mean))
			}
		}
		fmt.Fprintf(w, `<circle cx="%.1f" cy="%.1f" r="4" fill="hsl(%d 70%% 45%%)"/><text x="%.1f" y="%.1f" font-size="12" fill="currentColor">%s</text>`,
			x(r.Messages), y(r.Mean), hue, x(r.Messages)+6, y(r.Mean)-4, html.EscapeString(r.Scheduler))
	}
	fmt.Fprint(w, "</svg>")
}

func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}
