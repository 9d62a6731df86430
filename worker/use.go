package worker

import (
	"context"
	"sync"
	"time"

	"github.com/soukhq/souk/fault"
	"github.com/soukhq/souk/machine"
	"github.com/soukhq/souk/runtime"
)

// Bounds of one measurement of what machines use.
const (
	useAtOnce = 4               // machines that are read concurrently
	useTime   = 2 * time.Second // after which the rest is skipped
)

// Use measures what each running machine and task uses. Nothing is measured between calls.
func (w *Worker) Use(ctx context.Context) ([]machine.Use, error) {
	meter, ok := w.o.Runtime.(runtime.Meter)
	if !ok {
		return nil, fault.New(fault.Unimplemented, codeUse, "the %s runtime cannot report what machines use",
			w.o.Runtime.Name())
	}
	ctx, cancel := context.WithTimeout(ctx, useTime)
	defer cancel()
	lives, err := w.o.Runtime.List(ctx)
	if err != nil {
		return nil, err
	}
	known, err := w.Machines(ctx, "", false)
	if err != nil {
		return nil, err
	}
	byID := make(map[string]*machine.Machine, len(known))
	for _, m := range known {
		byID[m.ID] = m
	}
	read := make([]*machine.Use, len(lives))
	places := make(chan struct{}, useAtOnce)
	var all sync.WaitGroup
	for i, l := range lives {
		if !l.Running || ctx.Err() != nil {
			continue
		}
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			if u, err := meter.Usage(ctx, l.Machine); err == nil { // otherwise it has ended meanwhile, or time is up
				read[i] = useOf(l.Machine, byID[l.Machine], u)
			}
		})
	}
	all.Wait()
	out := make([]machine.Use, 0, len(read))
	for _, u := range read {
		if u != nil {
			out = append(out, *u)
		}
	}
	return out, nil
}

// useOf returns what a life uses; m is nil for a task.
func useOf(id string, m *machine.Machine, u runtime.Usage) *machine.Use {
	out := &machine.Use{Machine: id, CPU: u.CPU.Microseconds(), At: time.Now().UnixMicro(), MemoryMiB: u.MemoryMiB,
		Processes: u.Processes}
	if m != nil {
		want := machine.Resources(m.Config)
		out.App, out.Name, out.GrantedCPU, out.GrantedMemory = m.App, m.Name, want.CPU, want.Memory
	}
	return out
}
