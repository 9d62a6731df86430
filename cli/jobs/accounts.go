package jobs

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/soukhq/souk/cli"
	"github.com/soukhq/souk/core/accounts"
)

// accountFlags say which accounts are reported.
type accountFlags struct {
	since string
	by    string
}

func (f *accountFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.since, "since", "",
		"what tasks used from this day (UTC) on, of all jobs: 7d, 36h, or 2026-01-31")
	cmd.Flags().StringVar(&f.by, "by", "",
		"with --since, add up by day, namespace or owner, or by several of them: day,owner")
}

// check refuses flags that do not go together.
func (f *accountFlags) check(refs []string) error {
	switch {
	case f.since == "" && f.by != "":
		return cli.Usagef("--by goes with --since, which says from which day on accounts are added up")
	case f.since != "" && len(refs) > 0:
		return cli.Usagef("--since reports what owners' tasks used: name no job with it")
	}
	return nil
}

// sinceDay reads how far back accounts go.
func sinceDay(text string, now time.Time) (accounts.Day, error) {
	if n, is := strings.CutSuffix(text, "d"); is {
		if days, err := strconv.Atoi(n); err == nil && days >= 0 && days <= accounts.KeptDays {
			return accounts.DayOf(now) - accounts.Day(days), nil
		}
	}
	if d, err := accounts.ParseDay(text); err == nil { // of UTC, as the accounts are
		return d, nil
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return accounts.DayOf(now.Add(-d)), nil
	}
	return 0, cli.Usagef("--since is a number of days such as 7d, at most %dd, or a day such as 2026-01-31, not %q",
		accounts.KeptDays, text)
}

// reportAccounts prints what tasks used, day by day or added up.
func reportAccounts(cmd *cobra.Command, c *cli.Env, f *accountFlags) error {
	since, err := sinceDay(f.since, time.Now())
	if err != nil {
		return err
	}
	by, err := accounts.ParseBy(cmp.Or(f.by, "owner"))
	if err != nil {
		return cli.Usagef("%v", err)
	}
	cl, err := c.Client()
	if err != nil {
		return err
	}
	list, err := cl.Accounts(cmd.Context(), since, cmp.Or(f.by, "owner"))
	if err != nil {
		return err
	}
	if c.JSON {
		cli.JSONList(c, list)
		return nil
	}
	if len(list) == 0 {
		c.Printf("no task of a job that you may see has ended since %s\n", since)
		return nil
	}
	printAccounts(c, list, by)
	return nil
}

func printAccounts(c *cli.Env, list []accounts.AccountLine, by accounts.By) {
	var columns []cli.Column
	for _, key := range []struct {
		shown  bool
		column cli.Column
	}{{by.Day, cli.Keep("DAY")}, {by.Namespace, cli.Keep("NAMESPACE").Cut(6)}, {by.Owner, cli.Keep("OWNER").Cut(6)}} {
		if key.shown {
			columns = append(columns, key.column)
		}
	}
	gpus := false
	for i := range list {
		gpus = gpus || list[i].GPUHours > 0
	}
	columns = append(columns, cli.Drop("JOBS", 3), cli.Drop("SUCCEEDED", 7), cli.Drop("FAILED", 5),
		cli.Drop("CANCELLED", 1), cli.Keep("CORE-HOURS"), cli.Drop("CPU-HOURS", 9), cli.Drop("GIB-HOURS", 4))
	if gpus {
		columns = append(columns, cli.Drop("GPU-HOURS", 8))
	}
	columns = append(columns, cli.Drop("WAITED", 2), cli.Drop("SHARE", 6))
	rows := make([][]cli.Cell, 0, len(list))
	for i := range list {
		l := &list[i]
		var row []cli.Cell
		add := func(text string) { row = append(row, cli.Cell{Text: text}) }
		if l.Day != nil {
			add(l.Day.String())
		}
		if by.Namespace {
			add(cmp.Or(l.Namespace, "-"))
		}
		if by.Owner {
			add(cmp.Or(l.Owner, "-"))
		}
		for _, n := range []int64{l.Jobs, l.Succeeded, l.Failed, l.Cancelled} {
			add(thousands(int(n)))
		}
		for _, h := range []float64{l.CoreHours, l.CPUHours, l.GiBHours} {
			add(hoursText(h))
		}
		if gpus {
			add(hoursText(l.GPUHours))
		}
		waited := "-"
		if l.WaitedMS != nil {
			waited = shortTime(*l.WaitedMS)
		}
		add(waited)
		add(percent(l.Share))
		rows = append(rows, row)
	}
	c.Table(columns, rows)
}
