package conformance_test

import (
	"strings"
	"testing"

	fly "github.com/superfly/fly-go"
)

func (s *market) volume(t *testing.T, app string, size int) *fly.Volume {
	t.Helper()
	v, err := s.CreateVolume(t.Context(), app, fly.CreateVolumeRequest{Name: "data", Region: "local", SizeGb: &size,
		Encrypted: ptr(false)})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func (s *market) mounting(v *fly.Volume) fly.LaunchMachineInput {
	c := s.sleeper()
	c.Mounts = []fly.MachineMount{{Volume: v.ID, Path: "/data"}}
	return fly.LaunchMachineInput{Config: c}
}

func volumeTests() tests {
	return tests{
		"life": func(t *testing.T, s *market, app string) {
			empty, err := s.GetVolumes(t.Context(), app)
			if err != nil || empty == nil || len(empty) != 0 {
				t.Fatal(empty, err)
			}
			v := s.volume(t, app, 1)
			if !strings.HasPrefix(v.ID, "vol_") || v.State != "created" || v.Region != "local" || v.SizeGb != 1 ||
				v.CreatedAt.IsZero() || v.IsAttached() {
				t.Errorf("the volume is %+v", v)
			}
			list, err := s.GetVolumes(t.Context(), app)
			if err != nil || len(list) != 1 || list[0].ID != v.ID {
				t.Error(list, err)
			}
			u, err := s.UpdateVolume(t.Context(), app, v.ID, fly.UpdateVolumeRequest{SnapshotRetention: ptr(9),
				AutoBackupEnabled: ptr(false)})
			if err != nil || u.SnapshotRetention != 9 || u.AutoBackupEnabled {
				t.Error(u, err)
			}
			e, restart, err := s.ExtendVolume(t.Context(), app, v.ID, 2)
			if err != nil || e.SizeGb != 2 || restart {
				t.Error(e, restart, err)
			}
			_, _, err = s.ExtendVolume(t.Context(), app, v.ID, 1)
			refused(t, err, 400, 412, 422)
			if err := s.CreateVolumeSnapshot(t.Context(), app, v.ID); err != nil {
				t.Error(err)
			}
			snaps, err := s.GetVolumeSnapshots(t.Context(), app, v.ID)
			if err != nil || len(snaps) != 1 || snaps[0].ID == "" {
				t.Error(snaps, err)
			}
			if _, err := s.DeleteVolume(t.Context(), app, v.ID); err != nil {
				t.Fatal(err)
			}
			_, err = s.GetVolume(t.Context(), app, v.ID)
			refused(t, err, 404)
		},
		"mount": func(t *testing.T, s *market, app string) {
			v := s.volume(t, app, 1)
			m := s.launch(t, app, s.mounting(v))
			got, err := s.GetVolume(t.Context(), app, v.ID)
			if err != nil || got.AttachedMachine == nil || *got.AttachedMachine != m.ID || m.Region != v.Region {
				t.Fatal(got, err)
			}
			_, err = s.Launch(t.Context(), app, s.mounting(v))
			refused(t, err, 409, 412, 422)
			_, err = s.DeleteVolume(t.Context(), app, v.ID)
			refused(t, err, 409, 412, 422, 400)
			if err := s.Destroy(t.Context(), app, fly.RemoveMachineInput{ID: m.ID, Kill: true}, ""); err != nil {
				t.Fatal(err)
			}
			s.await(t, app, m.ID, "destroyed")
			if got, err = s.GetVolume(t.Context(), app, v.ID); err != nil || got.IsAttached() {
				t.Fatal(got, err)
			}
			if _, err := s.DeleteVolume(t.Context(), app, v.ID); err != nil {
				t.Fatal(err)
			}
		},
		"outlives its machine": func(t *testing.T, s *market, app string) {
			v := s.volume(t, app, 1)
			in := s.mounting(v)
			in.Config.Init.Exec = []string{"/bin/sh", "-c",
				"test -e data/mark || echo here > data/mark; trap 'exit 0' INT TERM; while :; do /bin/sleep 0.1; done"}
			m := s.launch(t, app, in)
			if _, err := s.Exec(t.Context(), app, m.ID, &fly.MachineExecRequest{
				Cmd: `/bin/sh -c "until test -e data/mark; do /bin/sleep 0.01; done"`}); err != nil {
				t.Fatal(err)
			}
			if err := s.Destroy(t.Context(), app, fly.RemoveMachineInput{ID: m.ID, Kill: true}, ""); err != nil {
				t.Fatal(err)
			}
			s.await(t, app, m.ID, "destroyed")
			next := s.launch(t, app, s.mounting(v))
			out, err := s.Exec(t.Context(), app, next.ID, &fly.MachineExecRequest{Cmd: "/bin/cat data/mark"})
			if err != nil || out.StdOut != "here\n" {
				t.Error(out, err)
			}
		},
		"fork": func(t *testing.T, s *market, app string) {
			v := s.volume(t, app, 1)
			f, err := s.CreateVolume(t.Context(), app, fly.CreateVolumeRequest{Name: "copy", SourceVolumeID: &v.ID,
				SizeGb: ptr(1)})
			if err != nil || f.ID == v.ID {
				t.Fatal(f, err)
			}
		},
		"its worker is full": func(t *testing.T, s *market, app string) {
			v := s.volume(t, app, 1)
			in := s.mounting(v)
			in.Config.Guest = hugeGuest()
			_, err := s.Launch(t.Context(), app, in)
			mustContain(t, refused(t, err, 412), `"status":"volume_placement_capacity"`,
				"insufficient resources to create new machine with existing volume '"+v.ID+"'")
		},
		"encrypted": func(t *testing.T, s *market, app string) {
			_, err := s.CreateVolume(t.Context(), app, fly.CreateVolumeRequest{Name: "data", Encrypted: ptr(true)})
			mustContain(t, refused(t, err, 400), "encrypted is not supported")
		},
		"no worker has room": func(t *testing.T, s *market, app string) {
			_, err := s.CreateVolume(t.Context(), app, fly.CreateVolumeRequest{Name: "huge", SizeGb: ptr(90000)})
			mustContain(t, refused(t, err, 409, 400), "aborted: no capacity")
		},
		"unknown": func(t *testing.T, s *market, app string) {
			_, err := s.GetVolume(t.Context(), app, "vol_none")
			refused(t, err, 404)
			_, err = s.DeleteVolume(t.Context(), app, "vol_none")
			refused(t, err, 404)
			_, _, err = s.ExtendVolume(t.Context(), app, "vol_none", 5)
			refused(t, err, 404)
		},
	}
}
