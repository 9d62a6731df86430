package decision

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/soukhq/souk/core/market"
	"github.com/soukhq/souk/core/placement"
	"github.com/soukhq/souk/machine"
)

// reasonSentence returns the decision's outcome in one sentence.
func reasonSentence(d *Decision) string {
	if d.Winner == "" {
		switch d.Outcome {
		case Ambiguous:
			return "the worker asked does not answer, so the machine may exist there or not"
		case Broken:
			return "the request was given up before a worker had said yes or no"
		}
		if name := d.undefinedAttribute(); name != "" && d.Pending == Misconfigured {
			return fmt.Sprintf("no worker has the attribute %s that it requires", name)
		}
		if text := d.portInUse(); text != "" && d.Pending == Held {
			return text
		}
		return PendingText(d.Pending)
	}
	refused := d.countRefusals()
	won := d.consideredWorker(string(d.Winner))
	switch {
	case won == nil:
		return "chosen by hand"
	case d.Workers == 1:
		return "the only worker, and it has room"
	case d.Candidates > 0 && refused == 0:
		return fmt.Sprintf("best score %.2f of the %d candidates of an index of %d workers", won.Score, d.Candidates,
			d.Workers)
	case d.Fitting == 1 && refused == 0:
		return fmt.Sprintf("the only one of %d workers that fits", d.Workers)
	case refused > 0:
		return fmt.Sprintf("best score %.2f after %s", won.Score, countNoun(refused, "refusal"))
	}
	return fmt.Sprintf("best score %.2f of %d workers that fit (of %d)", won.Score, d.Fitting, d.Workers)
}

func (d *Decision) countRefusals() (n int) {
	for i := range d.Asks {
		if d.Asks[i].Result == market.ResultRefused {
			n++
		}
	}
	return n
}

// portInUse returns the sentence about the host port for which the asked workers refused; "" if there is none.
func (d *Decision) portInUse() (text string) {
	more := 0
	for i := range d.Asks {
		a := &d.Asks[i]
		at := slices.IndexFunc(a.Failing, func(c machine.Clause) bool { return c.Code == placement.CodePort })
		switch {
		case at < 0:
		case text == "":
			text = fmt.Sprintf("%s, at %s", placement.ClauseText(a.Failing[at]), a.Worker)
		default:
			more++
		}
	}
	if more > 0 {
		text += fmt.Sprintf(", and it is taken at %s", countNoun(more, "other worker"))
	}
	return text
}

// undefinedAttribute returns the attribute that the request requires and no worker has; "" for none.
func (d *Decision) undefinedAttribute() string {
	for i := range d.Groups {
		for _, c := range d.Groups[i].Failing {
			if name, is := strings.CutPrefix(c.Had, placement.Undefined); is && c.Code == placement.CodeRequirement {
				return name
			}
		}
	}
	return ""
}

// isByEviction reports whether the winner takes the machine only by evicting others.
func (d *Decision) isByEviction() bool {
	n := len(d.Asks)
	return d.Winner != "" && n > 0 && d.Asks[n-1].Evict
}

func (d *Decision) consideredWorker(worker string) *Considered {
	for i := range d.Considered {
		if d.Considered[i].Worker == worker {
			return &d.Considered[i]
		}
	}
	return nil
}

// Explain describes a decision in plain sentences: the outcome, why this worker and not the next best, which workers
// could not take it, which were asked and refused, and how old the records were. A decision without an ID is a
// prediction.
func Explain(d *Decision) []string {
	var out []string
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	was := "was"
	if d.ID == "" {
		was = "would be"
	}
	switch d.Outcome {
	case Placed:
		say("It %s placed on %s by policy %s: %s.", was, d.Winner, policyText(d), d.Reason)
	case Ambiguous:
		say("It is not known whether it was placed: %s.", d.Reason)
	case Refused:
		if d.Own != nil {
			say("It was not %s: %s.", ownText(d.Why), d.Reason)
			break
		}
		say("No worker takes it: %s.", d.Reason)
	default:
		say("It was not placed: %s.", d.Reason)
	}
	switch d.Why {
	case Warm:
		say("Nobody asked for it by name: its service keeps a spare for a request to come (services[].warm).")
	case Replica:
		say("Nobody asked for it by name: its service is to have it (souk status %s).", d.Request.App)
	case Another:
		say("Nobody asked for it by name: requests had it made, as its service allows (services[].create_up_to).")
	}
	if d.Request.Scheduling.Lent {
		say("Namespace %s could not pay for it, so it asked on lent terms: it costs nothing, has only room that is "+
			"idle, and is the first to be evicted.", d.Request.Namespace)
	}
	if d.Winner != "" {
		out = append(out, whyNotNext(d)...)
	}
	for i := range d.Groups {
		out = append(out, groupText(d, &d.Groups[i]))
	}
	for i := range d.Asks {
		if a := &d.Asks[i]; a.Result == market.ResultRefused && d.Own == nil {
			say("%s was asked and said no%s%s.", a.Worker, refusalSentence(a), healedText(a))
		}
	}
	for _, e := range d.Evictions {
		say("%s of app %s was evicted from %s for it: %s, by the rule %s.", e.Machine, e.App, e.Worker, e.Cause, e.Rule)
	}
	if d.Shadow != nil {
		where := d.Shadow.Worker
		if where == "" {
			where = "no worker"
		}
		say("The policy %s, which only watches, would have chosen %s.", d.Shadow.Policy, where)
	}
	if age := oldestRecordAge(d); age >= 1000 {
		say("What the workers had last said of themselves was up to %s old; they say it when something changes.",
			(time.Duration(age) * time.Millisecond).Round(100*time.Millisecond))
	}
	return out
}

