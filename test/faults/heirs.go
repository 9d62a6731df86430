package faults

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/soukhq/souk/cluster"
	"github.com/soukhq/souk/core/jobs"
	"github.com/soukhq/souk/fault"
)

// Times of keepers and heirs of jobs.
const (
	showIn    = 3 * time.Second        // until each living member shows a job whose keeper is down
	showGive  = 15 * time.Second       // until such a job is given up
	showPause = 200 * time.Millisecond // between two looks at such a job
	showMost  = 5                      // jobs of one keeper that are looked at while it is down
	goneIn    = 3 * time.Second        // a member that is away for so long loses its jobs to their heirs
	longAway  = 5 * time.Second        // how long some killed members are away at least
	backIn    = 15 * time.Second       // until a member that was away has handed its jobs over
	napPause  = 200 * time.Millisecond // between two questions whether a member answers
	napTime   = time.Second            // for one of them
)

// sight is what was seen of a job or a task at one moment, and who kept the job by the largest claim.
type sight struct {
	job  jobs.Job
	task jobs.Task
	when time.Time
}

// claim says who keeps a job.
func claim(j *jobs.Job) string { return fmt.Sprintf("%s in epoch %d", j.Member, j.Epoch) }

// isCut reports whether a fault keeps members from hearing each other while both serve. Then the keeper of a job and its
// heir may both keep it, and afterwards the results of one of them replace those of the other.
func isCut(name string) bool {
	return slices.Contains([]string{Partition, OneWay, Loss, Delay, Flap, Slow, Firewall}, name)
}

// span is a time in which a member did not answer.
type span struct{ from, to time.Time }

// absences are the times in which members were away for so long that their jobs are taken over.
type absences struct {
	cut bool // members were cut from each other

	awayMu sync.Mutex
	away   []span

	// under submitter.jobsMu
	downs   map[string]chan struct{} // of members that are down: closed when they serve again
	fallen  map[string]int           // how often a member was down
	deaths  int                      // times that a keeper of jobs with an heir was down
	slowest time.Duration            // until such a job was shown
	unshown []string                 // at most mostWrong
}

// excuses reports whether a result that was shown since then may be replaced: another member may have taken the job over
// meanwhile, while its keeper had results that its heir did not have.
func (a *absences) excuses(since time.Time) bool {
	a.awayMu.Lock()
	defer a.awayMu.Unlock()
	return a.cut || slices.ContainsFunc(a.away, func(s span) bool { return s.to.Add(backIn).After(since) })
}

// watchMembers notes when members do not answer, until ctx ends.
func (s *submitter) watchMembers(ctx context.Context) {
	for _, m := range s.ms {
		go func() {
			for last := time.Now(); ; {
				try, cancel := context.WithTimeout(ctx, napTime)
				_, err := m.cl.Version(try)
				cancel()
				now := time.Now()
				if now.Sub(last) >= goneIn {
					s.awayMu.Lock()
					s.away = append(s.away, span{last, now})
					s.awayMu.Unlock()
				}
				if err == nil {
					last = now
				}
				if wait(ctx, napPause) != nil {
					return
				}
			}
		}()
	}
}

// look asks the member that keeps a job for the job and its tasks, and notes what differs from what was shown before. An
// answer from a copy is not compared: the heir may be behind the keeper.
func (s *submitter) look(ctx context.Context, j *submitted) (jobs.Job, []jobs.Task, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	at := j.asked
	job, err := at.cl.Job(ctx, j.id)
	if err != nil {
		if j.accepted && fault.CodeOf(err) == fault.CodeJobNotFound && s.o.Fault != OldDisk { // see settle
			j.isWrong("its submission was answered, and at %s it is not there any more", at.id)
		}
		if !s.oldSouk {
			j.asked = s.ms[(slices.Index(s.ms, at)+1)%len(s.ms)]
		}
		return job, nil, err
	}
	if err := j.keptAt(s, at, &job); err != nil {
		return job, nil, err
	}
	tasks, err := at.cl.JobTasks(ctx, j.id)
	if err != nil {
		return job, nil, err
	}
	again, err := at.cl.Job(ctx, j.id)
	if err == nil {
		err = j.keptAt(s, at, &again)
	}
	if err == nil && claim(&again) != claim(&job) {
		err = fmt.Errorf("it was kept by %s, and is by %s", claim(&job), claim(&again))
	}
	if err == nil {
		j.compare(&job, tasks, time.Now(), &s.absences)
	}
	return job, tasks, err
}

// keptAt returns an error unless the member that was asked for a job keeps it. The next look asks its keeper.
func (j *submitted) keptAt(s *submitter, at *member, job *jobs.Job) error {
	if s.oldSouk {
		job.Member, job.Epoch = cluster.WorkerID(at.id), 0
	}
	j.keepers[string(job.Member)] = true
	if string(job.Member) == at.id {
		return nil
	}
	if i := slices.IndexFunc(s.ms, func(m *member) bool { return m.id == string(job.Member) }); i >= 0 {
		j.asked = s.ms[i]
	}
	return fmt.Errorf("%s says that it is kept by %s", at.id, claim(job))
}

