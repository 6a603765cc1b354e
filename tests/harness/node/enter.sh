# Runs a command inside the node. $1: the node's folder  the rest: the command
folder=$1
shift
while read -r cgroup; do
	[ ! -d "$cgroup/init" ] || cgroup=$cgroup/init
	echo $$ >"$cgroup/cgroup.procs" || exit 1
done <"$folder/cgroups"
read -r pid <"$folder/pid"
exec nsenter --target "$pid" --mount --net --uts --ipc --cgroup --pid="/proc/$pid/ns/pid_for_children" -- "$@"