// ownText describes what a machine that already has a worker asked for.
func ownText(why string) string {
	switch why {
	case Update:
		return "updated"
	case Restart:
		return "restarted"
	}
	return "started"
}

func policyText(d *Decision) string {
	if d.Policy.Version == 0 {
		return d.Policy.Name
	}
	return fmt.Sprintf("%s, version %d", d.Policy.Name, d.Policy.Version)
}

func oldestRecordAge(d *Decision) (age float64) {
	for i := range d.Considered {
		age = max(age, d.Considered[i].Age)
	}
	return age
}

func refusalSentence(a *Ask) string {
	if len(a.Failing) == 0 {
		return ""
	}
	parts := make([]string, len(a.Failing))
	for i, f := range a.Failing {
		parts[i] = placement.ClauseText(f)
	}
	return " (" + strings.Join(parts, "; ") + ")"
}

func healedText(a *Ask) string {
	if a.Healed == nil || *a.Healed == a.Ref {
		return ""
	}
	if a.Healed.Incarnation != a.Incarnation {
		return ", having begun anew since the view was read"
	}
	if n := a.Healed.Version - a.Version; a.Healed.Version > a.Version {
		return ": it had changed " + countNoun(int(n), "time") + " since the view was read"
	}
	return ""
}

// whyNotNext compares the winner with the best of the others that fit.
func whyNotNext(d *Decision) []string {
	won := d.consideredWorker(string(d.Winner))
	var next *Considered
	for i := range d.Considered {
		c := &d.Considered[i]
		if c.Fits && c.Worker != string(d.Winner) && !d.wasRefused(c.Worker) && (next == nil || c.Score > next.Score) {
			next = c
		}
	}
	if won == nil || next == nil || !won.Fits {
		return nil
	}
	less := won.Score - next.Score
	switch {
	case less == 0:
		return []string{fmt.Sprintf("%s would have been as good (%.3f): among equals the machine's id decides.",
			next.Worker, next.Score)}
	case less < 0:
		return []string{fmt.Sprintf("%s scored more (%.3f against %.3f), but %s was drawn among the best, as the "+
			"policy says.",
			next.Worker, next.Score, won.Score, won.Worker)}
	}
	name, by := decisiveTerm(won, next)
	return []string{fmt.Sprintf("Next best was %s with %.3f, %.3f less: the term %s made the difference (%.3f here, "+
		"%.3f there%s).",
		next.Worker, next.Score, less, name, termOf(won, name), termOf(next, name), opposingTerm(won, next, name, by,
			less))}
}

func (d *Decision) wasRefused(worker string) bool {
	for i := range d.Asks {
		if string(d.Asks[i].Worker) == worker && d.Asks[i].Result == market.ResultRefused {
			return true
		}
	}
	return false
}

// decisiveTerm returns the score term in which won leads next the most.
func decisiveTerm(won, next *Considered) (name string, by float64) {
	by = math.Inf(-1)
	for _, t := range termNames(won.Terms, next.Terms) {
		if diff := termOf(won, t) - termOf(next, t); diff > by {
			name, by = t, diff
		}
	}
	return name, by
}

// opposingTerm names the term that favours next the most; "" for none.
func opposingTerm(won, next *Considered, name string, by, less float64) string {
	if by <= less {
		return ""
	}
	worst, most := "", 0.0
	for _, t := range termNames(won.Terms, next.Terms) {
		if diff := termOf(next, t) - termOf(won, t); t != name && diff > most {
			worst, most = t, diff
		}
	}
	if worst == "" {
		return ""
	}
	return fmt.Sprintf("; %s spoke for %s by %.3f", worst, next.Worker, most)
}

// termOf returns one term of a candidate's score, 0 if it has none of that name.
func termOf(c *Considered, name string) float64 {
	v, _ := c.Terms.Get(name)
	return v
}

func termNames(a, b machine.Terms) []string {
	all := map[string]bool{}
	for _, t := range slices.Concat(a, b) {
		all[t.Name] = true
	}
	return slices.Sorted(maps.Keys(all))
}

// groupText describes the workers that fail on the same clauses, and what would help.
func groupText(d *Decision, g *Group) string {
	who := fmt.Sprintf("%d of %d workers could not", g.Count, d.Workers)
	if g.Count == 1 {
		who = string(g.Example) + " could not"
	}
	if d.isByEviction() {
		who = "Without an eviction " + who
	}
	if g.Codes[0] == Other {
		return who + ", for other reasons again."
	}
	parts := make([]string, len(g.Failing))
	for i, f := range g.Failing {
		parts[i] = Sentence(f)
	}
	example := ""
	if g.Count > 1 {
		example = " (such as " + string(g.Example) + ")"
	}
	return who + example + ": " + strings.Join(parts, "; ") + "."
}

// countNoun prints a number with its noun: "1 refusal", "2 refusals".
func countNoun(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
