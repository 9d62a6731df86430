package shell_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/soukhq/souk/core/scheduler"
	"github.com/soukhq/souk/core/scheduler/shell"
)

// TestEverySchedulerSaysWhereTasksWait has a job wait behind others, under every scheduler, and asks about it.
func TestEverySchedulerSaysWhereTasksWait(t *testing.T) {
	for _, name := range live() {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, name, 1, 5)
			w.runFor(time.Second)
			for i := range 8 {
				w.submit(w.hosts[i%5], 20, 20*time.Second)
				w.runFor(10 * time.Millisecond)
			}
			w.runFor(1500 * time.Millisecond)
			last := w.jobs[len(w.jobs)-1]
			at := slices.IndexFunc(last.tasks, func(x *userTask) bool { return x.state == handed })
			if at < 0 {
				t.Skip("all its tasks were granted")
			}
			own, others := last.keeper.node.Explain(w.now, 7, last.tasks[at].token)
			w.settle(last.keeper)
			if len(others) != 4 {
				t.Errorf("asked %v", others)
			}
			w.runFor(50 * time.Millisecond)
			if len(w.says) != 4 {
				t.Errorf("%d answers came", len(w.says))
			}
			all := slices.Clone(own)
			for _, a := range w.says {
				if a.Question != 7 {
					t.Errorf("an answer to question %d came from %s", a.Question, a.By)
				}
				all = append(all, a.Said...)
			}
			for _, s := range all {
				t.Log(scheduler.Party{Role: s.Role}, s.Text)
			}
			if len(all) == 0 {
				t.Error("no party says anything")
			}
			if !w.runFor(30 * time.Minute) {
				t.Errorf("%d tasks have not ended", w.left())
			}
		})
	}
}

// TestNobodyExplainsAnEarlierGeneration: whoever asks does not wait for answers that cannot come.
func TestNobodyExplainsAnEarlierGeneration(t *testing.T) {
	w := newWorld(t, "sparrow", 1, 2)
	w.runFor(time.Second)
	w.submit(w.hosts[0], 50, time.Minute)
	token := w.jobs[0].tasks[49].token
	w.kill(w.hosts[1])
	w.tellAll(nil, 0)
	w.runFor(time.Second)
	if own, others := w.hosts[0].node.Explain(w.now, 1, token); own != nil || others != nil {
		t.Error(own, others)
	}
	token.Lane.Scheduler = "fifo"
	if own, others := w.hosts[0].node.Explain(w.now, 1, token); own != nil || others != nil {
		t.Error(fmt.Sprint(own, others, shell.Explain))
	}
}
