# Starts the node's namespaces in cgroups of their own and waits; when they end, or when standard input does, which is a
# pipe from the owner and ends however the owner ends, nothing of them stays.
# $1: the node's folder, which is removed at the end  $2: the name of its cgroups  $3: the first process
set -u
folder=$1 name=$2 init=$3
root=/sys/fs/cgroup
enabled=

make_cgroup() { # $1: a hierarchy
	mkdir "$1/$name" || return 1
	echo "$1/$name" >>"$folder/cgroups"
	if [ -e "$1/$name/cpuset.mems" ] && [ -z "$(cat "$1/$name/cpuset.mems")" ] && [ ! -e "$1/cgroup.controllers" ]; then
		cat "$1/cpuset.cpus" >"$1/$name/cpuset.cpus" # v1: nothing may enter while these are empty
		cat "$1/cpuset.mems" >"$1/$name/cpuset.mems"
	fi
}

enable() { # $1: a v2 cgroup; prints what had to be enabled
	for controller in cpuset cpu io memory pids hugetlb; do
		grep -qw "$controller" "$1/cgroup.controllers" || continue
		grep -qw "$controller" "$1/cgroup.subtree_control" && continue
		echo "+$controller" >"$1/cgroup.subtree_control" && echo "$controller"
	done
}

make_cgroups() {
	if [ -e $root/cgroup.controllers ]; then
		enabled=$(enable $root)
		make_cgroup $root
		return
	fi
	for hierarchy in $root/*; do
		[ ! -L "$hierarchy" ] || continue # a second name, as `cpu` is of `cpu,cpuacct`
		[ ! -e "$hierarchy/cgroup.procs" ] || make_cgroup "$hierarchy" || return 1
	done
}

# In v2 a cgroup with cgroups in it has no processes: all of the node's own are in its `init`.
settle_v2() { # $1: the process that made the namespaces
	mkdir -p "$root/$name/init"
	echo "$1" >"$root/$name/init/cgroup.procs"
	enable "$root/$name" >/dev/null
}

remove() {
	for cgroup in $(cat "$folder/cgroups"); do
		for try in $(seq 200); do # the last process may still be on its way out
			find "$cgroup" -depth -type d -exec rmdir {} + 2>/dev/null
			[ -d "$cgroup" ] || break
			sleep 0.05
		done
		[ ! -d "$cgroup" ] || echo "cannot remove $cgroup" >&2
	done
	for controller in $enabled; do
		echo "-$controller" >$root/cgroup.subtree_control
	done
	if [ -e "$folder/orphaned" ]; then
		rm -rf "${folder%/node}" # all of the control plane: no other process is left to do it
	else
		rm -rf "$folder"
	fi
}

: >"$folder/cgroups"
make_cgroups || {
	remove
	exit 1
}
exec 3<&0
sh -c '
	while read -r cgroup; do echo $$ >"$cgroup/cgroup.procs" || exit 1; done <"$0/cgroups"
	exec unshare --mount --net --pid --uts --ipc --cgroup --fork --kill-child --mount-proc --propagation private \
		sh "$0/inside.sh" "$0" "$1"
' "$folder" "$init" </dev/null 3<&- &
namespaces=$!
echo $namespaces >"$folder/pid"
(
	read -r _ <&3 || : >"$folder/orphaned" # an owner that ends in order says so
	kill -s KILL $namespaces
) >/dev/null 2>&1 &
reader=$!
exec 3<&- </dev/null
if [ -e $root/cgroup.controllers ]; then
	while [ ! -e "$folder/up" ] && kill -0 $namespaces 2>/dev/null; do sleep 0.05; done
	settle_v2 $namespaces
fi
: >"$folder/settled"
wait $namespaces
code=$?
kill -s KILL $reader 2>/dev/null
remove
exit $code
