#!/bin/bash
# slurm.sh - docs/howto-slurm.md under a real Slurm: a controller and two nodes of it on this machine, with a munge of
# their own. It takes root, slurmctld, slurmd and munged. The nodes' names are known, and reached at an address that is no
# loopback one, in this script's own namespaces alone.
root=$PWD
if [ -z "${SLURM_TEST_SPACE:-}" ] && unshare -mn true 2> /dev/null; then
    SLURM_TEST_SPACE=1 exec unshare -mn "$BASH" "$0"
fi
. tests/support/tap.bash
. "$root/tests/support/transcript.bash"
PATH=$PATH:/usr/sbin
missing=
for program in slurmctld slurmd munged srun sbatch openssl; do
    command -v $program > /dev/null || missing="there is no $program (Debian: slurm-wlm, munge)"
done
[ "$(id -u)" = 0 ] || missing="Slurm's daemons take root"
[ -e /proc/self/stat ] || missing="Slurm's daemons take /proc"
[ -n "${SLURM_TEST_SPACE:-}" ] || missing="the nodes take namespaces of their own (unshare -mn)"
command -v ip > /dev/null || missing="there is no ip (Debian: iproute2)"
if [ -n "$missing" ]; then
    skip "Slurm" "$missing"
    finish
    exit
fi

host=$(hostname)
{ cat /etc/hosts 2> /dev/null; echo "10.77.3.1 n0 n1"; } > hosts
if ! { ip link set lo up && ip address add 10.77.3.1/32 dev lo && mount --bind hosts /etc/hosts; } 2> err; then
    skip "Slurm" "the nodes get no names here: $(tail -n 1 err)"
    finish
    exit
