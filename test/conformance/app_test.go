package conformance_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	fly "github.com/superfly/fly-go"
	"github.com/superfly/fly-go/flaps"
)

type tests = map[string]func(*testing.T, *market, string)

func appTests() tests {
	return tests{
		"create get list and delete": func(t *testing.T, s *market, app string) {
			a, err := s.CreateApp(t.Context(), flaps.CreateAppRequest{Name: app + "2", Org: "acme"})
			if err != nil || a.ID == "" {
				t.Fatal(a, err)
			}
			a, err = s.GetApp(t.Context(), app+"2")
			if err != nil || a.Name != app+"2" || a.Organization.Slug != "acme" || a.Status == "" {
				t.Fatal(a, err)
			}
			list, err := s.ListApps(t.Context(), flaps.ListAppsRequest{OrgSlug: "acme"})
			if err != nil || !slices.ContainsFunc(list, func(a flaps.App) bool { return a.Name == app+"2" }) {
				t.Fatal(list, err)
			}
			if err := s.WaitForApp(t.Context(), app+"2"); err != nil {
				t.Fatal(err)
			}
			if err := s.DeleteApp(t.Context(), app+"2"); err != nil {
				t.Fatal(err)
			}
			_, err = s.GetApp(t.Context(), app+"2")
			refused(t, err, 404)
		},
		"second create is refused": func(t *testing.T, s *market, app string) {
			_, err := s.CreateApp(t.Context(), flaps.CreateAppRequest{Name: app})
			refused(t, err, 422)
			if status := flaps.GetErrorStatusCode(err); status == nil || *status != "name_taken" {
				t.Errorf("the status is %v, want name_taken", status)
			}
		},
		"unknown is 404": func(t *testing.T, s *market, _ string) {
			_, err := s.GetApp(t.Context(), "no-such-app")
			if body := refused(t, err, 404); !strings.HasPrefix(body, `{"error":"app not found"`) {
				t.Error(body)
			}
		},
		"delete takes machines and volumes": func(t *testing.T, s *market, app string) {
			v := s.volume(t, app, 1)
			c := s.sleeper()
			c.Mounts = []fly.MachineMount{{Volume: v.ID, Path: "/data"}}
			s.launch(t, app, fly.LaunchMachineInput{Config: c})
			s.launch(t, app, fly.LaunchMachineInput{Config: s.sleeper()})
			if err := s.DeleteApp(t.Context(), app); err != nil {
				t.Fatal(err)
			}
			_, err := s.List(t.Context(), app, "")
			refused(t, err, 404)
		},
		"no addresses": func(t *testing.T, s *market, app string) {
			ips, err := s.GetIPAssignments(t.Context(), app)
			if err != nil || ips.IPs == nil || len(ips.IPs) != 0 {
				t.Fatal(ips, err)
			}
			_, err = s.AssignIP(t.Context(), app, flaps.AssignIPRequest{Type: "shared_v4"})
			refused(t, err, 501)
		},
		"what is not served says so": func(t *testing.T, s *market, app string) {
			_, err := s.ListSecretKeys(t.Context(), app, nil)
			refused(t, err, 501)
			_, err = s.GenerateSecretKey(t.Context(), app, "k", fly.SECRETKEY_TYPE_HS256)
			refused(t, err, 501)
			_, err = s.ListCertificates(t.Context(), app, nil)
			refused(t, err, 501)
		},
	}
}