// compare notes what differs from what was shown before. A job that has ended, and a task that has, change no more,
// unless another member keeps the job now and had to take it over without knowing all.
func (j *submitted) compare(job *jobs.Job, tasks []jobs.Task, when time.Time, a *absences) {
	changed := func(old sight) bool {
		if claim(&old.job) == claim(job) || !a.excuses(old.when) {
			return false
		}
		j.replaced++
		return true
	}
	if old := j.ended; old != nil && (job.State != old.job.State || job.Succeeded != old.job.Succeeded ||
		job.Failed != old.job.Failed || job.Cancelled != old.job.Cancelled) {
		if !changed(*old) {
			j.isWrong("it was shown %s with %d tasks succeeded, %d failed, %d cancelled, by %s, and later %s with %d, "+
				"%d, %d, by %s", old.job.State, old.job.Succeeded, old.job.Failed, old.job.Cancelled, claim(&old.job),
				job.State, job.Succeeded, job.Failed, job.Cancelled, claim(job))
		}
		j.ended = nil
	}
	if job.State.Final() {
		j.ended = &sight{job: *job, when: when}
	}
	now := map[int]jobs.Task{}
	for _, t := range tasks {
		if _, again := now[t.Index]; again {
			j.isWrong("its task %d is listed twice", t.Index)
		}
		now[t.Index] = t
	}
	for index, old := range j.shown {
		t, was := now[index], old.task
		same := t.State == was.State && t.Attempt == was.Attempt && t.Worker == was.Worker
		if was.State == string(jobs.Cancelled) { // that an attempt of it ran may become known later
			same = t.State == was.State
		}
		if !same && !changed(old) {
			j.isWrong("its task %d was shown %s in attempt %d at %q, by %s, and later %q in attempt %d at %q, by %s",
				index, was.State, was.Attempt, was.Worker, claim(&old.job), t.State, t.Attempt, t.Worker, claim(job))
		}
	}
	clear(j.shown)
	for index, t := range now {
		if isEnded(t) {
			j.shown[index] = sight{*job, t, when}
		}
	}
}

// agreed returns an error unless every member lists a job once, with the same keeper. A souk from before there were heirs
// lists its own jobs alone.
func (s *submitter) agreed(ctx context.Context, job *jobs.Job) error {
	if s.oldSouk {
		return nil
	}
	for _, m := range s.ms {
		list, err := m.cl.Jobs(ctx, app)
		if err != nil {
			return err
		}
		n := 0
		for i := range list {
			if x := &list[i]; x.Spec.Name == job.Spec.Name {
				if n++; x.ID != job.ID || claim(x) != claim(job) {
					return fmt.Errorf("%s lists it as %s, kept by %s, not by %s", m.id, x.ID, claim(x), claim(job))
				}
			}
		}
		if n != 1 {
			return fmt.Errorf("%s lists it %d times", m.id, n)
		}
	}
	return nil
}

// forgets reports whether the disk of a member that kept a job went back in time while a copy of it lived, so that what it
// had promised since cannot be judged. Where only the disk is an old one, the job's heir has what it lacks.
func (r *run) forgets(j *submitted) bool {
	if r.o.Fault == OldDisk {
		return false
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	for id := range r.forgotten {
		if j.keepers[id] {
			return true
		}
	}
	return false
}

// isDown is called before a member is killed or stopped. Until isUp the others must show the jobs that it keeps, if
// those have an heir that lives.
func (s *submitter) isDown(m *member) {
	if s == nil || s.o.Jobs == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), napTime)
	defer cancel()
	list, err := m.cl.Jobs(ctx, app)
	s.jobsMu.Lock()
	defer s.jobsMu.Unlock()
	if s.downs == nil {
		s.downs, s.fallen = map[string]chan struct{}{}, map[string]int{}
	}
	up := make(chan struct{})
	s.downs[m.id] = up
	s.fallen[m.id]++
	if err != nil {
		return
	}
	looked := 0
	for i := range list {
		x := &list[i]
		if string(x.Member) == m.id && x.Heir != "" && s.downs[string(x.Heir)] == nil && looked < showMost {
			looked++
			for _, o := range s.ms {
				if o != m && s.downs[o.id] == nil {
					s.load.wg.Go(func() { s.shows(o, x.ID, m.id, x.Heir, up) })
				}
			}
		}
	}
	if looked > 0 {
		s.deaths++
	}
}

// isUp is called when a member serves again.
func (s *submitter) isUp(id string) {
	if s == nil || s.o.Jobs == 0 {
		return
	}
	s.jobsMu.Lock()
	defer s.jobsMu.Unlock()
	if up := s.downs[id]; up != nil {
		close(up)
		delete(s.downs, id)
	}
}

// shows asks a member for a job again and again while the job's keeper is down: it may be without an answer for no
// longer than showIn. The check is void if the member or the heir goes down, too.
func (s *submitter) shows(at *member, job, keeper string, heir cluster.WorkerID, up <-chan struct{}) {
	count := func() int {
		s.jobsMu.Lock()
		defer s.jobsMu.Unlock()
		return s.fallen[at.id] + s.fallen[string(heir)]
	}
	whole := count()
	for serves := false; !serves; {
		select {
		case <-up:
			serves = true
		default:
		}
		begin := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), showGive)
		var why string
		err := fmt.Errorf("not asked")
		for err != nil && ctx.Err() == nil {
			if _, err = at.cl.Job(ctx, job); err != nil {
				why = err.Error()
				_ = wait(ctx, showPause/4) // it ends with ctx
			}
		}
		cancel()
		took := time.Since(begin)
		if count() != whole {
			return
		}
		s.jobsMu.Lock()
		s.slowest = max(s.slowest, took)
		if took > showIn && len(s.unshown) < mostWrong {
			s.unshown = append(s.unshown, fmt.Sprintf("job %s was kept by %s, which was down, and had a copy at %s: "+
				"%s showed it after %.1f s: %s", job, keeper, heir, at.id, took.Seconds(), why))
		}
		s.jobsMu.Unlock()
		if err != nil {
			return
		}
		_ = wait(context.Background(), showPause) // it has no deadline
	}
}
