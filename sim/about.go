package sim

// About says what a scheduler is and what of it is left out.
type About struct {
	Name   string `json:"name"`
	Paper  string `json:"paper"`            // and its sections, where they are known
	Number string `json:"number,omitempty"` // what N means in NAME:N
	Not    string `json:"left_out,omitempty"`
}

// abouts are the schedulers' papers, and what is left out, by name.
func abouts() map[string][2]string {
	const (
		sparrow  = "Sparrow (Ousterhout et al., SOSP'13), sections 3 and 4.1"
		sampling = "what Sparrow (Ousterhout et al., SOSP'13) is compared with, sections 3.1 to 3.3"
		flow     = "Firmament (Gog et al., OSDI'16), sections 4 and 5.2, "
		stays    = "tasks that run are not moved; inputs and how tasks disturb each other are drawn"
		eagleSim = "Hawk's central scheduler of long jobs (ATC'15, section 3.3) for all jobs, as in Eagle's simulator"
		shares   = "priorities and fair shares of users (4.2)"
		omega    = "the monolithic scheduler that Omega (Schwarzkopf et al., EuroSys'13) is compared with, "
	)
	return map[string][2]string{
		"market":         {"souk's own: the pull auction of core/auction (docs/decisions/0004)", ""},
		"random":         {sampling, ""},
		"per-task":       {sampling, ""},
		"batch":          {sampling, ""},
		"sparrow":        {sparrow, shares},
		"sparrow-cancel": {sparrow + ", with proactive cancellation (3.5)", shares},
		"hawk":           {"Hawk (Delgado et al., ATC'15), sections 3.3, 3.4 and 3.6", ""},
		"eagle":          {"Eagle (Delgado et al., SoCC'16), sections 4.1 to 4.3", ""},
		"pigeon":         {"Pigeon (Wang et al., SoCC'19), sections 3.1 and 3.2", ""},
		"tarcil": {"Tarcil (Delimitrou et al., SoCC'15)",
			"classification: how a job and a worker suit each other is known"},
		"apollo": {"Apollo (Boutin et al., OSDI'14), sections 3.2 to 3.5",
			"estimates of input and run time by server; tokens are equal parts"},
		"mercury": {"Mercury (Karanasos et al., ATC'15)",
			"killing of queueable containers, their quotas, the masters' own containers, locality"},
		"yarn": {"YARN (Vavilapalli et al., SoCC'13), sections 3.2 to 3.4",
			"the container of the master, preemption, locality"},
		"condor": {"HTCondor (Raman et al., HPDC'98, sections 3 and 4; Thain et al., 2005, section 4)",
			"requirements and ranks, preemption"},
		"firmament":  {flow + "spreading load", stays},
		"quincy":     {flow + "with the costs of Quincy (Isard et al., SOSP'09)", stays},
		"coco":       {flow + "with interference", stays},
		"clwl":       {eagleSim, ""},
		"dlwl":       {eagleSim + ", on queues read now and then", ""},
		"fifo":       {"one queue for all workers, first come first served, late binding", ""},
		"sjf":        {"one queue for all workers, least estimated work of a job first", ""},
		"srtf":       {"one queue for all workers, least remaining estimated work first", ""},
		"monolithic": {omega + "one path for all jobs", "scores of workers"},
		"multipath":  {omega + "a path for each class", "scores of workers"},
	}
}

// Abouts lists what each of Schedulers is, in the same order.
func Abouts() []About {
	of := abouts()
	var out []About
	for _, a := range allArchitectures() {
		out = append(out, About{Name: a.name, Paper: of[a.name][0], Number: a.param, Not: of[a.name][1]})
	}
	return out
}
