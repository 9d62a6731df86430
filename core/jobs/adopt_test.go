package jobs_test

import (
	"testing"
	"time"
)

// TestResultDuringATakeoverIsRecorded: a worker reports a result of a job that was just taken over, before the takeover is
// in the journal. Once it is, and at the next heir, the worker is told to forget the result.
func TestResultDuringATakeoverIsRecorded(t *testing.T) {
	for what, members := range map[string]int{"with an heir": 3, "without one": 2} {
		t.Run(what, func(t *testing.T) {
			m := newMany(t, members)
			keeper := m.members[0]
			id := m.submitTo(keeper, 9, nil)
			heir := keeper.heirOf(id)
			for range 4 {
				m.now = m.now.Add(time.Second)
				keeper.look()
				for _, x := range m.members {
					keeper.report(x)
				}
			}
			ended := 0
			for _, x := range m.members {
				if x.endOne(0, 0); x != keeper { // nobody hears of it
					ended += len(x.work.tasks)
				}
			}
			if ended == 0 {
				t.Fatal("no task ran at another member")
			}
			keeper.lose()
			m.now = m.now.Add(goneFor + time.Second)
			heir.look() // takes over, connects the workers, hears of the result, and commits nothing
			for range 5 {
				heir.commit()
				heir.copyJobs(copyArrives)
			}
			for _, x := range m.members {
				for name, task := range x.work.tasks {
					if task.result != nil && !x.lost {
						t.Errorf("%s keeps the result of %s, which the takeover has: %d of the job", x.id, name,
							heir.succeeded(id))
					}
				}
			}
		})
	}
}
