package defaults

import "github.com/soukhq/souk/fault"

// CodeComparison is the code of the errors of comparisons of schedulers.
const CodeComparison fault.Code = "comparison" // the comparison is malformed, or one runs, or none does
