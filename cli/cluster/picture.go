package cluster

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/soukhq/souk/api"
	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/core/lifecycle"
	"github.com/soukhq/souk/machine"
)

// picture is what souk top shows: two samples of the workers, and the user's input.
type picture struct {
	now    api.UsageList
	last   *api.UsageList // the previous sample, for rates; nil: none
	queue  *queue         // nil: no job is unfinished
	err    error          // of the newest sample
	seen   bool           // a sample has succeeded
	sort   byte           // key by which machines are sorted: c, m, n or w; 0 is c
	filter string
	typing bool // input goes to the filter
}

// see takes over a new sample.
func (p *picture) see(l look) {
	if p.err = l.err; l.err != nil {
		return
	}
	if p.seen {
		before := p.now
		p.last = &before
	}
	p.now, p.queue, p.seen = l.UsageList, l.Queue, true
}

// Bytes of keys that are no letters.
const (
	keyInterrupt = 3
	keyBackspace = 8
	keyEnter     = '\r'
	keyEscape    = 27
	keyDelete    = 127
)

// key handles input, and reports whether it ends the watch. Keys that send several bytes, such as arrows, are ignored.
func (p *picture) key(typed []byte) (end bool) {
	if typed[0] == keyEscape && len(typed) > 1 {
		return false
	}
	for _, r := range string(typed) {
		switch {
		case r == keyInterrupt:
			return true
		case p.typing:
			p.typed(r)
		case r == 'q':
			return true
		case r == '/':
			p.typing = true
		case r == keyEscape:
			p.filter = ""
		case strings.ContainsRune("cmnw", r):
			p.sort = byte(r)
		}
	}
	return false
}

// typed handles a rune of the filter.
func (p *picture) typed(r rune) {
	switch r {
	case keyEnter, '\n':
		p.typing = false
	case keyEscape:
		p.typing, p.filter = false, ""
	case keyBackspace, keyDelete:
		_, size := utf8.DecodeLastRuneInString(p.filter)
		p.filter = p.filter[:len(p.filter)-size]
	default:
		if r = cli.Printable(r); len(p.filter) < 64 {
			p.filter += string(r)
		}
	}
}

// busyMachine is a machine or task, with how much it uses now.
type busyMachine struct {
	machine.Use
	worker cluster.WorkerID
	cores  float64 // cores in use; < 0: unknown yet
}

// machines returns the machines and tasks that pass the filter, sorted.
func (p *picture) machines() []busyMachine {
	before := map[string]machine.Use{}
	if p.last != nil {
		for _, w := range p.last.Workers {
			for _, u := range w.Use {
				before[string(w.Worker)+"/"+u.Machine] = u
			}
		}
	}
	var out []busyMachine
	for _, w := range p.now.Workers {
		for _, u := range w.Use {
			b := busyMachine{Use: u, worker: w.Worker, cores: -1}
			if o, was := before[string(w.Worker)+"/"+u.Machine]; was && u.At > o.At && u.CPU >= o.CPU {
				b.cores = float64(u.CPU-o.CPU) / float64(u.At-o.At)
			}
			text := strings.ToLower(useName(&u) + " " + u.App + " " + string(w.Worker))
			if strings.Contains(text, strings.ToLower(p.filter)) {
				out = append(out, b)
			}
		}
	}
	byName := func(a, b busyMachine) int {
		return cmp.Or(cmp.Compare(useName(&a.Use), useName(&b.Use)), cmp.Compare(a.Machine, b.Machine))
	}
	slices.SortFunc(out, func(a, b busyMachine) int {
		switch p.sort {
		case 'm':
			return cmp.Or(cmp.Compare(b.MemoryMiB, a.MemoryMiB), byName(a, b))
		case 'n':
			return byName(a, b)
		case 'w':
			return cmp.Or(cmp.Compare(a.worker, b.worker), byName(a, b))
		}
		return cmp.Or(cmp.Compare(b.cores, a.cores), cmp.Compare(b.MemoryMiB, a.MemoryMiB), byName(a, b))
	})
	return out
}

