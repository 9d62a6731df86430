package sbatch

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Minutes reads a time limit as sbatch does, rounded up to a minute: MINUTES, MINUTES:SECONDS, HOURS:MINUTES:SECONDS,
// DAYS-HOURS, DAYS-HOURS:MINUTES and DAYS-HOURS:MINUTES:SECONDS. 0 is no limit, as are "infinite" and "unlimited".
func Minutes(text string) (time.Duration, error) {
	if t := strings.ToLower(text); t == "infinite" || t == "unlimited" {
		return 0, nil
	}
	days, rest, withDays := strings.Cut(text, "-")
	if !withDays {
		days, rest = "0", text
	}
	parts := strings.Split(rest, ":")
	units := map[int][]time.Duration{1: {time.Minute}, 2: {time.Minute, time.Second},
		3: {time.Hour, time.Minute, time.Second}}[len(parts)]
	if withDays {
		units = []time.Duration{time.Hour, time.Minute, time.Second}
	}
	bad := fmt.Errorf("a time limit is written as 90, 1:30:00 or 1-12, not %.40q", text)
	n, err := strconv.Atoi(days)
	if err != nil || n < 0 || n > 1e4 || len(parts) > len(units) {
		return 0, bad
	}
	d := time.Duration(n) * 24 * time.Hour
	for i, p := range parts {
		n, err := strconv.Atoi(p)
		if err != nil || n < 0 || n > 1e7 {
			return 0, bad
		}
		d += time.Duration(n) * units[i]
	}
	return (d + time.Minute - 1) / time.Minute * time.Minute, nil
}

// Megabytes reads an amount of memory as sbatch does: a whole number of MiB, or of K, M, G or T, rounded up to a MiB.
func Megabytes(text string) (int, error) {
	digits, unit := text, byte('M')
	if n := len(text); n > 0 && (text[n-1] < '0' || text[n-1] > '9') {
		digits, unit = text[:n-1], text[n-1]&^0x20
	}
	n, err := strconv.ParseInt(digits, 10, 40)
	kib := map[byte]int64{'K': 1, 'M': 1 << 10, 'G': 1 << 20, 'T': 1 << 30}[unit]
	if err != nil || n < 0 || kib == 0 {
		return 0, fmt.Errorf("memory is a whole number of MB, or of K, M, G or T, as 4G, not %.40q", text)
	}
	return int((n*kib + 1023) / 1024), nil
}

// GPUs reads the value of --gpus, COUNT or KIND:COUNT, or that of --gres, of which it knows gpu, gpu:COUNT and
// gpu:KIND:COUNT.
func GPUs(text string, gres bool) (kind string, count int, err error) {
	bad := fmt.Errorf("GPUs are written as 2 or a100:2, not %.40q", text)
	if gres {
		bad = fmt.Errorf("of --gres only gpu:2 and gpu:a100:2 are known here, not %.40q", text)
		rest, is := strings.CutPrefix(text, "gpu")
		if !is {
			return "", 0, bad
		}
		if rest == "" {
			return "", 1, nil
		}
		if text, is = strings.CutPrefix(rest, ":"); !is || text == "" {
			return "", 0, bad
		}
	}
	digits := text
	if i := strings.LastIndexByte(text, ':'); i >= 0 {
		kind, digits = text[:i], text[i+1:]
	} else if gres {
		if _, err := strconv.Atoi(text); err != nil {
			return text, 1, nil // gpu:KIND
		}
	}
	if count, err = strconv.Atoi(digits); err != nil || count < 0 || strings.ContainsAny(kind, ":,") {
		return "", 0, bad
	}
	return kind, count, nil
}

// Dependencies reads the value of --dependency, all of which must be met, as KIND:JOB of souk: afterok, afterany,
// afternotok and aftercorr.
func Dependencies(text string) (out []string, err error) {
	if strings.Contains(text, "?") {
		return nil, fmt.Errorf("a job waits for all jobs that it names, and not for one of several (?), as in "+
			"%.80q", text)
	}
	kinds := map[string]string{"afterok": "ok", "afterany": "any", "afternotok": "fail", "aftercorr": "corr"}
	for part := range strings.SplitSeq(text, ",") {
		word, list, _ := strings.Cut(part, ":")
		kind := kinds[word]
		if kind == "" || list == "" {
			return nil, fmt.Errorf("a job waits for others as afterok:JOB, afterany, afternotok or aftercorr, not as "+
				"%.80q",
				part)
		}
		for job := range strings.SplitSeq(list, ":") {
			if job == "" || strings.ContainsAny(job, "+_") {
				return nil, fmt.Errorf("%s names a job by its id or name, alone, not as %.40q", word, job)
			}
			out = append(out, kind+":"+job)
		}
	}
	return out, nil
}

// Begin reads the value of --begin or --deadline as souk's: now+COUNT[UNIT], or what souk reads itself.
func Begin(text string) (string, error) {
	rest, is := strings.CutPrefix(text, "now")
	if !is {
		return text, nil
	}
	if rest == "" {
		return "0s", nil
	}
	digits := strings.TrimRight(rest, "abcdefghijklmnopqrstuvwxyz")
	n, err := strconv.Atoi(strings.TrimPrefix(digits, "+"))
	unit, ok := map[string]time.Duration{"": time.Second, "second": time.Second, "seconds": time.Second,
		"minute": time.Minute, "minutes": time.Minute, "hour": time.Hour, "hours": time.Hour, "day": 24 * time.Hour,
		"days": 24 * time.Hour, "week": 7 * 24 * time.Hour, "weeks": 7 * 24 * time.Hour}[rest[len(digits):]]
	if err != nil || !ok || n < 0 || n > 1e7 || !strings.HasPrefix(rest, "+") {
		return "", fmt.Errorf("a time is written as now+2hours, 16:00 or 2026-01-31T16:00, not %.40q", text)
	}
	return (time.Duration(n) * unit).String(), nil
}
