package bench

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/soukhq/souk/bench/live"
	"github.com/soukhq/souk/fault"
)

// Peers run the same tasks as souk, as many at once, in turns with it. Those that are not installed are left out.
const (
	peerParallel = "parallel" // GNU parallel
	peerSlurm    = "slurm"    // an array of Slurm, one slurmctld and one slurmd, without authentication or accounting
)

// slurmTasks is how long Slurm's arrays are: they take far longer than those of others.
const slurmTasks = 300

// jobPeer runs tasks.
type jobPeer struct {
	name  string
	tasks int // the longest array; 0: any
	run   func(ctx context.Context, n, atOnce int, command []string) error
}

// findPeers starts the peers that are installed; end ends them.
func findPeers(ctx context.Context, dir string, atOnce int, to Reporter) (peers []jobPeer, end func(), err error) {
	end = func() {}
	if _, err := exec.LookPath("parallel"); err == nil {
		peers = append(peers, jobPeer{peerParallel, 0, runParallel})
	} else {
		fmt.Fprintln(to.Stderr(), "GNU parallel is not installed, so it is left out")
	}
	if _, err := exec.LookPath("slurmctld"); err != nil {
		fmt.Fprintln(to.Stderr(), "Slurm (slurmctld, slurmd, sbatch) is not installed, so it is left out")
		return peers, end, nil
	}
	if os.Geteuid() != 0 {
		fmt.Fprintln(to.Stderr(), "Slurm is left out, for its slurmd needs root here")
		return peers, end, nil
	}
	defer to.Working("starting Slurm")()
	s, err := startSlurm(ctx, filepath.Join(dir, "slurm"), atOnce)
	if err != nil {
		return nil, nil, wrapFailure(err, "Slurm did not start")
	}
	return append(peers, jobPeer{peerSlurm, slurmTasks, s.runArray}), s.end, nil
}

// runParallel runs tasks with GNU parallel, which reads one line for each.
func runParallel(ctx context.Context, n, atOnce int, command []string) error {
	cmd := exec.CommandContext(ctx, "parallel", append([]string{"-j", fmt.Sprint(atOnce), "-N0", "--no-notice"},
		command...)...)
	cmd.Stdin = strings.NewReader(strings.Repeat("x\n", n))
	return runQuietly(cmd)
}

// slurm is a Slurm of this host with one node.
type slurm struct {
	dir     string
	daemons []*exec.Cmd
}

// startSlurm starts Slurm's daemons, with the shortest scheduling intervals that Slurm takes, and waits until its node is
// idle.
func startSlurm(ctx context.Context, dir string, cpus int) (s *slurm, err error) {
	var ports [2]int
	for i := range ports {
		if ports[i], err = live.FreePort(); err != nil {
			return nil, err
		}
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	host, _, _ = strings.Cut(host, ".")
	if err := os.Mkdir(dir, 0o755); err != nil { //nolint:gosec // tasks start in it
		return nil, err
	}
	s = &slurm{dir: dir}
	text := strings.NewReplacer("DIR", dir, "HOST", host, "CTLD", fmt.Sprint(ports[0]), "NODE", fmt.Sprint(ports[1]),
		"CPUS", fmt.Sprint(cpus)).Replace(slurmConf)
	if err := os.WriteFile(s.conf(), []byte(text), 0o644); err != nil { //nolint:gosec // no secret
		return nil, err
	}
	for _, argv := range [][]string{{"slurmctld", "-D", "-f", s.conf()}, {"slurmd", "-D", "-N", "n1", "-f", s.conf()}} {
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Dir = dir
		if err := cmd.Start(); err != nil {
			s.end()
			return nil, err
		}
		s.daemons = append(s.daemons, cmd)
	}
	up, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	err = live.Until(up, func() bool {
		out, err := s.command(up, "sinfo", "-h", "-o", "%t").Output()
		return err == nil && strings.TrimSpace(string(out)) == "idle"
	})
	if err != nil {
		s.end()
		return nil, err
	}
	return s, nil
}

func (s *slurm) conf() string { return filepath.Join(s.dir, "slurm.conf") }

func (s *slurm) command(ctx context.Context, argv ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = s.dir, append(os.Environ(), "SLURM_CONF="+s.conf())
	return cmd
}

// runArray submits an array and waits for its end, which sbatch notices within 2 s.
func (s *slurm) runArray(ctx context.Context, n, _ int, command []string) error {
	return runQuietly(s.command(ctx, "sbatch", "--wait", "-o", "/dev/null", fmt.Sprint("--array=1-", n), "--wrap",
		"exec "+strings.Join(command, " ")))
}

func (s *slurm) end() {
	for _, d := range s.daemons {
		_ = d.Process.Signal(syscall.SIGTERM)
	}
	for _, d := range s.daemons {
		t := time.AfterFunc(10*time.Second, func() { _ = d.Process.Kill() })
		_ = d.Wait()
		t.Stop()
	}
}

func runQuietly(cmd *exec.Cmd) error {
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Run(); err != nil {
		return fault.Wrap(err, fault.Internal, fault.CodeBench, "%s failed: %s", cmd.Args[0],
			strings.TrimSpace(said.String()))
	}
	return nil
}

const slurmConf = `ClusterName=bench
SlurmctldHost=HOST(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
SlurmctldPort=CTLD
SlurmdPort=NODE
StateSaveLocation=DIR/state
SlurmdSpoolDir=DIR/spool
SlurmctldPidFile=DIR/slurmctld.pid
SlurmdPidFile=DIR/slurmd.pid
SlurmctldLogFile=DIR/slurmctld.log
SlurmdLogFile=DIR/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SchedulerParameters=sched_min_interval=0,batch_sched_delay=0,sched_interval=1,default_queue_depth=10000
MpiDefault=none
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
NodeName=n1 NodeHostname=HOST NodeAddr=127.0.0.1 CPUs=CPUS RealMemory=1000 State=UNKNOWN
PartitionName=main Nodes=n1 Default=YES MaxTime=INFINITE State=UP
`