func platformTests() tests {
	small := &fly.MachineGuest{CPUKind: "shared", CPUs: 1, MemoryMB: 256}
	return tests{
		"regions": func(t *testing.T, s *market, _ string) {
			r, err := s.GetRegions(t.Context())
			if err != nil || len(r.Regions) == 0 || r.Regions[0].Code != "local" || r.Nearest != "local" {
				t.Fatal(r, err)
			}
		},
		"placements": func(t *testing.T, s *market, _ string) {
			p, err := s.GetPlacements(t.Context(), &flaps.GetPlacementsRequest{ComputeRequirements: small,
				Region: "local", Count: 1, Org: "personal"})
			if err != nil || len(p) == 0 || p[0].Region != "local" || p[0].Count != 1 {
				t.Fatal(p, err)
			}
			p, err = s.GetPlacements(t.Context(), &flaps.GetPlacementsRequest{ComputeRequirements: small,
				Org: "personal"})
			if err != nil || len(p) == 0 || p[0].Count < 2 {
				t.Fatal("count 0 asks how many there could be:", p, err)
			}
			p, err = s.GetPlacements(t.Context(), &flaps.GetPlacementsRequest{ComputeRequirements: hugeGuest(),
				Count: 1})
			if err != nil || len(p) != 0 {
				t.Fatal("there is no place for what is larger than any worker:", p, err)
			}
		},
	}
}

func secretTests() tests {
	return tests{
		"set list and delete": func(t *testing.T, s *market, app string) {
			set, err := s.SetAppSecret(t.Context(), app, "PEPPER", "very secret")
			if err != nil || set.Name != "PEPPER" || set.Digest == "" || set.Version == 0 {
				t.Fatal(set, err)
			}
			list, err := s.ListAppSecrets(t.Context(), app, &set.Version, false)
			if err != nil || len(list) != 1 || list[0].Value != nil || list[0].Digest != set.Digest {
				t.Fatal(list, err)
			}
			for _, at := range []*string{list[0].UpdatedAt, list[0].CreatedAt} { // else it is staged for ever
				if at == nil {
					t.Fatalf("when the secret was set is not told: %+v", list[0])
				}
				if when, err := time.Parse(time.RFC3339, *at); err != nil || time.Since(when) > time.Minute {
					t.Errorf("the secret is of %q: %v", *at, err)
				}
			}
			one, err := s.GetAppSecrets(t.Context(), app, "PEPPER", nil, false)
			if err != nil || one.Value != nil {
				t.Fatal(one, err)
			}
			_, err = s.ListAppSecrets(t.Context(), app, nil, true)
			refused(t, err, 403)
			del, err := s.DeleteAppSecret(t.Context(), app, "PEPPER")
			if err != nil || del.Version <= set.Version {
				t.Fatal(del, err)
			}
			if list, err = s.ListAppSecrets(t.Context(), app, nil, false); err != nil || len(list) != 0 {
				t.Fatal(list, err)
			}
		},
		"reach the process": func(t *testing.T, s *market, app string) {
			salt := "fleur de sel"
			up, err := s.UpdateAppSecrets(t.Context(), app, map[string]*string{"SALT": &salt, "GONE": nil})
			if err != nil || len(up.Secrets) != 1 {
				t.Fatal(up, err)
			}
			m := s.launch(t, app, fly.LaunchMachineInput{Config: s.sleeper(), MinSecretsVersion: &up.Version})
			out, err := s.Exec(t.Context(), app, m.ID, &fly.MachineExecRequest{Cmd: `/bin/sh -c 'echo $SALT'`})
			if err != nil || out.StdOut != salt+"\n" {
				t.Fatal(out, err)
			}
			later := up.Version + 1
			_, err = s.Launch(t.Context(), app, fly.LaunchMachineInput{Config: s.sleeper(), MinSecretsVersion: &later})
			refused(t, err, 412)
			skipped := s.launch(t, app, fly.LaunchMachineInput{Config: s.sleeper(), SkipSecrets: true})
			out, err = s.Exec(t.Context(), app, skipped.ID, &fly.MachineExecRequest{Cmd: `/bin/sh -c 'echo "<$SALT>"'`})
			if err != nil || out.StdOut != "<>\n" {
				t.Fatal("skip_secrets:", out, err)
			}
		},
		"of an unknown app": func(t *testing.T, s *market, _ string) {
			_, err := s.SetAppSecret(t.Context(), "no-such-app", "A", "b")
			refused(t, err, 404)
			_, err = s.GetAppSecrets(t.Context(), "no-such-app", "A", nil, false)
			if !errors.Is(err, flaps.ErrFlapsNotFound) {
				t.Fatal(err)
			}
		},
	}
}