fi
free_ports 23000 4
mkdir state log bin
ln -s "$YOKE" bin/yoke
export PATH=$work/bin:$PATH SLURM_CONF=$work/slurm.conf
cat > slurm.conf << END
ClusterName=yoke
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$work/munge.socket
SlurmctldPort=$port
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool_%n
SlurmctldPidFile=$work/ctld.pid
SlurmdPidFile=$work/d_%n.pid
SlurmctldLogFile=$work/log/ctld
SlurmdLogFile=$work/log/d_%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
MpiDefault=none
NodeName=n0 NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + 1)) CPUs=2 RealMemory=1000 State=UNKNOWN
NodeName=n1 NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + 2)) CPUs=2 RealMemory=1000 State=UNKNOWN
PartitionName=p Nodes=n0,n1 Default=YES State=UP MaxTime=10
END
daemons=
cleanup()
{
    scancel --full --user root 2> /dev/null
    for pid in $daemons; do
        kill "$pid" 2> /dev/null
    done
    wait
    rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 1' INT TERM HUP
(umask 077 && head -c 1024 /dev/urandom > munge.key)
munged --foreground --force --key-file "$work/munge.key" --socket "$work/munge.socket" --pid-file "$work/munge.pid" \
    --seed-file "$work/munge.seed" --log-file "$work/log/munge" > log/munged 2>&1 &
daemons+=" $!"
wait_until 10 [ -S munge.socket ]
setsid slurmctld -D > log/ctld.out 2>&1 &
daemons+=" $!"
wait_until 20 eval 'scontrol ping 2> /dev/null | grep -q UP'
for node in n0 n1; do
    setsid slurmd -D -N $node > log/$node.out 2>&1 &
    daemons+=" $!"
done
if ! wait_until 30 eval '[ "$(sinfo -h -o %D -t idle 2> /dev/null)" = 2 ]'; then
    skip "Slurm" "its daemons do not start here: $(cat log/*.out log/ctld | tail -n 1)"
    finish
    exit
fi

unfold_page "$root/docs/howto-slurm.md"
export HOME=$work
# run_command BLOCK NAME: the command of that block of the page.
run_command()
{
    timeout $(patience 100) bash -c "$(< "$1.1.command")" > out 2> err
    ok "$2" [ $? = 0 ]
}
run_command 1 "one node: srun and nothing else"
says out "2 processes"
timeout $(patience 100) bash -c "$(< 3.1.command)" > out 2> err
ok "two nodes without a secret: refused" [ $? != 0 ]
says err "is reached over a network, which takes a job secret: make one, once for all your jobs, in your home folder"
ok "at the first node, by its name" grep -qE "tcp_store: 10\.77\.3\.1:2[0-9]{4} is reached" err
says err "openssl rand -hex 32 > ~/.yoke-job-secret"
run_command 2 "a secret is made"
ok "of 64 digits, for its owner alone" [ "$(stat -c %a:%s .yoke-job-secret)" = 600:65 ]
run_command 3 "two nodes: srun and nothing else"
says out "4 processes"
timeout $(patience 100) srun -N 2 -n 2 -l bash -c 'SLURM_STEP_NODELIST="n[0-" yoke train --model mlp --data glyphs --steps 1' \
    > out 2> err
says err "SLURM_STEP_NODELIST=n[0- is no list of nodes: a bracket has no end, at character 5"
timeout $(patience 100) srun -N 2 -n 4 bash -c 'YOKE_HOST_ID=node$SLURM_NODEID exec yoke train --model mlp --data glyphs --steps 20' > out 2> err
ok "with connections between the nodes" [ $? = 0 ]
says out "4 processes"
# Workers of calls are reached where the nodes are, too: their sockets and the store's listen at 10.77.3.1.
cat > workers.c << 'END'
#include <stdio.h>
#include <string.h>
#include <yoke/yoke.h>
int main(void)
{
    char line[512];
    int listening = 0;
    yk_scope program = yk_scope_begin();
    if (yk_rpc_init(NULL, NULL))
        return yk_report_error(stderr);
    FILE *sockets = fopen("/proc/net/tcp", "r");
    while (sockets && fgets(line, sizeof(line), sockets))
        listening += strstr(line, ": 01034D0A:") && strstr(line, " 00000000:0000 0A ");
    printf("%s: %s\n", yk_rpc_name(), listening >= 5 ? "all listen" : "some do not listen");
    if (yk_rpc_shutdown(YK_RPC_GRACEFUL, YK_NOT_GIVEN))
        return yk_report_error(stderr);
    yk_scope_end(program);
    return 0;
}
END
flags="-std=c11 -D_GNU_SOURCE -I$root/include${SANITIZE:+ -fsanitize=$SANITIZE}"
ok "workers.c is built" ${CC:-gcc} $flags -o workers workers.c "$(dirname "$YOKE")/libyoke.a" \
    -ljansson -lsodium -ljpeg -lpng -lz -lm -pthread -ldl
timeout $(patience 100) srun -N 2 -n 4 ./workers > out 2> err
ok "calls between processes on two nodes: srun and nothing else" [ $? = 0 ]
ok "each worker is reached at its node" [ "$(grep -c '^worker[0123]: all listen$' out)" = 4 ]
# Two steps of a job at a time have ports of their own.
timeout $(patience 100) salloc -Q -N 2 -n 4 bash -c '
    for step in 1 2; do srun --exact -N 2 -n 2 yoke train --model mlp --data glyphs --steps 20 > step$step 2>&1 & pids="$pids $!"; done
    for pid in $pids; do wait $pid || exit; done' > out 2> err
ok "two steps at once" [ $? = 0 ]
ok "each of two processes" [ "$(grep -l "2 processes" step1 step2 | wc -l)" = 2 ]
chmod 644 .yoke-job-secret
timeout $(patience 100) bash -c "$(< 3.1.command)" > out 2> err
says err "$work/.yoke-job-secret: others may read or change it (chmod 600)"
chmod 600 .yoke-job-secret

# The job of several nodes; its folder has what the cluster's shared folder has.
submit()
{
    job=$(sbatch --parsable "$1" 2> err)
}
state()
{
    scontrol show job "$job" 2> /dev/null | grep -oE "(JobState|Restarts|ExitCode)=[^ ]*" | tr '\n' ' '
}
done_with()
{
    [[ "$(state)" == *"JobState=$1 "* ]]
}
ok "train.sbatch is submitted" submit train.sbatch
ok "it saves" wait_until 100 eval 'ls run/step-* > /dev/null 2>&1 || grep -qs "epoch" train.log'
cp train.log out
# What --signal=USR1@60 does when time is up.
scancel --signal=USR1 "$job"
ok "it is asked to end, saves, and is in the queue again" wait_until 100 eval '[[ "$(state)" == *"JobState=PENDING "*"Restarts=1 "* ]]'
state > out
cp train.log err
ok "a checkpoint is there" eval 'ls run/step-*/state.json > /dev/null'
scancel "$job"
before=$(ls run | tail -n 1)
sed -i 's/--epochs 400/--steps '$((10#${before#step-} + 5))'/' train.sbatch
ok "it is submitted again, with five steps to go" submit train.sbatch
ok "and goes on to its end" wait_until 100 done_with COMPLETED
cp train.log out
state > err
ok "from the checkpoint" [ "$(ls run | tail -n 1)" = "step-$(printf %08d $((10#${before#step-} + 5)))" ]

ok "launch.sbatch is submitted" submit launch.sbatch
ok "and goes on to its end" wait_until 100 done_with COMPLETED
cp launch.log out
state > err
says launch.log "4 processes"
finish
