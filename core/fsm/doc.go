// Package fsm is a durable state-machine engine without I/O. An operation is a *run* of named *steps*; a step asks for
// one *effect*, which the owner of the engine carries out, and folds its result into the subject the run is about.
// Every transition is a Record for a journal, and what must be durable before anything else happens is marked Sync.
//
// # Vocabulary
//
// A *host* H owns the subjects (a worker's machines and volumes); steps are pure functions of the host. A *key* names a
// subject; there is at most one run per key at a time. A run goes forward through its steps; when a step fails for good
// it turns and *undoes* the steps it has reached, in reverse. A run that can do neither in time ends with its reason. A
// step that *insists* never fails for want of time: it is asked for again until it is done.
//
// Deadlines count the time in which the owner could act: Missed takes out what it could not, and Resume begins anew.
//
// # Durability
//
// The beginning of a run and its turn to undo are Sync: the owner commits them before it carries out the effects and
// answers of the same Out. The end of a step and of the run are not: a crash loses them at worst, and the step is done
// again. So every effect happens at least once, and must be idempotent; none happens before the run that wants it is
// durable. An answer may leave when the run has ended, although its end is not on disk yet: what it promises follows
// from what is, and a restart gets there by itself.
//
// # Worked example
//
//	Start(now, "stop", "m/1")      -> Records{run}, Sync, Effects{signal}
//	Result{signal, ok}             -> Records{run}              (step "exit" awaits: Do answered Await)
//	Notify(now, "m/1")             -> Do of "exit" is nil now: the run ends: Records{-run, history}, Finished
//
// A crash anywhere, then Restore(records) and Resume(now), asks for the effect of the current step again.
//
// Shape and vocabulary learn from flyd's engine as its authors describe it; what it lacks is here: a deadline for every
// step, a visible reason, compensation, and a replay that refuses a step it does not know instead of skipping it.
package fsm
