package backfill

import "github.com/soukhq/souk/fault"

const codePolicy fault.Code = "backfill_policy" // no backfill policy has this name