// useName returns the display name of a machine or task.
func useName(u *machine.Use) string {
	if l, task := jobs.ParseLife(u.Machine); task && u.App == "" {
		return fmt.Sprintf("task %d of job %s", l.Index, l.Job)
	}
	return cmp.Or(u.Name, u.Machine)
}

// lines returns the picture for a screen: no more lines than it has, and none that is wider.
func (p *picture) lines(width, height int) []string {
	if !p.seen {
		text := "souk top: looking"
		if p.err != nil {
			text = "souk top: " + p.err.Error()
		}
		return firstLines(cli.Wrap(text, width), height)
	}
	var page bytes.Buffer
	c := &cli.Env{Out: cli.Guarded(&page), Err: &page, Width: width, Getenv: func(string) string { return "" }}
	fmt.Fprintln(&page, cli.CutText(p.title(), width))
	ms := p.machines()
	rest := max(2, height-4) // without the title, an empty line, the last line and a table's head
	workers := min(len(p.now.Workers), rest)
	queued := p.queueLines(rest)
	if len(ms) > 0 || queued > 0 {
		workers = min(workers, max(1, rest/2-1))
	}
	p.workerTable(c, workers)
	p.notes(c)
	if queued > 0 {
		fmt.Fprintln(&page)
		p.printQueue(c, queued-3)
	}
	used := bytes.Count(page.Bytes(), []byte{'\n'})
	if left := height - used - 3; left > 0 && len(ms) > 0 {
		fmt.Fprintln(&page)
		p.machineTable(c, ms[:min(len(ms), left)])
	}
	out := firstLines(strings.TrimSuffix(page.String(), "\n"), height-1)
	for len(out) < height-1 {
		out = append(out, "")
	}
	return append(out, cli.CutText(p.foot(), width))
}

// queueLines returns how many lines of rest the queue gets: a quarter at most. One job alone has four, with an empty line,
// the sum and the table's head; on a small screen there is the sum alone, or nothing.
func (p *picture) queueLines(rest int) int {
	switch most := rest / 4; {
	case p.queue == nil || most < 2:
		return 0
	case most < 4:
		return 2
	default:
		return min(most, 3+len(p.queue.First))
	}
}

func firstLines(text string, most int) []string {
	lines := strings.Split(text, "\n")
	return lines[:max(0, min(len(lines), most))]
}

func (p *picture) title() string {
	machines, heard := 0, 0
	for _, w := range p.now.Workers {
		if w.Record != nil {
			heard++
			machines += w.Record.Machines
		}
	}
	text := fmt.Sprintf("souk top  %s  %s", p.now.At.Local().Format(time.TimeOnly),
		cli.NumberOf(len(p.now.Workers), "worker", "workers"))
	if heard < len(p.now.Workers) {
		text += fmt.Sprintf(", %d heard", heard)
	}
	return text + ", " + cli.NumberOf(machines, "machine", "machines") + p.requests()
}

// requests returns how many requests a second the answering member's proxy answers, and how many wait there.
func (p *picture) requests() string {
	if p.now.Proxy == nil || p.last == nil || p.last.Proxy == nil || !p.now.At.After(p.last.At) {
		return ""
	}
	n := p.now.Proxy.Requests - p.last.Proxy.Requests
	if p.now.Proxy.Requests < p.last.Proxy.Requests { // it has restarted, and counts from zero
		n = p.now.Proxy.Requests
	}
	text := fmt.Sprintf(", %.0f requests/s", float64(n)/p.now.At.Sub(p.last.At).Seconds())
	if p.now.Proxy.Held > 0 {
		text += fmt.Sprintf(", %d held", p.now.Proxy.Held)
	}
	return text
}

// foot returns the last line: the keys, or the filter being typed.
func (p *picture) foot() string {
	switch {
	case p.err != nil:
		return "the newest look failed: " + strings.Map(cli.Printable, p.err.Error())
	case p.typing:
		return "/" + p.filter + "_"
	case p.filter != "":
		return fmt.Sprintf("only %q (Esc: all)  q quit", p.filter)
	}
	return "q quit  / filter  sort by: c CPU  m memory  n name  w worker"
}

