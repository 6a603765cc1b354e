# The first process of the node's namespaces: makes them look like a machine of its own, then becomes `pause`.
# $1: the node's folder  $2: pause
set -eu
folder=$1 pause=$2

# The first: mount itself keeps notes in /run, and that would be the host's.
mount -n -t tmpfs -o mode=755 tmpfs /run
mount --make-rshared / # kubelet's volumes are to be seen by containers that run already
for place in /var/lib /var/log; do # kubelet, containerd and CNI have fixed paths in these
	mkdir -p "$folder$place"
	mount --bind "$folder$place" $place
done
if [ "$(stat -f -c %T /var/lib)" = overlayfs ]; then # as in a container: images cannot be overlays on an overlay
	mkdir -p /var/lib/containerd
	mount -t tmpfs tmpfs /var/lib/containerd
fi

# The cgroups again, now that their root is ours; in a /sys that shows this network namespace.
hierarchies=$(while read -r _ where kind options _; do
	[ "$kind" != cgroup ] || echo "$where $options"
done </proc/mounts)
version=1
[ ! -e /sys/fs/cgroup/cgroup.controllers ] || version=2
mount -t sysfs sysfs /sys
if [ $version = 2 ]; then
	mount -t cgroup2 cgroup2 /sys/fs/cgroup
	mkdir -p /sys/fs/cgroup/init
	echo 0 >/sys/fs/cgroup/init/cgroup.procs
else
	mount -t tmpfs -o mode=755 tmpfs /sys/fs/cgroup
	echo "$hierarchies" | while read -r where options; do
		controllers=
		for option in $(echo "$options" | tr , ' '); do
			case $option in
			rw | ro | relatime | noatime | nosuid | nodev | noexec | xattr | clone_children | release_agent=*) ;;
			*) controllers=$controllers,$option ;;
			esac
		done
		mkdir -p "/sys/fs/cgroup/${where##*/}"
		mount -t cgroup -o "${controllers#,}" cgroup "/sys/fs/cgroup/${where##*/}"
	done
fi

# What kubelet wants the kernel to be set to, in files of ours: the host's settings stay.
mkdir "$folder/sysctl"
while read -r setting value; do
	file=$folder/sysctl/$(echo "$setting" | tr / .)
	echo "$value" >"$file"
	mount --bind "$file" "/proc/sys/$setting"
done <<SETTINGS
vm/overcommit_memory 1
vm/panic_on_oom 0
kernel/panic 10
kernel/panic_on_oops 1
kernel/keys/root_maxkeys 1000000
kernel/keys/root_maxbytes 25000000
SETTINGS

# A loopback, and a bridge that Pods are tied to; no way out. The API's Service address is one of the node's own, so that
# Pods reach the API at it without kube-proxy.
echo node1 >/proc/sys/kernel/hostname
ip link set lo up
ip link add node0 type bridge
ip address add 10.88.0.1/24 dev node0
ip address add 10.0.0.1/32 dev node0
ip link set node0 up

: >"$folder/up"
exec "$pause"
