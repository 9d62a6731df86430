package scheduler

import "github.com/soukhq/souk/fault"

// CodeScheduler says that no scheduler has this name, or it cannot do this.
const CodeScheduler fault.Code = "scheduler"