// mostOnce bounds the machines of a picture that is printed once.
const mostOnce = 20

// print prints the picture once, without redrawing.
func (p *picture) print(c *cli.Env) {
	c.Printf("%s\n", p.title())
	p.workerTable(c, len(p.now.Workers))
	p.notes(c)
	if p.queue != nil {
		fmt.Fprintln(c.Out)
		p.printQueue(c, mostQueued)
	}
	ms := p.machines()
	if len(ms) == 0 {
		return
	}
	fmt.Fprintln(c.Out)
	p.machineTable(c, ms[:min(len(ms), mostOnce)])
	if n := len(ms) - mostOnce; n > 0 {
		c.Printf("and %s, which use less\n", cli.NumberOf(n, "other", "others"))
	}
}

// notes prints which workers are halted, and why.
func (p *picture) notes(c *cli.Env) {
	for _, w := range p.now.Workers {
		if r := w.Record; r != nil && r.Cordon != nil && r.Cordon.Owner == lifecycle.HaltOwner {
			c.Printf("%s takes nothing: %s\n", w.Worker, strings.Map(cli.Printable, r.Cordon.Reason))
		}
	}
}

// workerTable prints the first of the workers.
func (p *picture) workerTable(c *cli.Env, most int) {
	var rows [][]cli.Cell
	cores := map[cluster.WorkerID]float64{}
	owing := slices.ContainsFunc(p.now.Workers, func(w api.WorkerUsage) bool {
		return w.Record != nil && (!w.Record.Promised.IsZero() || w.Record.PromiseLimit > 0)
	})
	all := *p
	all.filter = ""
	for _, b := range all.machines() {
		cores[b.worker] += b.cores
		if b.cores < 0 {
			cores[b.worker]++ // just started: count it as using nothing
		}
	}
	beside := p.beside()
	for _, w := range p.now.Workers[:most] {
		row := []string{string(w.Worker), string(w.Member), "", "", "", "", "", "", "", "", agedText(w.AgeMS)}
		if r := w.Record; r != nil {
			memory := int64(0)
			for _, u := range w.Use {
				memory += u.MemoryMiB
			}
			row = []string{string(w.Worker), string(r.State), share(r, "cpu"), "", share(r, "memory"), "",
				share(r, "disk"), strconv.Itoa(r.Machines), fmt.Sprintf("%d/%d", r.Starting, r.MaxStarting),
				rate(&w, p.now.At, p.last), agedText(w.AgeMS)}
			if w.Use != nil || r.Machines == 0 {
				row[3] = partOf(1000*cores[w.Worker], r.Capacity.CPU)
				row[5] = partOf(float64(memory), r.Capacity.Memory)
			}
		}
		if beside != nil {
			row = append(row, beside[w.Worker])
		}
		if owing {
			row = append(row, owed(w.Record))
		}
		rows = append(rows, cli.Cells(row...))
	}
	columns := []cli.Column{cli.Keep("WORKER").Cut(8), cli.Drop("STATE", 5), cli.Keep("CPU"), cli.Keep("USED"),
		cli.Keep("MEMORY"), cli.Keep("USED"), cli.Drop("DISK", 4), cli.Drop("MACHINES", 6), cli.Drop("STARTING", 2),
		cli.Drop("STARTS/S", 1), cli.Drop("AGE", 3)}
	if beside != nil {
		columns = append(columns, cli.Drop("OTHER LOAD", 7))
	}
	if owing {
		columns = append(columns, cli.Drop("IF ALL WAKE", 8))
	}
	c.Table(columns, rows)
	if n := len(p.now.Workers) - most; n > 0 {
		c.Printf("and %s\n", cli.NumberOf(n, "other worker", "other workers"))
	}
}

// beside returns what each worker's host uses besides souk's machines: share of CPUs, and memory; nil: no worker
// reports it.
func (p *picture) beside() map[cluster.WorkerID]string {
	cores, memory := map[string]float64{}, map[string]int64{} // of machines, by host
	host := map[cluster.WorkerID]string{}
	for _, w := range p.now.Workers {
		if w.Host != nil {
			host[w.Worker] = w.Host.Host
		}
	}
	if len(host) == 0 {
		return nil
	}
	all := *p
	all.filter = ""
	for _, b := range all.machines() {
		cores[host[b.worker]] += max(0, b.cores)
		memory[host[b.worker]] += b.MemoryMiB
	}
	before := map[cluster.WorkerID]*machine.HostUse{}
	if p.last != nil {
		for _, w := range p.last.Workers {
			before[w.Worker] = w.Host
		}
	}
	out := map[cluster.WorkerID]string{}
	for _, w := range p.now.Workers {
		h := w.Host
		if h == nil {
			out[w.Worker] = "-"
			continue
		}
		cpu := "-"
		if o := before[w.Worker]; o != nil && o.Host == h.Host && h.At > o.At && h.CPU >= o.CPU {
			cpu = partOf(max(0, float64(h.CPU-o.CPU)/float64(h.At-o.At)-cores[h.Host]), int64(h.CPUs))
		}
		out[w.Worker] = fmt.Sprintf("%s, %d MB", cpu, max(0, h.MemoryMiB-memory[h.Host]))
	}
	return out
}

// machineTable prints machines with their use and their grants.
func (p *picture) machineTable(c *cli.Env, ms []busyMachine) {
	rows := make([][]cli.Cell, len(ms))
	for i, b := range ms {
		cpu, cpuOf, memoryOf := "-", "", ""
		if b.cores >= 0 {
			cpu = fmt.Sprintf("%.0f%%", 100*b.cores)
		}
		if b.GrantedCPU > 0 {
			cpuOf, memoryOf = fmt.Sprintf("%d%%", b.GrantedCPU/10), fmt.Sprintf("%d MB", b.GrantedMemory)
		}
		rows[i] = cli.Cells(useName(&b.Use), b.App, string(b.worker), cpu, cpuOf, fmt.Sprintf("%d MB", b.MemoryMiB),
			memoryOf, strconv.Itoa(b.Processes))
	}
	c.Table([]cli.Column{cli.Keep("MACHINE").Cut(8), cli.Drop("APP", 3).Cut(6), cli.Drop("WORKER", 4).Cut(6),
		cli.Keep("CPU"), cli.Drop("GRANTED", 2), cli.Keep("MEMORY"), cli.Drop("GRANTED", 5),
		cli.Drop("PROCESSES", 1)}, rows)
}

// partOf prints how much of a capacity is used.
func partOf(used float64, most int64) string {
	if most <= 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f%%", 100*used/float64(most))
}

func share(r *cluster.Record, dim string) string {
	most := r.Capacity.Get(dim)
	if most == 0 {
		return "-"
	}
	return fmt.Sprintf("%d%%", 100*r.Used.Get(dim)/most)
}

// owed prints how much of a worker would be used if all sleeping machines that requests may wake were awake, in the
// fullest dimension, and the limit.
func owed(r *cluster.Record) string {
	if r == nil {
		return ""
	}
	most := int64(0)
	for _, d := range r.Used.Add(r.Promised).Dims() {
		if has := r.Capacity.Get(d.Name); has > 0 && d.Name != "disk" {
			most = max(most, 100*d.Amount/has)
		}
	}
	if r.PromiseLimit == 0 {
		return fmt.Sprintf("%d%%", most)
	}
	return fmt.Sprintf("%d%%, at most %d%%", most, r.PromiseLimit/10)
}

func rate(w *api.WorkerUsage, at time.Time, last *api.UsageList) string {
	if last == nil {
		return "-"
	}
	for _, o := range last.Workers {
		if took := at.Sub(last.At).Seconds(); o.Worker == w.Worker && took > 0 && w.Starts >= o.Starts {
			return fmt.Sprintf("%.1f", float64(w.Starts-o.Starts)/took)
		}
	}
	return "-"
}

func agedText(ms float64) string {
	return time.Duration(ms * float64(time.Millisecond)).Round(100 * time.Millisecond).String()
}
